package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// workload is one with pods, by its kind, its name, its replicas and its image.
func workload(version, kind, name string, replicas int, image string) string {
	return fmt.Sprintf(`
apiVersion: %s
kind: %s
metadata: {name: %s, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: c, image: %s}]}
---
`, version, kind, name, replicas, name, name, image)
}

// pods returns an error unless there are so many pods of a name, with that image, ready and not going, and no others.
func pods(s *reconciletest.Server, name string, n int, image string) error {
	all, good := 0, 0
	for _, p := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
		if p.Labels["app"] != name {
			continue
		}
		all++
		if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image == image && ready(p) {
			good++
		}
	}
	return want(fmt.Sprintf("pods of %s, and the good ones among them", name), [2]int{all, good}, [2]int{n, n})
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func TestDeployment(t *testing.T) {
	of := func(name string, replicas int, image string) string {
		return workload("apps/v1", "Deployment", name, replicas, image)
	}
	check(t, names.DeploymentController, reconciletest.Scenario{
		World: &reconciletest.World{Except: []string{"deployments"}},
		Steps: append(reconciletest.ApplyYAML(of("web", 2, "one")+of("old", 1, "one"), of("web", 3, "two")),
			reconciletest.Delete("deployments", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			d, err := there[*appsv1.Deployment](s, "deployments", "default", "web")
			if err != nil {
				return err
			}
			return errors.Join(pods(s, "web", 3, "two"), pods(s, "old", 0, ""),
				want("updated, available",
					[2]int32{d.Status.UpdatedReplicas, d.Status.AvailableReplicas}, [2]int32{3, 3}))
		},
	})
}

func TestReplicaSet(t *testing.T) {
	of := func(name string, replicas int) string {
		return workload("apps/v1", "ReplicaSet", name, replicas, "one")
	}
	check(t, names.ReplicaSetController, reconciletest.Scenario{
		World: &reconciletest.World{Except: []string{"replicasets"}},
		Steps: append(reconciletest.ApplyYAML(of("web", 3)+of("old", 1), of("web", 2)),
			reconciletest.Delete("replicasets", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			r, err := there[*appsv1.ReplicaSet](s, "replicasets", "default", "web")
			if err != nil {
				return err
			}
			return errors.Join(pods(s, "web", 2, "one"), pods(s, "old", 0, ""),
				want("available", r.Status.AvailableReplicas, 2))
		},
	})
}

func TestReplicationController(t *testing.T) {
	of := func(name string, replicas int) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: ReplicationController
metadata: {name: %s, namespace: default}
spec:
  replicas: %d
  selector: {app: %s}
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: c, image: one}]}
---
`, name, replicas, name, name)
	}
	check(t, names.ReplicationControllerController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(of("web", 3)+of("old", 1), of("web", 2)),
			reconciletest.Delete("replicationcontrollers", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			r, err := there[*corev1.ReplicationController](s, "replicationcontrollers", "default", "web")
			if err != nil {
				return err
			}
			return errors.Join(pods(s, "web", 2, "one"), pods(s, "old", 0, ""),
				want("available", r.Status.AvailableReplicas, 2))
		},
	})
}

func TestDaemonSet(t *testing.T) {
	of := func(name, image string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %s, namespace: default}
spec:
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: c, image: %s}]}
---
`, name, name, name, image)
	}
	const node = "\napiVersion: v1\nkind: Node\nmetadata: {name: second}\n"
	check(t, names.DaemonSetController, reconciletest.Scenario{
		World: &reconciletest.World{Except: []string{"daemonsets"}},
		Steps: append(reconciletest.ApplyYAML(of("logs", "one")+of("old", "one"), node, of("logs", "two")),
			reconciletest.Delete("daemonsets", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			d, err := there[*appsv1.DaemonSet](s, "daemonsets", "default", "logs")
			if err != nil {
				return err
			}
			nodes := map[string]bool{}
			for _, p := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
				nodes[p.Spec.NodeName] = true
			}
			return errors.Join(pods(s, "logs", 2, "two"), pods(s, "old", 0, ""), want("nodes", len(nodes), 2),
				want("updated", d.Status.UpdatedNumberScheduled, 2))
		},
	})
}

