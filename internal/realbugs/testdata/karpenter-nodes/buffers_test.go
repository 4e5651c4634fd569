package check

import (
	"errors"
	"fmt"
	"testing"

	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// templateOf is a PodTemplate.
func templateOf(name, version string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PodTemplate
metadata: {name: %[1]s, namespace: default}
template:
  metadata: {labels: {app: %[1]s}}
  spec: {containers: [{name: %[1]s, image: "registry.example.com/%[1]s:%[2]s"}]}
---
`, name, version)
}

// deploymentOf is a Deployment.
func deploymentOf(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: %[1]s, image: "registry.example.com/%[1]s:1"}]}
---
`, name, replicas)
}

// TestCapacityBuffer: one buffer is for a number of pods like a template, and another one for a part of a Deployment.
// The Deployment grows, the template changes, and a third buffer goes.
func TestCapacityBuffer(t *testing.T) {
	const resource = "capacitybuffers.autoscaling.x-k8s.io"
	of := func(name, spec string) string {
		return fmt.Sprintf(`
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: %s, namespace: default}
spec: {%s}
---
`, name, spec)
	}
	const like, part = "podTemplateRef: {name: web}, replicas: ", "scalableRef: {apiGroup: apps, kind: Deployment, " +
		"name: db}, percentage: "
	check(t, buffers, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(templateOf("web", "1")+deploymentOf("db", 4)+of("fixed", like+"3")+
			of("share", part+"50")+of("old", like+"1"), deploymentOf("db", 10),
			templateOf("web", "2")+of("fixed", like+"5")), reconciletest.Delete(resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for _, name := range []string{"fixed", "share"} { // five pods each
				b, err := there[*autoscalingv1beta1.CapacityBuffer](s, resource, "default", name)
				if err != nil {
					return err
				}
				if b.Status.Replicas == nil {
					return fmt.Errorf("it is not said how many pods %s stands for", name)
				}
				errs = append(errs, want("pods of "+name, *b.Status.Replicas, 5))
			}
			return errors.Join(append(errs,
				gone[*autoscalingv1beta1.CapacityBuffer](s, resource, "default", "old"))...)
		},
	})
}
