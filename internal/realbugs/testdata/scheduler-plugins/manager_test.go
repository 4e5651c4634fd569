// Package check runs the two controllers of scheduler-plugins, each by itself, with the manager of their main. Leader
// election and HTTP are left out. The scheduler is that of the world.
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

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/scheduler-plugins/pkg/controllers"

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
type adds func(mgr ctrl.Manager) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, add adds, s reconciletest.Scenario) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, add) }
	s.Server = reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
		Namespaces: []string{"default", "other"}}
	s.World = &reconciletest.World{Takes: func(reconciletest.Object) time.Duration { return 5 * time.Second }}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

func run(ctx context.Context, cfg *rest.Config, add adds) error {
	scheme := runtime.NewScheme()
	for _, to := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, schedulingv1alpha1.AddToScheme} {
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
	if err := add(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func podGroups(mgr ctrl.Manager) error {
	return (&controllers.PodGroupReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Workers: 1}).
		SetupWithManager(mgr)
}

func elasticQuotas(mgr ctrl.Manager) error {
	return (&controllers.ElasticQuotaReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Workers: 1}).
		SetupWithManager(mgr)
}
