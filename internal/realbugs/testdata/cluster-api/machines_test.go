package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinepool"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func machineSets(ctx context.Context, p program, o controller.Options) error {
	return (&machineset.Reconciler{Client: p.mgr.GetClient(), APIReader: p.mgr.GetAPIReader(),
		ClusterCache: p.workload, PreflightChecks: sets.New(clusterv1.MachineSetPreflightCheckAll)}).
		SetupWithManager(ctx, p.mgr, o)
}

func machineDeployments(ctx context.Context, p program, o controller.Options) error {
	return (&machinedeployment.Reconciler{Client: p.mgr.GetClient(), APIReader: p.mgr.GetAPIReader()}).
		SetupWithManager(ctx, p.mgr, o)
}

// those returns an error unless there are so many machines of an app, of one version, none going, and no others.
func those(s *reconciletest.Server, app string, n int, version string) error {
	all, good := 0, 0
	for _, m := range reconciletest.List[*clusterv1.Machine](s, "machines.cluster.x-k8s.io", "default") {
		if m.Labels["app"] != app {
			continue
		}
		all++
		if m.DeletionTimestamp == nil && m.Spec.Version == version {
			good++
		}
	}
	return want("machines of "+app+", and the good ones", [2]int{all, good}, [2]int{n, n})
}

func machineSet(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineSet
metadata: {name: %s, namespace: default, labels: {cluster.x-k8s.io/cluster-name: one}}
spec:
  clusterName: one
  replicas: %d
  selector: {matchLabels: {app: %s, cluster.x-k8s.io/cluster-name: one}}
  template:%s`, name, replicas, name, machineSpec(name, "small", "v1.35.0"))
}

func TestMachineSet(t *testing.T) {
	check(t, machineSets, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{hosts},
		Steps: append(reconciletest.ApplyYAML(cluster("one", "")+template("small")+machineSet("web", 3)+
			machineSet("old", 1), machineSet("web", 2)),
			reconciletest.Delete("machinesets.cluster.x-k8s.io", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			m, err := there[*clusterv1.MachineSet](s, "machinesets.cluster.x-k8s.io", "web")
			if err != nil {
				return err
			}
			if m.Status.AvailableReplicas == nil || *m.Status.AvailableReplicas != 2 {
				return errors.New("the set has not two machines that are available")
			}
			return errors.Join(those(s, "web", 2, "v1.35.0"), those(s, "old", 0, ""))
		},
	})
}

func TestMachineDeployment(t *testing.T) {
	of := func(name string, replicas int, version string) string {
		return fmt.Sprintf(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: %s, namespace: default, labels: {cluster.x-k8s.io/cluster-name: one}}
spec:
  clusterName: one
  replicas: %d
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}
  selector: {matchLabels: {app: %s, cluster.x-k8s.io/cluster-name: one}}
  template:%s`, name, replicas, name, machineSpec(name, "small", version))
	}
	check(t, machineDeployments, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{manager(machineSets), hosts},
		Steps: append(reconciletest.ApplyYAML(cluster("one", "")+template("small")+of("web", 2, "v1.34.0")+
			of("old", 1, "v1.34.0"), of("web", 2, "v1.35.0")),
			reconciletest.Delete("machinedeployments.cluster.x-k8s.io", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			d, err := there[*clusterv1.MachineDeployment](s, "machinedeployments.cluster.x-k8s.io", "web")
			if err != nil {
				return err
			}
			if d.Status.AvailableReplicas == nil || *d.Status.AvailableReplicas != 2 {
				return errors.New("the deployment has not two machines that are available")
			}
			return errors.Join(those(s, "web", 2, "v1.35.0"), those(s, "old", 0, ""))
		},
	})
}

// pair is a machine, and its infrastructure.
func pair(name string) string {
	return fmt.Sprintf(`
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: GenericInfrastructureMachine
metadata: {name: %s, namespace: default}
spec: {size: small}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: %s, namespace: default, labels: {app: web, cluster.x-k8s.io/cluster-name: one}}
spec:
  clusterName: one
  version: v1.35.0
  bootstrap: {dataSecretName: boot}
  deletion: {nodeDeletionTimeoutSeconds: 10}
  infrastructureRef:
    apiGroup: infrastructure.cluster.x-k8s.io
    kind: GenericInfrastructureMachine
    name: %s
---
`, name, name, name)
}

func TestMachine(t *testing.T) {
	check(t, func(ctx context.Context, p program, o controller.Options) error {
		return (&machine.Reconciler{Client: p.mgr.GetClient(), APIReader: p.mgr.GetAPIReader(),
			ClusterCache: p.workload, RemoteConditionsGracePeriod: 5 * time.Minute}).SetupWithManager(ctx, p.mgr, o)
	}, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{provider},
		Steps: slices.Concat(reconciletest.ApplyYAML(cluster("one", "")), []reconciletest.Step{up("one")},
			reconciletest.ApplyYAML(pair("a")+pair("b"), pair("c")),
			[]reconciletest.Step{reconciletest.Delete("machines.cluster.x-k8s.io", "default", "a")}),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"b", "c"} {
				m, err := there[*clusterv1.Machine](s, "machines.cluster.x-k8s.io", name)
				if err != nil {
					return err
				}
				if m.Status.NodeRef.Name != name || m.Status.Phase != string(clusterv1.MachinePhaseRunning) {
					return fmt.Errorf("machine %s has node %q, and is %s", name, m.Status.NodeRef.Name, m.Status.Phase)
				}
			}
			return those(s, "web", 2, "v1.35.0")
		},
	})
}

