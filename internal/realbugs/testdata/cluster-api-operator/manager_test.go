// Package check runs controllers of Cluster API's operator as its main does, each by itself, with the defaults of its
// flags. What they install comes from ConfigMaps, as in a cluster without access to the internet.
package check

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	operatorv1 "sigs.k8s.io/cluster-api-operator/api/v1alpha2"
	providercontroller "sigs.k8s.io/cluster-api-operator/internal/controller"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// adds sets a controller up, as main does.
type adds func(ctx context.Context, mgr ctrl.Manager) error

// system is the namespace of the providers.
const system = "capi-system"

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, add adds, s reconciletest.Scenario) {
	t.Helper()
	s.Run = operator(add)
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd"}, cel.Rules{}, builtin.Kinds()
	s.Server.Namespaces = []string{"default", system}
	s.World = &reconciletest.World{}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// operator is main with one controller, without leader election, webhooks and HTTP.
func operator(add adds) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		scheme, again, period := runtime.NewScheme(), true, 10*time.Minute
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, operatorv1.AddToScheme,
			apiextensionsv1.AddToScheme, clusterctlv1.AddToScheme} {
			if err := add(scheme); err != nil {
				return err
			}
		}
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme,
			Cache: cache.Options{SyncPeriod: &period},
			Client: client.Options{Cache: &client.CacheOptions{
				DisableFor: []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}}}},
			Controller:             config.Controller{MaxConcurrentReconciles: 10, SkipNameValidation: &again},
			Metrics:                metricsserver.Options{BindAddress: "0"},
			HealthProbeBindAddress: "0"})
		if err != nil {
			return err
		}
		if err := add(ctx, mgr); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
}

// one is --concurrency.
var one = controller.Options{MaxConcurrentReconciles: 1}

func core(ctx context.Context, mgr ctrl.Manager) error {
	return (&providercontroller.GenericProviderReconciler{Provider: &operatorv1.CoreProvider{},
		ProviderList: &operatorv1.CoreProviderList{}, Client: mgr.GetClient(), Config: mgr.GetConfig()}).
		SetupWithManager(ctx, mgr, one)
}

func infrastructure(ctx context.Context, mgr ctrl.Manager) error {
	return (&providercontroller.GenericProviderReconciler{Provider: &operatorv1.InfrastructureProvider{},
		ProviderList: &operatorv1.InfrastructureProviderList{}, Client: mgr.GetClient(), Config: mgr.GetConfig(),
		WatchCoreProviderChanges: true}).SetupWithManager(ctx, mgr, one)
}

// installs is in place of the controllers of Cluster API itself: that is ready as soon as somebody asks for it.
func installs(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	providers := operatorv1.GroupVersion.WithResource("coreproviders")
	install := func(o any) {
		u := o.(*unstructured.Unstructured)
		_, done, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
		if done || u.GetDeletionTimestamp() != nil {
			return
		}
		// What fails is tried again at the next resync.
		_, _ = client.Resource(providers).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Available",`+
				`"message":"","lastTransitionTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339)),
			metav1.PatchOptions{}, "status")
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
	if _, err := factory.ForResource(providers).Informer().AddEventHandler(clientcache.ResourceEventHandlerFuncs{
		AddFunc: install, UpdateFunc: func(_, o any) { install(o) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
