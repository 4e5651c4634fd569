package check

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubeflow/spark-operator/v2/api/v1alpha1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// TestSparkConnect: each server has a pod, a service, and the template of its executors, which changes for one. Another
// one goes, and a third one comes. The address of a pod is the cluster's. Nothing is switched off; no schedule begins
// after a minute.
func TestSparkConnect(t *testing.T) {
	of := func(name, team string) string {
		return fmt.Sprintf(`
apiVersion: sparkoperator.k8s.io/v1alpha1
kind: SparkConnect
metadata: {name: %s, namespace: default}
spec:
  sparkVersion: 4.0.0
  image: spark:4.0.0
  server:
    template:
      metadata: {labels: {team: data}}
      spec:
        containers: [{name: spark-kubernetes-driver, image: "spark:4.0.0"}]
        serviceAccountName: spark
  executor:
    instances: 2
    cores: 1
    memory: 512m
    template:
      metadata: {labels: {team: %s}}
      spec:
        containers: [{name: spark-kubernetes-executor, image: "spark:4.0.0"}]
---
`, name, team)
	}
	const account = "\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: spark, namespace: default}\n---\n"
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd/sparkoperator.k8s.io_sparkconnects.yaml"}, Rules: cel.Rules{},
			Kinds: builtin.Kinds(), Namespaces: []string{"default"}},
		World: &reconciletest.World{Takes: func(reconciletest.Object) time.Duration { return 3 * time.Second }},
		Limit: time.Minute,
		Mask: func(o *unstructured.Unstructured) {
			if o.GetKind() == "SparkConnect" {
				unstructured.RemoveNestedField(o.Object, "status", "server", "podIp")
			}
		},
		Steps: append(reconciletest.ApplyYAML(account+of("notebook", "data")+of("old", "data"), of("notebook", "web")),
			reconciletest.Delete("sparkconnects", "default", "old"), reconciletest.ApplyYAML(of("batch", "night"))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*v1alpha1.SparkConnect](s, "sparkconnects", "default", "old"),
				gone[*corev1.Pod](s, "pods", "default", "old-server"),
				gone[*corev1.Service](s, "services", "default", "old-server"),
				gone[*corev1.ConfigMap](s, "configmaps", "default", "old-conf")}
			for name, team := range map[string]string{"notebook": "web", "batch": "night"} {
				errs = append(errs, served(s, name, team))
			}
			return errors.Join(errs...)
		},
	})
}

// served returns an error unless a server is ready and has all that it needs.
func served(s *reconciletest.Server, name, team string) error {
	c, err := there[*v1alpha1.SparkConnect](s, "sparkconnects", "default", name)
	if err != nil {
		return err
	}
	template, err := there[*corev1.ConfigMap](s, "configmaps", "default", name+"-conf")
	if err != nil {
		return err
	}
	service, err := there[*corev1.Service](s, "services", "default", name+"-server")
	if err != nil {
		return err
	}
	pod, err := there[*corev1.Pod](s, "pods", "default", name+"-server")
	if err != nil {
		return err
	}
	return errors.Join(want("state of "+name, c.Status.State, v1alpha1.SparkConnectStateReady),
		want("pod of "+name, c.Status.Server.PodName, pod.Name),
		want("service of "+name, c.Status.Server.ServiceName, service.Name),
		want("the executors of "+name+" are of "+team,
			strings.Contains(template.Data["executor-pod-template.yaml"], "team: "+team), true),
		want(name+" controls its pod", metav1.IsControlledBy(pod, c), true))
}
