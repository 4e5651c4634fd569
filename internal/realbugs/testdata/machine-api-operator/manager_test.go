// Package check runs the controllers of OpenShift's Machine API as their mains do, each by itself. The controller of
// machines is the library that each provider links with its actuator: here the actuator is that of a cloud outside.
package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apifeatures "github.com/openshift/api/features"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	"github.com/openshift/library-go/pkg/features"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// gates are those of main, with their defaults.
var gates = func() featuregate.MutableFeatureGate {
	all := featuregate.NewFeatureGate()
	options := features.NewFeatureGateOptionsOrDie(all, apifeatures.SelfManaged,
		apifeatures.FeatureGateMachineAPIMigration)
	if _, err := options.ApplyTo(all); err != nil {
		panic(err)
	}
	return all
}()

// adds sets a controller up, as main does.
type adds func(mgr ctrlmanager.Manager, o ctrlmanager.Options) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, c adds, s reconciletest.Scenario) {
	t.Helper()
	s.Run = manager(c)
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd"}, cel.Rules{}, builtin.Kinds()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// manager is main with its controller, without leader election, webhooks and HTTP.
func manager(c adds) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		again, resync := true, 10*time.Minute
		options := ctrlmanager.Options{
			Metrics:                metricsserver.Options{BindAddress: "0"},
			HealthProbeBindAddress: "0",
			Cache:                  ctrlcache.Options{SyncPeriod: &resync},
			Controller:             config.Controller{SkipNameValidation: &again}}
		mgr, err := ctrlmanager.New(cfg, options)
		if err != nil {
			return err
		}
		if err := machinev1.Install(mgr.GetScheme()); err != nil {
			return err
		}
		if err := c(mgr, options); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
}
