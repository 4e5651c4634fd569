// Package check runs the controller of EventListeners of Tekton Triggers, with the clients, the informers and the
// watcher of ConfigMaps of its main: injection gives all that are linked. The controllers of interceptors, leader
// election, metrics, profiles and probes are left out.
package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"knative.dev/pkg/apis"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	filteredinformerfactory "knative.dev/pkg/client/injection/kube/informers/factory/filtered"
	configmap "knative.dev/pkg/configmap/informer"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/logging"

	"github.com/tektoncd/triggers/pkg/apis/triggers/v1beta1"
	"github.com/tektoncd/triggers/pkg/reconciler/eventlistener"
	"github.com/tektoncd/triggers/pkg/reconciler/eventlistener/resources"
	"github.com/tektoncd/triggers/pkg/reconciler/metrics"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// system is the namespace of the controller.
const system = "tekton-pipelines"

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"SYSTEM_NAMESPACE": system, "METRICS_DOMAIN": "tekton.dev/triggers",
		"METRICS_PROMETHEUS_PORT": "9000"} { // as in the manifest of the controller
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetLogger(logr.Discard())
	// The views of metrics belong to the process, and to no run.
	if _, err := metrics.NewRecorder(context.Background()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// run is main with one controller.
func run(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = rest.DefaultQPS, rest.DefaultBurst
	c := resources.MakeConfig()
	ctx = injection.WithNamespaceScope(ctx, corev1.NamespaceAll)
	ctx = filteredinformerfactory.WithSelectors(ctx, labels.FormatLabels(resources.DefaultStaticResourceLabels))
	ctx = logging.WithLogger(injection.WithConfig(ctx, cfg), zap.NewNop().Sugar())
	ctx, informers := injection.Default.SetupInformers(ctx, cfg)
	watcher := configmap.NewInformedWatcher(kubeclient.Get(ctx), system)
	impl := eventlistener.NewController(*c)(ctx, watcher)
	if err := watcher.Start(ctx.Done()); err != nil {
		return err
	}
	wait, err := controller.RunInformers(ctx.Done(), informers...)
	if err == nil {
		err = controller.StartAll(ctx, impl)
	}
	wait()
	return err
}

// configMaps writes the ConfigMaps that the controller reads to a file.
func configMaps(t *testing.T) string {
	t.Helper()
	var text string
	for _, name := range []string{"config-defaults-triggers", "feature-flags-triggers", "config-logging",
		"config-observability", "config-tracing", "config-leader-election-triggers-controllers"} {
		text += fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\n---\n", name, system)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestEventListener: each listener has a Deployment and a Service. One gets more pods, and then another port; another
// one goes. Nothing is switched off; no schedule begins after a minute.
func TestEventListener(t *testing.T) {
	const resource = "eventlisteners"
	listener := func(name string, replicas, port int) string {
		return fmt.Sprintf(`
apiVersion: triggers.tekton.dev/v1beta1
kind: EventListener
metadata: {name: %s, namespace: default, labels: {team: shop}}
spec:
  serviceAccountName: triggers
  triggers: [{triggerRef: push}]
  resources:
    kubernetesResource:
      replicas: %d
      servicePort: %d
---
`, name, replicas, port)
	}
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Namespaces: []string{"default", system}, Manifests: []string{configMaps(t)}},
		World: &reconciletest.World{},
		Limit: time.Minute,
		Steps: append(reconciletest.ApplyYAML(listener("web", 1, 8080)+listener("old", 1, 8080),
			listener("web", 2, 8080)+listener("chat", 1, 8081)),
			reconciletest.Delete(resource, "default", "old"), reconciletest.ApplyYAML(listener("web", 2, 9090))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*v1beta1.EventListener](s, resource, "default", "old"),
				gone[*appsv1.Deployment](s, "deployments", "default", "el-old"),
				gone[*corev1.Service](s, "services", "default", "el-old")}
			for name, wants := range map[string]struct{ pods, port int32 }{"web": {2, 9090}, "chat": {1, 8081}} {
				l, err := there[*v1beta1.EventListener](s, resource, "default", name)
				if err != nil {
					return err
				}
				d, err := there[*appsv1.Deployment](s, "deployments", "default", "el-"+name)
				if err != nil {
					return err
				}
				service, err := there[*corev1.Service](s, "services", "default", "el-"+name)
				if err != nil {
					return err
				}
				ready := l.Status.GetCondition(apis.ConditionReady)
				errs = append(errs, want(name+" is ready", ready != nil && ready.IsTrue(), true),
					want("pods of "+name, d.Status.ReadyReplicas, wants.pods),
					want("port of "+name, service.Spec.Ports[0].Port, wants.port))
			}
			return errors.Join(errs...)
		},
	})
}
