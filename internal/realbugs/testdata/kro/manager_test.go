// Package check runs the controllers of kro as its main does, with the defaults of its flags. They share what they have
// compiled in memory, so that all of them run, and each scenario is about one.
package check

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	internalv1alpha1 "github.com/kubernetes-sigs/kro/api/internal.kro.run/v1alpha1"
	krov1alpha1 "github.com/kubernetes-sigs/kro/api/v1alpha1"
	kroclient "github.com/kubernetes-sigs/kro/pkg/client"
	"github.com/kubernetes-sigs/kro/pkg/controller/graphrevision"
	"github.com/kubernetes-sigs/kro/pkg/controller/resourcegraphdefinition"
	"github.com/kubernetes-sigs/kro/pkg/dynamiccontroller"
	"github.com/kubernetes-sigs/kro/pkg/graph"
	"github.com/kubernetes-sigs/kro/pkg/graph/revisions"
	"github.com/kubernetes-sigs/kro/pkg/metadata"
	"github.com/kubernetes-sigs/kro/pkg/testutil/k8s"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// check runs Check. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, s reconciletest.Scenario) {
	t.Helper()
	s.Run = run
	s.Server.CRDs = append(s.Server.CRDs, "crd")
	s.Server.Rules, s.Server.Kinds = cel.Rules{}, builtin.Kinds()
	s.Mask = uncounted
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// uncounted removes the number of the graphs that a definition has had, and with them the graphs: how many there were
// depends on what kro has seen.
func uncounted(o *unstructured.Unstructured) {
	switch o.GetKind() {
	case "GraphRevision":
		o.Object = nil
	case "ResourceGraphDefinition":
		unstructured.RemoveNestedField(o.Object, "status", "lastIssuedRevision")
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == resourcegraphdefinition.GraphRevisionsResolved {
				delete(c, "message")
			}
		}
		if len(conditions) > 0 {
			o.Object["status"].(map[string]any)["conditions"] = conditions
		}
	}
}

// scheme has the kinds of main.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, internalv1alpha1.AddToScheme,
		krov1alpha1.AddToScheme, extv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// graphs are the defaults of main's flags.
var graphs = graph.RGDConfig{MaxCollectionSize: 1000, MaxCollectionDimensionSize: 10}

// documented are the schemas of Kubernetes' own kinds, by kro's own tests. A real server has them in its OpenAPI
// documents; those of the server in memory say nothing about fields.
func documented() graph.BuilderOption {
	schemas, _ := k8s.NewFakeResolver()
	return graph.WithSchemaResolver(schemas)
}

// run is main without leader election, metrics and HTTP.
func run(ctx context.Context, cfg *rest.Config) error {
	again, graceful := true, time.Minute
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeJSON // the server in memory reads no definitions in protobuf
	set, err := kroclient.NewSet(kroclient.Config{RestConfig: cfg, QPS: 100, Burst: 150})
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(set.RESTConfig(), ctrl.Options{Scheme: scheme,
		Client:                  client.Options{HTTPClient: set.HTTPClient()},
		GracefulShutdownTimeout: &graceful,
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		Controller:              config.Controller{SkipNameValidation: &again}})
	if err != nil {
		return err
	}
	dynamic := dynamiccontroller.NewDynamicController(logr.Discard(), dynamiccontroller.Config{Workers: 1,
		ResyncPeriod: 36000 * time.Second, QueueMaxRetries: 20, MinRetryDelay: 200 * time.Millisecond,
		MaxRetryDelay: 1000 * time.Second, RateLimit: 10, BurstLimit: 100}, set.Metadata(), set.RESTMapper())
	builder, err := graph.NewBuilder(set.RESTConfig(), set.HTTPClient(), documented())
	if err != nil {
		return err
	}
	registry := revisions.NewRegistry()
	definitions := resourcegraphdefinition.NewResourceGraphDefinitionReconciler(set, dynamic, builder, registry,
		resourcegraphdefinition.Config{InstanceRequeueInterval: 3 * time.Second,
			ProgressRequeueDelay: 3 * time.Second, MaxConcurrentReconciles: 1, MaxGraphRevisions: 5, RGDConfig: graphs})
	if err := definitions.SetupWithManager(mgr); err != nil {
		return err
	}
	if err := graphrevision.NewGraphRevisionReconciler(builder, registry, 1, graphs).
		SetupWithManager(mgr); err != nil {
		return err
	}
	if err := mgr.Add(dynamic); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// installed writes the CustomResourceDefinition that kro makes of a graph to a file, as it is left of an earlier
// installation: kro does not delete it. A step could not apply an instance before it is there, and its program is down
// when it has to be up for that.
func installed(t *testing.T, definition string) string {
	t.Helper()
	var of krov1alpha1.ResourceGraphDefinition
	if err := yaml.Unmarshal([]byte(definition), &of); err != nil {
		t.Fatal(err)
	}
	of.UID = "earlier"
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	builder, err := graph.NewBuilder(nil, nil, graph.WithRESTMapper(mapper), documented())
	if err != nil {
		t.Fatal(err)
	}
	made, err := builder.NewResourceGraphDefinition(&of, graphs)
	if err != nil {
		t.Fatal(err)
	}
	labels, err := metadata.NewKROMetaLabeler().Merge(metadata.NewResourceGraphDefinitionLabeler(&of))
	if err != nil {
		t.Fatal(err)
	}
	labels.ApplyLabels(&made.CRD.ObjectMeta)
	made.CRD.SetGroupVersionKind(extv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	text, err := yaml.Marshal(made.CRD)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "installed.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
