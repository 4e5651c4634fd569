package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// queued is what the external metric of TestCheck says. At 2 for each pod, 4 pods are wanted.
const queued = "8"

// TestCheck disturbs the controller at each of its requests, while an HPA allows 3 pods and then 6; in long runs then 3
// again.
func TestCheck(t *testing.T) {
	sc := reconciletest.Scenario{
		Run: runAsLeader,
		Server: reconciletest.Options{Roles: []string{"deploy/rbac.yaml"}, Aggregated: map[schema.GroupVersion]http.
			Handler{{Group: "external.metrics.k8s.io", Version: "v1beta1"}: http.HandlerFunc(serveQueued)}},
		User:    reconciletest.ServiceAccount("thermostat", account),
		World:   &reconciletest.World{},
		Steps:   reconciletest.ApplyYAML(deployed+allowing(3), allowing(6)),
		Settled: sized,
		Always:  withinLimits,
		Mask:    forgetScaling,
		Budget:  time.Second,
	}
	if os.Getenv("THERMOSTAT_SOAK") != "" {
		sc.Steps = append(sc.Steps, sc.Steps[0])
		sc.Budget, sc.Seed = 3*time.Minute, uint64(time.Now().UnixNano())
	}
	reconciletest.Check(t, sc)
}

const deployed = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
---`

func allowing(most int) string {
	return fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: %d
  metrics:
  - {type: External, external: {metric: {name: queued}, target: {type: AverageValue, averageValue: "2"}}}
`, most)
}

func runAsLeader(ctx context.Context, cfg *rest.Config) error {
	elector, err := leaderelection.New(leaderelection.Config{REST: cfg, Namespace: "default",
		Name: "thermostat-autoscaler"})
	if err != nil {
		return err
	}
	cfg.Wrap(reconcile.TrackWrites)
	return newProgram(defaults()).Operate(ctx, cfg, elector, command.Options{Workers: 2, QPS: 500, Burst: 1000,
		MetricsAddress: "0"})
}

// serveQueued is external.metrics.k8s.io.
func serveQueued(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"items": []any{map[string]any{"metricName": "queued",
		"timestamp": time.Now().UTC().Format(time.RFC3339), "value": queued}}})
}

// forgetScaling leaves out when an HPA has scaled: one that was made anew under its name, and finds the right number of
// replicas, has not.
func forgetScaling(o *unstructured.Unstructured) {
	if o.GetKind() != "HorizontalPodAutoscaler" {
		return
	}
	unstructured.RemoveNestedField(o.Object, "status", "lastScaleTime")
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	conditions = slices.DeleteFunc(conditions, func(c any) bool {
		return c.(map[string]any)["type"] == string(autoscalingv2.ScaledToZero)
	})
	_ = unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions")
}

// webAndHPA returns the Deployment and its HPA; nil: it is not there.
func webAndHPA(s *reconciletest.Server) (d *appsv1.Deployment, h *autoscalingv2.HorizontalPodAutoscaler) {
	d, _ = reconciletest.Get[*appsv1.Deployment](s, "deployments.apps", "default", "web")
	h, _ = reconciletest.Get[*autoscalingv2.HorizontalPodAutoscaler](s, "horizontalpodautoscalers.autoscaling",
		"default", "web")
	return d, h
}

func sized(s *reconciletest.Server) error {
	d, h := webAndHPA(s)
	if d == nil || h == nil {
		return errors.New("the Deployment or the HPA is gone")
	}
	if want := min(4, h.Spec.MaxReplicas); *d.Spec.Replicas != want || h.Status.DesiredReplicas != want {
		return fmt.Errorf("%d replicas are wanted, the Deployment asks for %d, and the status of the HPA for %d", want,
			*d.Spec.Replicas, h.Status.DesiredReplicas)
	}
	return nil
}

// withinLimits is about each write: it never asks for more than the metric, nor for fewer pods than there are, since
// the metric never falls below 4 pods and no limit below 3.
func withinLimits(w reconciletest.Write, s *reconciletest.Server) error {
	d, _ := webAndHPA(s)
	if w.Resource.Resource != "deployments" || d == nil {
		return nil
	}
	if n := *d.Spec.Replicas; n < 3 || n > 4 {
		return fmt.Errorf("it scales to %d, and the metric and the limits ask for 3 or 4", n)
	}
	return nil
}
