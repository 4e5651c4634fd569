package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// job writes one of a kind, with what is said of each type of its replicas.
func job(kind, name, field, more string, replicas ...string) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: %s
metadata: {name: %s, namespace: default}
spec:
  %s
  %s:
%s---
`, kind, name, more, field, strings.Join(replicas, ""))
}

// replicas are those of one type, with one container.
func replicas(of, container string, number int, restart string) string {
	return fmt.Sprintf(`    %s:
      replicas: %d
      restartPolicy: %s
      template:
        spec:
          containers: [{name: %s, image: train, command: [train]}]
`, of, number, restart, container)
}

func TestPyTorchJob(t *testing.T) {
	of := func(name string, workers int) string {
		return job("PyTorchJob", name, "pytorchReplicaSpecs",
			"elasticPolicy: {rdzvBackend: c10d, minReplicas: 1, maxReplicas: 3, maxRestarts: 100}",
			replicas("Worker", "pytorch", workers, "OnFailure"))
	}
	check(t, kubeflow.PyTorchJobKind, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("net", 1)+of("old", 1), of("net", 3), of("net", 2)),
			reconciletest.Delete("pytorchjobs.kubeflow.org", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			j, err := there[*kubeflow.PyTorchJob](s, "pytorchjobs.kubeflow.org", "net")
			if err != nil {
				return err
			}
			return errors.Join(holds("net", j.Status, kubeflow.JobRunning), pods(s, "net", 2), pods(s, "old", 0),
				gone[*kubeflow.PyTorchJob](s, "pytorchjobs.kubeflow.org", "old"))
		},
	})
}

func TestTFJob(t *testing.T) {
	of := func(name, policy string) string {
		return job("TFJob", name, "tfReplicaSpecs", policy, replicas("PS", "tensorflow", 1, "Never"),
			replicas("Worker", "tensorflow", 2, "OnFailure"))
	}
	check(t, kubeflow.TFJobKind, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{ends},
		Steps: append(reconciletest.ApplyYAML(of("net", "runPolicy: {cleanPodPolicy: None}"),
			of("more", "runPolicy: {cleanPodPolicy: All, suspend: true}"),
			of("more", "runPolicy: {cleanPodPolicy: All, suspend: false}")),
			reconciletest.Delete("tfjobs.kubeflow.org", "default", "net")),
		Settled: func(s *reconciletest.Server) error {
			j, err := there[*kubeflow.TFJob](s, "tfjobs.kubeflow.org", "more")
			if err != nil {
				return err
			}
			return errors.Join(holds("more", j.Status, kubeflow.JobSucceeded), pods(s, "more", 0), pods(s, "net", 0),
				gone[*kubeflow.TFJob](s, "tfjobs.kubeflow.org", "net"))
		},
	})
}

// TestXGBoostJob has pods that are restarted: a job of any other policy has failed for good when a pod is deleted that
// runs, by intention.
func TestXGBoostJob(t *testing.T) {
	of := func(name string, suspend bool) string {
		return job("XGBoostJob", name, "xgbReplicaSpecs", fmt.Sprintf("runPolicy: {suspend: %t}", suspend),
			replicas("Master", "xgboost", 1, "ExitCode"), replicas("Worker", "xgboost", 2, "ExitCode"))
	}
	check(t, kubeflow.XGBoostJobKind, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("iris", false)+of("old", false), of("iris", true), of("iris", false)),
			reconciletest.Delete("xgboostjobs.kubeflow.org", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			j, err := there[*kubeflow.XGBoostJob](s, "xgboostjobs.kubeflow.org", "iris")
			if err != nil {
				return err
			}
			return errors.Join(holds("iris", j.Status, kubeflow.JobRunning), pods(s, "iris", 3), pods(s, "old", 0),
				gone[*kubeflow.XGBoostJob](s, "xgboostjobs.kubeflow.org", "old"))
		},
	})
}

func TestPaddleJob(t *testing.T) {
	of := func(name, policy string) string {
		return job("PaddleJob", name, "paddleReplicaSpecs", policy, replicas("Worker", "paddle", 2, "OnFailure"))
	}
	check(t, kubeflow.PaddleJobKind, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("net", "runPolicy: {suspend: true}")+of("old", "runPolicy: {}"),
			of("net", "runPolicy: {suspend: false}"), of("net", "runPolicy: {suspend: true}")),
			reconciletest.Delete("paddlejobs.kubeflow.org", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			j, err := there[*kubeflow.PaddleJob](s, "paddlejobs.kubeflow.org", "net")
			if err != nil {
				return err
			}
			return errors.Join(holds("net", j.Status, kubeflow.JobSuspended), pods(s, "net", 0), pods(s, "old", 0),
				gone[*kubeflow.PaddleJob](s, "paddlejobs.kubeflow.org", "old"))
		},
	})
}

func TestJAXJob(t *testing.T) {
	of := func(name, policy string) string {
		return job("JAXJob", name, "jaxReplicaSpecs", policy, replicas("Worker", "jax", 2, "OnFailure"))
	}
	check(t, kubeflow.JAXJobKind, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{ends},
		Steps: append(reconciletest.ApplyYAML(of("net", "runPolicy: {cleanPodPolicy: Running}")+
			of("old", "runPolicy: {cleanPodPolicy: Running}"), of("more", "runPolicy: {cleanPodPolicy: All}")),
			reconciletest.Delete("jaxjobs.kubeflow.org", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"net", "more"} {
				j, err := there[*kubeflow.JAXJob](s, "jaxjobs.kubeflow.org", name)
				if err == nil {
					err = holds(name, j.Status, kubeflow.JobSucceeded)
				}
				if err != nil {
					return err
				}
			}
			return errors.Join(pods(s, "more", 0), pods(s, "old", 0),
				gone[*kubeflow.JAXJob](s, "jaxjobs.kubeflow.org", "old"))
		},
	})
}
