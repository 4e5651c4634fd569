package check

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// runtimeOf is a runtime of a kind for PyTorch, as Trainer installs one.
func runtimeOf(kind, metadata string) string {
	return fmt.Sprintf(`
apiVersion: trainer.kubeflow.org/v1alpha1
kind: %s
metadata: {%s}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: torch, command: [torchrun, train.py]}]}}}
---
`, kind, metadata)
}

// job trains on a runtime of a kind.
func job(name, kind, of string, nodes int, suspend bool) string {
	return fmt.Sprintf(`
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %s, namespace: default}
spec:
  runtimeRef: {kind: %s, name: %s}
  suspend: %t
  trainer: {numNodes: %d}
---
`, name, kind, of, suspend, nodes)
}

// complete returns an error unless a job is.
func complete(s *reconciletest.Server, name string) error {
	j, err := there[*trainer.TrainJob](s, "trainjobs", "default", name)
	if err != nil {
		return err
	}
	return want(name+" is complete", meta.IsStatusConditionTrue(j.Status.Conditions, trainer.TrainJobComplete), true)
}

// TestTrainJob: a job is done, one is deleted, and one is suspended at first.
func TestTrainJob(t *testing.T) {
	const kind = "ClusterTrainingRuntime"
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(runtimeOf(kind, "name: torch")+job("net", kind, "torch", 2, false)+
			job("old", kind, "torch", 1, false), job("late", kind, "torch", 3, true),
			job("late", kind, "torch", 3, false)), reconciletest.Delete("trainjobs", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			set, err := there[*jobsetv1alpha2.JobSet](s, "jobsets", "default", "late")
			if err != nil {
				return err
			}
			return errors.Join(complete(s, "net"), complete(s, "late"),
				want("nodes of late", *set.Spec.ReplicatedJobs[0].Template.Spec.Parallelism, 3),
				gone[*trainer.TrainJob](s, "trainjobs", "default", "old"),
				gone[*jobsetv1alpha2.JobSet](s, "jobsets", "default", "old"))
		},
	})
}

// TestTrainingRuntime: a runtime that is deleted goes when its last job has gone.
func TestTrainingRuntime(t *testing.T) {
	inUse[*trainer.TrainingRuntime](t, "TrainingRuntime", "trainingruntimes", "default")
}

// TestClusterTrainingRuntime: the same for those of all namespaces.
func TestClusterTrainingRuntime(t *testing.T) {
	inUse[*trainer.ClusterTrainingRuntime](t, "ClusterTrainingRuntime", "clustertrainingruntimes", "")
}

func inUse[T reconciletest.Object](t *testing.T, kind, resource, namespace string) {
	of := func(name string) string {
		if namespace == metav1.NamespaceNone {
			return runtimeOf(kind, "name: "+name)
		}
		return runtimeOf(kind, "name: "+name+", namespace: "+namespace)
	}
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("kept")+of("old")+job("net", kind, "kept", 1, false)+
			job("one", kind, "old", 1, false)+job("two", kind, "old", 1, false)),
			reconciletest.Delete(resource, namespace, "old"), reconciletest.Delete("trainjobs", "default", "one"),
			reconciletest.Delete("trainjobs", "default", "two")),
		Settled: func(s *reconciletest.Server) error {
			kept, err := there[T](s, resource, namespace, "kept")
			if err != nil {
				return err
			}
			return errors.Join(complete(s, "net"), want("finalizers of kept", len(kept.GetFinalizers()), 1),
				gone[T](s, resource, namespace, "old"))
		},
	})
}
