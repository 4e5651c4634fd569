package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// flavors are ResourceFlavors.
func flavors(names ...string) (text string) {
	for _, name := range names {
		text += fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: %s}
---
`, name)
	}
	return text
}

// clusterQueue is one with a quota of CPUs of a flavor.
func clusterQueue(name, flavor string, cpus int, more string) string {
	return fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: %s}
spec:
  namespaceSelector: {}
  queueingStrategy: BestEffortFIFO
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: %s, resources: [{name: cpu, nominalQuota: %d}]}]
  %s
---
`, name, flavor, cpus, more)
}

// localQueue is one of a ClusterQueue.
func localQueue(name, of string) string {
	return fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %s, namespace: default}
spec: {clusterQueue: %s}
---
`, name, of)
}

// workload is one that asks for CPUs.
func workload(name, queue string, cpus int, more string) string {
	return fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: %s, namespace: default}
spec:
  queueName: %s
  active: true
  podSets:
  - name: main
    count: 1
    template:
      spec:
        restartPolicy: Never
        containers: [{name: c, image: c, resources: {requests: {cpu: %d}}}]
  %s
---
`, name, queue, cpus, more)
}

const (
	clusterQueues = "clusterqueues.kueue.x-k8s.io"
	localQueues   = "localqueues.kueue.x-k8s.io"
	workloads     = "workloads.kueue.x-k8s.io"
	allFlavors    = "resourceflavors.kueue.x-k8s.io"
	checks        = "admissionchecks.kueue.x-k8s.io"
	topologies    = "topologies.kueue.x-k8s.io"
)

// active returns an error unless a ClusterQueue is active.
func active(s *reconciletest.Server, name string) error {
	q, err := there[*kueue.ClusterQueue](s, clusterQueues, "", name)
	if err != nil {
		return err
	}
	return want(name+" is active", apimeta.IsStatusConditionTrue(q.Status.Conditions, kueue.ClusterQueueActive), true)
}

// admitted returns an error unless just these workloads are admitted.
func admitted(s *reconciletest.Server, names ...string) error {
	var is []string
	for _, w := range reconciletest.List[*kueue.Workload](s, workloads, "default") {
		if apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) {
			is = append(is, w.Name)
		}
	}
	slices.Sort(is)
	return want("admitted", is, names)
}

func TestResourceFlavor(t *testing.T) {
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(flavors("small", "large", "spare")+clusterQueue("all", "small", 4, ""),
			clusterQueue("all", "large", 4, "")), reconciletest.Delete(allFlavors, "", "small"),
			reconciletest.Delete(allFlavors, "", "spare")),
		Settled: func(s *reconciletest.Server) error {
			f, err := there[*kueue.ResourceFlavor](s, allFlavors, "", "large")
			if err != nil {
				return err
			}
			return errors.Join(want("finalizers", f.Finalizers, []string{kueue.ResourceInUseFinalizerName}),
				gone[*kueue.ResourceFlavor](s, allFlavors, "", "small"),
				gone[*kueue.ResourceFlavor](s, allFlavors, "", "spare"), active(s, "all"))
		},
	})
}

func TestAdmissionCheck(t *testing.T) {
	of := func(name string) string {
		return fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: %s}
spec: {controllerName: example.com/approver}
---
`, name)
	}
	const uses = "admissionChecksStrategy: {admissionChecks: [{name: %s}]}"
	ready := reconciletest.StepFunc("the checks are active", func(ctx context.Context, cfg *rest.Config) error {
		client := dynamic.NewForConfigOrDie(cfg).Resource(kueue.GroupVersion.WithResource("admissionchecks"))
		for _, name := range []string{"one", "two"} {
			patch := `{"status":{"conditions":[{"type":"Active","status":"True","reason":"Active","message":"",
				"lastTransitionTime":"2000-01-01T00:00:00Z"}]}}`
			_, err := client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
			if err != nil {
				return err
			}
		}
		return nil
	})
	check(t, reconciletest.Scenario{
		Steps: slices.Concat(reconciletest.ApplyYAML(flavors("small")+of("one")+of("two")),
			[]reconciletest.Step{ready},
			reconciletest.ApplyYAML(clusterQueue("all", "small", 4, fmt.Sprintf(uses, "one")),
				clusterQueue("all", "small", 4, fmt.Sprintf(uses, "two"))),
			[]reconciletest.Step{reconciletest.Delete(checks, "", "one")}),
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*kueue.AdmissionCheck](s, checks, "", "two")
			return errors.Join(err, gone[*kueue.AdmissionCheck](s, checks, "", "one"), active(s, "all"))
		},
	})
}

func TestWorkloadPriorityClass(t *testing.T) {
	of := func(value int) string {
		return fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: %d
---
`, value)
	}
	const high = `priority: 100
  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: high}`
	check(t, reconciletest.Scenario{
		Steps: reconciletest.ApplyYAML(of(100)+flavors("small")+clusterQueue("all", "small", 1, "")+
			localQueue("team", "all")+workload("a", "team", 2, high), workload("b", "team", 2, high), of(200)),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"a", "b"} {
				w, err := there[*kueue.Workload](s, workloads, "default", name)
				if err == nil && (w.Spec.Priority == nil || *w.Spec.Priority != 200) {
					err = fmt.Errorf("%s has not the priority 200", name)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	})
}