// node makes the step that reports whether a node is ready.
func node(name string, ready corev1.ConditionStatus) reconciletest.Step {
	return reconciletest.StepFunc(fmt.Sprintf("node %s is ready: %s", name, ready),
		func(ctx context.Context, cfg *rest.Config) error {
			nodes := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes()
			n, err := nodes.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready,
				LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}}
			_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
			return err
		})
}

func TestMachineHealthCheck(t *testing.T) {
	const objects = `
apiVersion: v1
kind: Node
metadata: {name: a}
spec: {providerID: "generic://a"}
---
apiVersion: v1
kind: Node
metadata: {name: b}
spec: {providerID: "generic://b"}
---
`
	const healthcheck = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: health, namespace: default, labels: {cluster.x-k8s.io/cluster-name: one}}
spec:
  clusterName: one
  selector: {matchLabels: {app: web}}
  checks:
    nodeStartupTimeoutSeconds: 600
    unhealthyNodeConditions: [{type: Ready, status: "False", timeoutSeconds: 300}]
  remediation: {triggerIf: {unhealthyLessThanOrEqualTo: 50%}}
`
	at := func(name string) reconciletest.Step {
		return status("machine "+name+" has its node", machines, name, `{"status":{"nodeRef":{"name":"`+name+`"}}}`)
	}
	check(t, func(ctx context.Context, p program, o controller.Options) error {
		return (&machinehealthcheck.Reconciler{Client: p.mgr.GetClient(), ClusterCache: p.workload}).
			SetupWithManager(ctx, p.mgr, o)
	}, reconciletest.Scenario{
		Steps: slices.Concat(reconciletest.ApplyYAML(cluster("one", "")+objects+pair("a")+pair("b")),
			[]reconciletest.Step{up("one"), node("a", corev1.ConditionTrue), node("b", corev1.ConditionTrue),
				at("a"), at("b")},
			reconciletest.ApplyYAML(healthcheck), []reconciletest.Step{node("b", corev1.ConditionFalse),
				reconciletest.Wait(10 * time.Minute)}),
		Settled: func(s *reconciletest.Server) error {
			for name, healthy := range map[string]bool{"a": true, "b": false} {
				m, err := there[*clusterv1.Machine](s, "machines.cluster.x-k8s.io", name)
				if err != nil {
					return err
				}
				if err := errors.Join(want(name+" is healthy",
					conditions.IsTrue(m, clusterv1.MachineHealthCheckSucceededCondition), healthy), want(
					name+" is to be remediated", conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition),
					!healthy)); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

func TestMachinePool(t *testing.T) {
	of := func(name string, replicas int) string {
		return fmt.Sprintf(`
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: GenericInfrastructureMachinePool
metadata: {name: %s, namespace: default}
spec: {size: small, providerIDList: ["generic://%s"]}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachinePool
metadata: {name: %s, namespace: default, labels: {cluster.x-k8s.io/cluster-name: one}}
spec:
  clusterName: one
  replicas: %d
  template:
    metadata: {labels: {app: %s}}
    spec:
      clusterName: one
      bootstrap: {dataSecretName: boot}
      deletion: {nodeDeletionTimeoutSeconds: 10}
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: GenericInfrastructureMachinePool
        name: %s
---
apiVersion: v1
kind: Node
metadata: {name: %s}
spec: {providerID: "generic://%s"}
---
`, name, name, name, replicas, name, name, name, name)
	}
	provisioned := func(name string) reconciletest.Step {
		return status(name+" is provisioned", infra.WithResource("genericinfrastructuremachinepools"), name,
			`{"status":{"initialization":{"provisioned":true},"ready":true,"replicas":1}}`)
	}
	check(t, func(ctx context.Context, p program, o controller.Options) error {
		return (&machinepool.Reconciler{Client: p.mgr.GetClient(), APIReader: p.mgr.GetAPIReader(),
			ClusterCache: p.workload}).SetupWithManager(ctx, p.mgr, o)
	}, reconciletest.Scenario{
		Steps: slices.Concat(reconciletest.ApplyYAML(cluster("one", "")), []reconciletest.Step{up("one")},
			reconciletest.ApplyYAML(of("web", 1)+of("old", 1)), []reconciletest.Step{provisioned("web"),
				provisioned("old"), node("web", corev1.ConditionTrue), node("old", corev1.ConditionTrue),
				reconciletest.Delete("machinepools.cluster.x-k8s.io", "default", "old")}),
		Settled: func(s *reconciletest.Server) error {
			p, err := there[*clusterv1.MachinePool](s, "machinepools.cluster.x-k8s.io", "web")
			if err != nil {
				return err
			}
			_, left := reconciletest.Get[*clusterv1.MachinePool](s, "machinepools.cluster.x-k8s.io", "default", "old")
			return errors.Join(want("nodes", len(p.Status.NodeRefs), 1), want("old is there", left, false))
		},
	})
}
