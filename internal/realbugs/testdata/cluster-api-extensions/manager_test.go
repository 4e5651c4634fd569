// Package check runs the controller of ExtensionConfigs of Cluster API as its main does: the options of the manager and
// the defaults of flags and feature gates are those. What is discovered is said by the test. Webhooks, leader election
// and HTTP are left out.
package check

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/extensionconfig"
	runtimeclient "sigs.k8s.io/cluster-api/exp/runtime/client"
	"sigs.k8s.io/cluster-api/feature"
	internalruntimeclient "sigs.k8s.io/cluster-api/internal/runtime/client"
	runtimeregistry "sigs.k8s.io/cluster-api/internal/runtime/registry"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	scheme, catalog := runtime.NewScheme(), runtimecatalog.New()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme),
		runtimev1.AddToScheme(scheme), runtimehooksv1.AddToCatalog(catalog)); err != nil {
		return err
	}
	again, priority, period := true, feature.Gates.Enabled(feature.PriorityQueue), 10*time.Minute
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 100, 200
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Controller: config.Controller{SkipNameValidation: &again, UsePriorityQueue: &priority,
			CacheSyncTimeout: 5 * time.Minute},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache:                  cache.Options{SyncPeriod: &period},
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true,
			DisableFor: []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}}}},
	})
	if err != nil {
		return err
	}
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		HTTPClient: mgr.GetHTTPClient(), SyncPeriod: &period, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return err
	}
	if err := mgr.Add(secrets); err != nil {
		return err
	}
	calls, _, err := internalruntimeclient.New(ctx, internalruntimeclient.Options{Catalog: catalog,
		Registry: runtimeregistry.New(), Client: mgr.GetClient()})
	if err != nil {
		return err
	}
	if err := (&extensionconfig.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
		RuntimeClient: discovers{calls}, PartialSecretCache: secrets}).SetupWithManager(ctx, mgr,
		controller.Options{MaxConcurrentReconciles: 10}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// discovers is Cluster API's client of extensions, but for the request that asks one for its handlers: that goes over
// a transport of its own. Each extension has a handler before a cluster is made; one with a setting has another one.
type discovers struct{ runtimeclient.Client }

func (discovers) Discover(_ context.Context, c *runtimev1.ExtensionConfig) (*runtimev1.ExtensionConfig, error) {
	if len(c.Spec.ClientConfig.CABundle) == 0 {
		return nil, errors.New("certificate signed by unknown authority")
	}
	c = c.DeepCopy()
	c.Status.Handlers = []runtimev1.ExtensionHandler{handler("before-create", "BeforeClusterCreate", c)}
	if c.Spec.Settings["deletes"] != "" {
		c.Status.Handlers = append(c.Status.Handlers, handler("before-delete", "BeforeClusterDelete", c))
	}
	return c, nil
}

// handler is one of an extension.
func handler(name, hook string, of *runtimev1.ExtensionConfig) runtimev1.ExtensionHandler {
	return runtimev1.ExtensionHandler{Name: name + "." + of.Name, TimeoutSeconds: 10,
		RequestHook:   runtimev1.GroupVersionHook{APIVersion: runtimehooksv1.GroupVersion.String(), Hook: hook},
		FailurePolicy: runtimev1.FailurePolicyFail}
}
