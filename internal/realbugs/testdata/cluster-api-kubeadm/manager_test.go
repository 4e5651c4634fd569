// Package check runs the controller of KubeadmConfigs of Cluster API, as the main of its bootstrap provider does: the
// options of the manager and the defaults of flags and feature gates are those. The workload cluster is the management
// cluster itself. The migration of definitions, webhooks, leader election and HTTP are left out.
package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	"sigs.k8s.io/cluster-api/feature"
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

func run(ctx context.Context, cfg *rest.Config) error {
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
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return err
	}
	err = (&kubeadmconfig.Reconciler{Client: mgr.GetClient(), SecretCachingClient: secrets,
		APIReader: mgr.GetAPIReader(), ClusterCache: workload{client: mgr.GetClient(), cache: mgr.GetCache()},
		TokenTTL: kubeadmconfig.DefaultTokenTTL,
	}).SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
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
