package check

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// pods counts those of an app, by their images.
func pods(s *reconciletest.Server, app string) map[string]int {
	of := map[string]int{}
	for _, p := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
		if p.Labels["app"] == app && p.DeletionTimestamp == nil {
			of[p.Spec.Containers[0].Image]++
		}
	}
	return of
}

// TestRollout: a canary gets half of the pods, and after a minute all of them.
func TestRollout(t *testing.T) {
	of := func(name, image string, replicas int) string {
		return fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: %s, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: c, image: %s}]}
  strategy: {canary: {steps: [{setWeight: 50}, {pause: {duration: 1m}}]}}
---
`, name, replicas, name, name, image)
	}
	check(t, rollouts, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(of("web", "one", 4)+of("old", "one", 1), of("web", "two", 4)),
			reconciletest.Wait(3*time.Minute), reconciletest.ApplyYAML(of("web", "two", 6))[0],
			reconciletest.Delete("rollouts", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			r, err := there[*v1alpha1.Rollout](s, "rollouts", "default", "web")
			if err != nil {
				return err
			}
			return errors.Join(want("phase", r.Status.Phase, v1alpha1.RolloutPhaseHealthy),
				want("the stable pods are the current ones", r.Status.StableRS == r.Status.CurrentPodHash, true),
				want("pods of web", pods(s, "web"), map[string]int{"two": 6}),
				want("pods of old", pods(s, "old"), map[string]int{}))
		},
	})
}

// TestExperiment: two versions run for two minutes; those of another one run until a user ends it.
func TestExperiment(t *testing.T) {
	of := func(name, spec string) string {
		template := func(version string) string {
			return fmt.Sprintf(`
  - name: %s
    replicas: 1
    selector: {matchLabels: {app: %s, version: %s}}
    template:
      metadata: {labels: {app: %s, version: %s}}
      spec: {containers: [{name: c, image: %s}]}`, version, name, version, name, version, version)
		}
		return fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: Experiment
metadata: {name: %s, namespace: default}
spec:
  %s
  templates:%s%s
---
`, name, spec, template("baseline"), template("canary"))
	}
	check(t, experimentsOf, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(of("short", "duration: 2m")+of("old", "duration: 2m")+
			of("endless", "progressDeadlineSeconds: 300")), reconciletest.Wait(4*time.Minute),
			reconciletest.ApplyYAML(of("endless", "progressDeadlineSeconds: 300\n  terminate: true"))[0],
			reconciletest.Delete("experiments", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for _, name := range []string{"short", "endless"} {
				e, err := there[*v1alpha1.Experiment](s, "experiments", "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want("phase of "+name, e.Status.Phase, v1alpha1.AnalysisPhaseSuccessful),
					want("pods of "+name, pods(s, name), map[string]int{}))
			}
			return errors.Join(append(errs, gone[*v1alpha1.Experiment](s, "experiments", "default", "old"))...)
		},
	})
}

// TestAnalysisRun: a Job measures twice; another run measures once an hour, until a user ends it.
func TestAnalysisRun(t *testing.T) {
	of := func(name, spec, when string) string {
		return fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: AnalysisRun
metadata: {name: %s, namespace: default}
spec:
  %s
  metrics:
  - name: smoke
    %s
    provider:
      job:
        spec:
          backoffLimit: 0
          template:
            spec:
              restartPolicy: Never
              containers: [{name: c, image: measure}]
---
`, name, spec, when)
	}
	check(t, analyses, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(of("twice", "args: []", "count: 2\n    interval: 30s")+
			of("old", "args: []", "count: 1")+of("hourly", "args: []", "count: 1000\n    interval: 1h")),
			reconciletest.Wait(2*time.Minute),
			reconciletest.ApplyYAML(of("hourly", "terminate: true", "count: 1000\n    interval: 1h"))[0],
			reconciletest.Delete("analysisruns", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for _, name := range []string{"twice", "hourly"} {
				r, err := there[*v1alpha1.AnalysisRun](s, "analysisruns", "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want("phase of "+name, r.Status.Phase, v1alpha1.AnalysisPhaseSuccessful))
			}
			return errors.Join(append(errs, gone[*v1alpha1.AnalysisRun](s, "analysisruns", "default", "old"))...)
		},
	})
}
