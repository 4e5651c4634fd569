// Package check runs each controller of the bootstrap provider kubeadm of Cluster API by itself, as its main does: the
// options of the manager and the defaults of flags and feature gates are those. The workload cluster is the management
// cluster itself. Webhooks, leader election and HTTP are left out.
package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/reconcilers/kubeadmconfig"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/crdmigrator"
	"sigs.k8s.io/cluster-api/feature"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// scheme has the kinds of main.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		clusterv1.AddToScheme, bootstrapv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// caches are the options of main for its cache. They can be made once in a process.
var caches = setup.ManagerCacheOptions(scheme, "cluster-api-kubeadm-bootstrap-manager", "", 10*time.Minute)

// adds sets a controller up, as main does.
type adds func(ctx context.Context, mgr ctrl.Manager) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, add adds, s reconciletest.Scenario) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, add) }
	s.Server = reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
		Namespaces: []string{"default", metav1.NamespaceSystem}}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

func run(ctx context.Context, cfg *rest.Config, add adds) error {
	again, priority := true, feature.Gates.Enabled(feature.PriorityQueue)
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 100, 200
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Controller: config.Controller{SkipNameValidation: &again, UsePriorityQueue: &priority,
			CacheSyncTimeout: 5 * time.Minute},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache:                  caches,
		Client:                 setup.ManagerClientOptions(),
	})
	if err != nil {
		return err
	}
	if err := add(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// configurations makes the data with which machines join.
func configurations(ctx context.Context, mgr ctrl.Manager) error {
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return err
	}
	return (&kubeadmconfig.Reconciler{Client: mgr.GetClient(), SecretCachingClient: secrets,
		APIReader: mgr.GetAPIReader(), ClusterCache: workload{client: mgr.GetClient(), cache: mgr.GetCache()},
		TokenTTL: kubeadmconfig.DefaultTokenTTL,
	}).SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10})
}

// migrator stores what there is of the provider's kinds in the version of their definitions.
func migrator(ctx context.Context, mgr ctrl.Manager) error {
	return (&crdmigrator.CRDMigrator{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
		Config: map[client.Object]crdmigrator.ByObjectConfig{
			&bootstrapv1.KubeadmConfig{}:         {UseStatusForStorageVersionMigration: true},
			&bootstrapv1.KubeadmConfigTemplate{}: {},
		},
	}).SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 1})
}

// workload is as much as the controller needs of the ClusterCache of a cluster that manages itself: it is always
// connected.
type workload struct {
	clustercache.ClusterCache
	client client.Client
	cache  ctrlcache.Cache
}

func (w workload) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return w.client, nil
}

func (w workload) GetClusterSource(_ string, of func(context.Context, client.Object) []ctrl.Request,
	_ ...clustercache.GetClusterSourceOption) source.Source {
	return source.Kind[client.Object](w.cache, &clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(of))
}
