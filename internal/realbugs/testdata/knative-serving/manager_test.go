// Package check runs each controller of Knative Serving by itself, with the clients, the informers and the watcher of
// ConfigMaps of its main: injection gives all that are linked to each. Leader election, metrics, profiles and probes
// are left out.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	configmap "knative.dev/pkg/configmap/informer"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/logging"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const system = "knative-serving"

func TestMain(m *testing.M) {
	if err := os.Setenv("SYSTEM_NAMESPACE", system); err != nil {
		panic(err)
	}
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute. configured has what the
// ConfigMaps of Knative say that are not empty, as lines of YAML.
func check(t *testing.T, c injection.ControllerConstructor, s reconciletest.Scenario, configured map[string]string) {
	t.Helper()
	s.Run = program(c)
	s.Server.Kinds, s.Server.Rules, s.Server.Namespaces = builtin.Kinds(), cel.Rules{}, []string{"default", system}
	s.Server.Resources = append(defined(), others...)
	s.Server.Manifests = []string{configMaps(t, configured)}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// defined are the custom resources of Knative Serving.
var defined = sync.OnceValue(func() (all []reconciletest.Resource) {
	files, err := filepath.Glob("crd/*.yaml")
	for _, file := range files {
		data, err2 := os.ReadFile(file)
		some, err3 := reconciletest.ReadCRDs(data)
		err, all = errors.Join(err, err2, err3), append(all, some...)
	}
	if err != nil {
		panic(err)
	}
	return all
})

var (
	configurations = of("serving.knative.dev", "v1", "configurations")
	revisions      = of("serving.knative.dev", "v1", "revisions")
	routes         = of("serving.knative.dev", "v1", "routes")
	autoscalers    = of("autoscaling.internal.knative.dev", "v1alpha1", "podautoscalers")
	issued         = of("cert-manager.io", "v1", "certificates")
)

func of(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// others are custom resources of other modules, which keep what they do not know in their definitions.
var others = []reconciletest.Resource{
	{Kind: "Image", GroupVersionResource: of("caching.internal.knative.dev", "v1alpha1", "images"), Status: true},
	{Kind: "Ingress", GroupVersionResource: of("networking.internal.knative.dev", "v1alpha1", "ingresses"),
		Status: true},
	{Kind: "Certificate", GroupVersionResource: of("networking.internal.knative.dev", "v1alpha1", "certificates"),
		Status: true},
	{Kind: "ServerlessService", Status: true,
		GroupVersionResource: of("networking.internal.knative.dev", "v1alpha1", "serverlessservices")},
	{Kind: "ClusterDomainClaim", ClusterScoped: true,
		GroupVersionResource: of("networking.internal.knative.dev", "v1alpha1", "clusterdomainclaims")},
	{Kind: "Certificate", GroupVersionResource: issued, Status: true},
	{Kind: "CertificateRequest", GroupVersionResource: of("cert-manager.io", "v1", "certificaterequests"),
		Status: true},
	{Kind: "ClusterIssuer", GroupVersionResource: of("cert-manager.io", "v1", "clusterissuers"), Status: true,
		ClusterScoped: true},
	{Kind: "Issuer", GroupVersionResource: of("cert-manager.io", "v1", "issuers"), Status: true},
	{Kind: "Challenge", GroupVersionResource: of("acme.cert-manager.io", "v1", "challenges"), Status: true},
}

// configMaps writes the ConfigMaps that the controllers read to a file.
func configMaps(t *testing.T, configured map[string]string) string {
	t.Helper()
	var text string
	for _, name := range []string{"autoscaler", "certmanager", "defaults", "deployment", "domain", "features", "gc",
		"leader-election", "logging", "network", "observability"} {
		text += fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config-%s, namespace: %s}\n", name,
			system)
		if data := configured[name]; data != "" {
			text += "data:\n" + data
		}
		text += "---\n"
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// program is main with one controller.
func program(c injection.ControllerConstructor) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		cfg = rest.CopyConfig(cfg)
		cfg.QPS, cfg.Burst = rest.DefaultQPS, rest.DefaultBurst
		ctx = logging.WithLogger(injection.WithConfig(ctx, cfg), zap.NewNop().Sugar())
		ctx, informers := injection.Default.SetupInformers(ctx, cfg)
		watcher := configmap.NewInformedWatcher(kubeclient.Get(ctx), system)
		impl := c(ctx, watcher)
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
}

// reports stands in for another controller: the status of each object of a resource that it has not seen in this
// generation gets the conditions, which are true, and what is in fields.
func reports(resource schema.GroupVersionResource, fields map[string]any, conditions ...string) func(context.Context,
	*rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
		report := func(o any) {
			u := o.(*unstructured.Unstructured)
			seen, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
			if seen == u.GetGeneration() {
				return
			}
			status := map[string]any{"observedGeneration": u.GetGeneration()}
			for k, v := range fields {
				status[k] = v
			}
			var all []any
			for _, c := range conditions {
				all = append(all, map[string]any{"type": c, "status": "True"})
			}
			status["conditions"] = all
			patch, err := json.Marshal(map[string]any{"status": status})
			if err != nil {
				panic(err)
			}
			// The next resync tries it again.
			_, _ = client.Resource(resource).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType,
				patch, metav1.PatchOptions{}, "status")
		}
		if _, err := factory.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: report, UpdateFunc: func(_, o any) { report(o) }}); err != nil {
			return err
		}
		factory.Start(ctx.Done())
		<-ctx.Done()
		factory.Shutdown()
		return nil
	}
}