func TestStatefulSet(t *testing.T) {
	of := func(name string, replicas int, image string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %s, namespace: default}
spec:
  replicas: %d
  serviceName: %s
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec:
      containers: [{name: c, image: %s, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
`, name, replicas, name, name, name, image)
	}
	check(t, names.StatefulSetController, reconciletest.Scenario{
		World: &reconciletest.World{Except: []string{"statefulsets"}},
		Steps: append(reconciletest.ApplyYAML(of("db", 2, "one")+of("old", 1, "one"), of("db", 3, "two")),
			reconciletest.Delete("statefulsets", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			d, err := there[*appsv1.StatefulSet](s, "statefulsets", "default", "db")
			if err != nil {
				return err
			}
			return errors.Join(pods(s, "db", 3, "two"), pods(s, "old", 0, ""),
				want("updated, available",
					[2]int32{d.Status.UpdatedReplicas, d.Status.AvailableReplicas}, [2]int32{3, 3}),
				want("claims", count(s, "persistentvolumeclaims", "default",
					func(c *corev1.PersistentVolumeClaim) bool { return c.Labels["app"] == "db" }), 3))
		},
	})
}

// job is a Job by its name and completions.
func job(name string, completions int, more string) string {
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: default}
spec:
  completions: %d
  parallelism: 2
  %s
  template:
    metadata: {labels: {app: %s}}
    spec: {restartPolicy: Never, containers: [{name: c, image: one}]}
---
`, name, completions, more, name)
}

// ends lets each pod that is ready succeed, as a kubelet does when the containers end.
func ends(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) {
			if p := o.(*corev1.Pod); ready(p) && p.Status.Phase == corev1.PodRunning {
				_, _ = client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
					[]byte(`{"status":{"phase":"Succeeded","conditions":[]}}`), metav1.PatchOptions{}, "status")
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

func complete(s *reconciletest.Server, name string, succeeded int) error {
	j, err := there[*batchv1.Job](s, "jobs", "default", name)
	if err != nil {
		return err
	}
	done := slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
	return want("complete, succeeded, active", []any{done, j.Status.Succeeded, j.Status.Active},
		[]any{true, succeeded, 0})
}

func TestJob(t *testing.T) {
	check(t, names.JobController, reconciletest.Scenario{
		World:  &reconciletest.World{Except: []string{"jobs"}},
		Beside: []func(context.Context, *rest.Config) error{ends},
		Steps: append(reconciletest.ApplyYAML(job("work", 2, ""), job("more", 3, "suspend: true"),
			job("more", 3, "suspend: false")), reconciletest.Delete("jobs", "default", "work")),
		Settled: func(s *reconciletest.Server) error {
			return errors.Join(complete(s, "more", 3), gone[*batchv1.Job](s, "jobs", "default", "work"),
				want("pods of work", count(s, "pods", "default", func(p *corev1.Pod) bool {
					return p.Labels["app"] == "work"
				}), 0))
		},
	})
}

func TestCronJob(t *testing.T) {
	of := func(suspend bool, history int) string {
		return fmt.Sprintf(`
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick, namespace: default}
spec:
  schedule: "* * * * *"
  suspend: %t
  successfulJobsHistoryLimit: %d
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: c, image: one}]}
`, suspend, history)
	}
	check(t, names.CronJobController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: slices.Concat(reconciletest.ApplyYAML(of(false, 3)),
			[]reconciletest.Step{reconciletest.Wait(5 * time.Minute)}, reconciletest.ApplyYAML(of(true, 1))),
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*batchv1.CronJob](s, "cronjobs", "default", "tick")
			if err != nil {
				return err
			}
			jobs := count(s, "jobs", "default", func(*batchv1.Job) bool { return true })
			return errors.Join(want("active", len(c.Status.Active), 0),
				want("at most one job is left", jobs <= 1, true))
		},
	})
}

func TestTTLAfterFinished(t *testing.T) {
	check(t, names.TTLAfterFinishedController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(job("short", 1, "ttlSecondsAfterFinished: 60")+job("kept", 1, "")+
			job("long", 1, "ttlSecondsAfterFinished: 86400"), job("long", 1, "ttlSecondsAfterFinished: 30")),
			reconciletest.Wait(5*time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*batchv1.Job](s, "jobs", "default", "kept")
			return errors.Join(err, gone[*batchv1.Job](s, "jobs", "default", "short"),
				gone[*batchv1.Job](s, "jobs", "default", "long"))
		},
	})
}
