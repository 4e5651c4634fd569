package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestCheck disturbs the program at each of its requests, while the annotation changes to what is no number, and back.
func TestCheck(t *testing.T) {
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	sc := reconciletest.Scenario{
		Run:   run,
		Steps: reconciletest.ApplyYAML(wants("3"), wants("lots"), wants("3")),
		Settled: func(s *reconciletest.Server) error {
			d, ok := reconciletest.Get[*appsv1.Deployment](s, "deployments.apps", "default", "web")
			if !ok || *d.Spec.Replicas != 3 {
				return fmt.Errorf("the Deployment is %+v", d)
			}
			return nil
		},
		Budget: time.Second,
	}
	if os.Getenv("THERMOSTAT_SOAK") != "" {
		sc.Budget, sc.Seed = 3*time.Minute, uint64(time.Now().UnixNano())
	}
	reconciletest.Check(t, sc)
}

func wants(replicas string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {hello/replicas: %q}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
`, replicas)
}
