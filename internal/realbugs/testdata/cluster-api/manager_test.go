// Package check runs each controller of Cluster API by itself, as its main does: options of the manager, indexes,
// defaults of flags and feature gates are those of core/main.go. The workload cluster is the management cluster itself.
package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/yaml"

	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/util/test/builder"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// program is what one or more controllers are set up with.
type program struct {
	mgr      ctrl.Manager
	workload clustercache.ClusterCache
	secrets  ctrlcache.Cache // of their metadata
}

// adds sets a controller up, as main does.
type adds func(ctx context.Context, p program, o controller.Options) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, c adds, s reconciletest.Scenario) {
	t.Helper()
	s.Run = manager(c)
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd", providers(t)}, cel.Rules{}, builtin.Kinds()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// providers writes the definitions of the generic providers of Cluster API's own tests to a file.
func providers(t *testing.T) string {
	t.Helper()
	var all []byte
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{
		builder.GenericBootstrapConfigCRD, builder.GenericBootstrapConfigTemplateCRD,
		builder.GenericControlPlaneCRD, builder.GenericControlPlaneTemplateCRD,
		builder.GenericInfrastructureMachineCRD, builder.GenericInfrastructureMachineTemplateCRD,
		builder.GenericInfrastructureMachinePoolCRD, builder.GenericInfrastructureClusterCRD,
		builder.GenericInfrastructureClusterTemplateCRD,
	} {
		crd = crd.DeepCopy()
		crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		text, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, "---\n"...), text...)
	}
	file := filepath.Join(t.TempDir(), "providers.yaml")
	if err := os.WriteFile(file, all, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// topology switches ClusterClasses on, as --feature-gates=ClusterTopology=true does.
func topology(t *testing.T) {
	t.Helper()
	if err := feature.MutableGates.Set("ClusterTopology=true"); err != nil {
		t.Fatal(err)
	}
}

const syncPeriod = 10 * time.Minute

// scheme has the kinds of main.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		storagev1.AddToScheme, clusterv1.AddToScheme, addonsv1.AddToScheme, runtimev1.AddToScheme,
		ipamv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// caches are the options of main for its cache. They can be made once in a process.
var caches = setup.ManagerCacheOptions(scheme, "cluster-api-controller-manager", "", syncPeriod)

// manager is main with some of its controllers, without leader election, webhooks, migration of definitions and HTTP.
func manager(controllers ...adds) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		again := true
		cfg = rest.CopyConfig(cfg)
		cfg.QPS, cfg.Burst = 100, 200
		priority := feature.Gates.Enabled(feature.PriorityQueue)
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme,
			Controller: config.Controller{SkipNameValidation: &again, UsePriorityQueue: &priority,
				CacheSyncTimeout: 5 * time.Minute},
			Metrics: metricsserver.Options{BindAddress: "0"},
			Cache:   caches,
			Client:  setup.ManagerClientOptions()})
		if err != nil {
			return err
		}
		if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
			return err
		}
		p := program{mgr: mgr}
		if p.workload, err = newWorkload(ctx, mgr); err != nil {
			return err
		}
		period := syncPeriod
		p.secrets, err = ctrlcache.New(mgr.GetConfig(), ctrlcache.Options{Scheme: scheme, Mapper: mgr.GetRESTMapper(),
			HTTPClient: mgr.GetHTTPClient(), SyncPeriod: &period,
			DefaultTransform: ctrlcache.TransformStripManagedFields()})
		if err != nil {
			return err
		}
		if err := mgr.Add(p.secrets); err != nil {
			return err
		}
		for _, c := range controllers {
			if err := c(ctx, p, controller.Options{MaxConcurrentReconciles: 10}); err != nil {
				return err
			}
		}
		return mgr.Start(ctx)
	}
}

// workload is the ClusterCache of a management cluster that manages itself: it is always connected.
type workload struct {
	client  client.Client
	cache   ctrlcache.Cache
	cfg     *rest.Config
	mu      sync.Mutex
	watched map[string]bool // by names; guarded by mu
}

func newWorkload(ctx context.Context, mgr ctrl.Manager) (*workload, error) {
	nodes := clustercache.NodeProviderIDIndex
	if err := mgr.GetFieldIndexer().IndexField(ctx, nodes.Object, nodes.Field, nodes.ExtractValue); err != nil {
		return nil, err
	}
	c, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(),
		Mapper: mgr.GetRESTMapper(), Cache: &client.CacheOptions{Reader: mgr.GetCache(),
			DisableFor: setup.ClusterCacheClientOptions("", 0, 0).Cache.DisableFor}})
	return &workload{client: c, cache: mgr.GetCache(), cfg: mgr.GetConfig(), watched: map[string]bool{}}, err
}

func (w *workload) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return w.client, nil
}

func (w *workload) GetReader(context.Context, client.ObjectKey) (client.Reader, error) {
	return w.client, nil
}

func (w *workload) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return w.client, nil
}

func (w *workload) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return w.cfg, nil
}

func (w *workload) Watch(_ context.Context, cluster client.ObjectKey, watcher clustercache.Watcher) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := cluster.String() + " " + watcher.Name()
	if w.watched[name] {
		return nil
	}
	w.watched[name] = true
	return watcher.Watch(w.cache)
}

func (w *workload) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{LastProbeTime: time.Now(), LastProbeSuccessTime: time.Now()}
}

func (w *workload) GetClusterSource(_ string, of func(context.Context, client.Object) []ctrl.Request,
	_ ...clustercache.GetClusterSourceOption) source.Source {
	return source.Kind[client.Object](w.cache, &clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(of))
}

// want returns an error unless something is as it should be.
func want(what string, is, should any) error {
	if fmt.Sprint(is) == fmt.Sprint(should) {
		return nil
	}
	return fmt.Errorf("%s: %v, want %v", what, is, should)
}

// there returns an object, or an error if there is none.
func there[T reconciletest.Object](s *reconciletest.Server, resource, name string) (T, error) {
	o, ok := reconciletest.Get[T](s, resource, "default", name)
	if !ok {
		return o, fmt.Errorf("%s %s is not there", resource, name)
	}
	return o, nil
}
