// Package check runs the controllers of KubeRay's operator as its main does, each by itself, with the defaults of its
// flags: no batch scheduler, one worker. Jobs and services have the controller of clusters beside them.
package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	routev1 "github.com/openshift/api/route/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configapi "github.com/ray-project/kuberay/ray-operator/apis/config/v1alpha1"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/batchscheduler"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"

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
type adds func(ctx context.Context, mgr ctrl.Manager, schedulers *batchscheduler.SchedulerManager) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, add adds, s reconciletest.Scenario) {
	t.Helper()
	s.Run = operator(add)
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd"}, cel.Rules{}, builtin.Kinds()
	s.World = &reconciletest.World{}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// operator is main with one controller, without leader election, webhooks, metrics and HTTP.
func operator(add adds) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		scheme, again := runtime.NewScheme(), true
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, rayv1.AddToScheme,
			routev1.Install, configapi.AddToScheme} {
			if err := add(scheme); err != nil {
				return err
			}
		}
		cfg = rest.CopyConfig(cfg)
		cfg.QPS, cfg.Burst = float32(configapi.DefaultQPS), configapi.DefaultBurst
		own := labels.SelectorFromSet(labels.Set{utils.KubernetesCreatedByLabelKey: utils.ComponentName})
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme,
			Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{},
				ByObject: map[client.Object]cache.ByObject{&batchv1.Job{}: {Label: own}}},
			Metrics:                metricsserver.Options{BindAddress: "0"},
			HealthProbeBindAddress: "0",
			Controller:             config.Controller{SkipNameValidation: &again}})
		if err != nil {
			return err
		}
		schedulers, err := batchscheduler.NewSchedulerManager(ctx, configapi.Configuration{}, cfg, mgr.GetClient())
		if err != nil {
			return err
		}
		schedulers.AddToScheme(mgr.GetScheme())
		if err := add(ctx, mgr, schedulers); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
}

func clusters(ctx context.Context, mgr ctrl.Manager, schedulers *batchscheduler.SchedulerManager) error {
	return ray.NewReconciler(ctx, mgr, ray.RayClusterReconcilerOptions{BatchSchedulerManager: schedulers}).
		SetupWithManager(mgr, configapi.DefaultReconcileConcurrency)
}

func jobs(ctx context.Context, mgr ctrl.Manager, schedulers *batchscheduler.SchedulerManager) error {
	return ray.NewRayJobReconciler(ctx, mgr, ray.RayJobReconcilerOptions{BatchSchedulerManager: schedulers},
		dashboards{}).SetupWithManager(mgr, configapi.DefaultReconcileConcurrency)
}

func services(ctx context.Context, mgr ctrl.Manager, _ *batchscheduler.SchedulerManager) error {
	return ray.NewRayServiceReconciler(ctx, mgr, dashboards{}).
		SetupWithManager(mgr, configapi.DefaultReconcileConcurrency)
}