func TestLocalQueue(t *testing.T) {
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(flavors("small")+clusterQueue("all", "small", 2, "")+
			localQueue("team", "all")+localQueue("old", "all"), workload("a", "team", 2, ""),
			workload("b", "team", 2, "")), reconciletest.Delete(localQueues, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			q, err := there[*kueue.LocalQueue](s, localQueues, "default", "team")
			if err != nil {
				return err
			}
			return errors.Join(gone[*kueue.LocalQueue](s, localQueues, "default", "old"), admitted(s, "a"),
				want("pending, admitted", []int32{q.Status.PendingWorkloads, q.Status.AdmittedWorkloads},
					[]int32{1, 1}),
				want("active", apimeta.IsStatusConditionTrue(q.Status.Conditions, kueue.LocalQueueActive), true))
		},
	})
}

func TestCohort(t *testing.T) {
	of := func(name, more string, cpus int) string {
		return fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: %s}
spec:
  %s
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: small, resources: [{name: cpu, nominalQuota: %d}]}]
---
`, name, more, cpus)
	}
	check(t, reconciletest.Scenario{
		Steps: reconciletest.ApplyYAML(flavors("small")+of("root", "", 1)+of("child", "parentName: root", 0)+
			clusterQueue("all", "small", 0, "cohortName: child")+localQueue("team", "all"),
			workload("a", "team", 3, ""), of("root", "", 4)),
		Settled: func(s *reconciletest.Server) error {
			return errors.Join(active(s, "all"), admitted(s, "a"))
		},
	})
}

func TestClusterQueue(t *testing.T) {
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(flavors("small")+clusterQueue("all", "small", 2, "")+
			clusterQueue("old", "small", 2, "")+localQueue("team", "all"), workload("a", "team", 1, "")+
			workload("b", "team", 1, ""), workload("c", "team", 1, ""), clusterQueue("all", "small", 3, "")),
			reconciletest.Delete(clusterQueues, "", "old")),
		Settled: func(s *reconciletest.Server) error {
			q, err := there[*kueue.ClusterQueue](s, clusterQueues, "", "all")
			if err != nil {
				return err
			}
			return errors.Join(gone[*kueue.ClusterQueue](s, clusterQueues, "", "old"), active(s, "all"),
				admitted(s, "a", "b", "c"), want("pending, admitted",
					[]int32{q.Status.PendingWorkloads, q.Status.AdmittedWorkloads}, []int32{0, 3}))
		},
	})
}

func TestWorkload(t *testing.T) {
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(flavors("small")+clusterQueue("all", "small", 2, "")+
			localQueue("team", "all"), workload("a", "team", 2, ""), workload("b", "team", 1, ""),
			workload("c", "nobody", 1, "")), reconciletest.Delete(workloads, "default", "a")),
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*kueue.Workload](s, workloads, "default", "c")
			if err != nil {
				return err
			}
			return errors.Join(admitted(s, "b"), gone[*kueue.Workload](s, workloads, "default", "a"),
				want("c has a quota", apimeta.IsStatusConditionFalse(c.Status.Conditions, kueue.WorkloadQuotaReserved),
					true))
		},
	})
}

func TestTopology(t *testing.T) {
	of := func(name string) string {
		return fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: %s}
spec: {levels: [{nodeLabel: example.com/rack}]}
---
`, name)
	}
	const flavor = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: racked}
spec: {nodeLabels: {example.com/pool: a}, topologyName: racks}
---
`
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("racks")+of("old")+flavor, clusterQueue("all", "racked", 2, "")),
			reconciletest.Delete(topologies, "", "old")),
		Settled: func(s *reconciletest.Server) error {
			o, err := there[*kueue.Topology](s, topologies, "", "racks")
			if err != nil {
				return err
			}
			return errors.Join(want("finalizers", o.Finalizers, []string{kueue.ResourceInUseFinalizerName}),
				gone[*kueue.Topology](s, topologies, "", "old"), active(s, "all"))
		},
	})
}

func TestPodTermination(t *testing.T) {
	gate(t, "FailureRecoveryPolicy")
	of := func(name string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
  annotations: {kueue.x-k8s.io/safe-to-forcefully-delete: "true"}
spec: {nodeName: lost, containers: [{name: c, image: c}]}
---
`, name)
	}
	const lost = `
apiVersion: v1
kind: Node
metadata: {name: lost}
spec: {taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}]}
---
`
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(lost+of("a")+of("b")), reconciletest.Delete("pods", "default", "a"),
			reconciletest.Wait(5*time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*corev1.Pod](s, "pods", "default", "b")
			return errors.Join(err, gone[*corev1.Pod](s, "pods", "default", "a"))
		},
	})
}
