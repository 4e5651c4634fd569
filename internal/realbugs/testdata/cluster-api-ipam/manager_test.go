// Package check runs the two controllers of pools of Cluster API's provider in-cluster for IPAM, each by itself, as its
// main does, without the older version of their API. Webhooks, leader election and HTTP are left out.
package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"
	"sigs.k8s.io/cluster-api-ipam-provider-in-cluster/internal/controllers"
	"sigs.k8s.io/cluster-api-ipam-provider-in-cluster/internal/index"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	ipamv1 "sigs.k8s.io/cluster-api/exp/ipam/api/v1beta1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// adds adds a controller to a manager.
type adds func(ctx context.Context, mgr ctrl.Manager) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, add adds, s reconciletest.Scenario) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, add) }
	s.Server = reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
		Namespaces: []string{"default", "other"}}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

func run(ctx context.Context, cfg *rest.Config, add adds) error {
	scheme := runtime.NewScheme()
	for _, to := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, ipamv1.AddToScheme,
		clusterv1.AddToScheme, v1alpha2.AddToScheme} {
		if err := to(scheme); err != nil {
			return err
		}
	}
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	if err := index.SetupIndexes(ctx, mgr); err != nil {
		return err
	}
	if err := add(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func pools(ctx context.Context, mgr ctrl.Manager) error {
	return (&controllers.InClusterIPPoolReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}).
		SetupWithManager(ctx, mgr)
}

func globalPools(ctx context.Context, mgr ctrl.Manager) error {
	return (&controllers.GlobalInClusterIPPoolReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}).
		SetupWithManager(ctx, mgr)
}
