// Package check runs the controllers of cert-manager's approver-policy as its main does, with the defaults of its
// flags. They work on the status of the same policies, so that both run, and each scenario is about one.
package check

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	policyapi "github.com/cert-manager/approver-policy/pkg/apis/policy/v1alpha1"
	_ "github.com/cert-manager/approver-policy/pkg/internal/approver/allowed"
	_ "github.com/cert-manager/approver-policy/pkg/internal/approver/constraints"
	"github.com/cert-manager/approver-policy/pkg/internal/controllers"
	"github.com/cert-manager/approver-policy/pkg/registry"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// check runs Check. Nothing is switched off; no schedule begins after a minute. Everybody may use each policy.
func check(t *testing.T, s reconciletest.Scenario) {
	t.Helper()
	s.Run = run
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd"}, cel.Rules{}, builtin.Kinds()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// run is main without leader election, webhooks and their certificates, metrics and HTTP.
func run(ctx context.Context, cfg *rest.Config) error {
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: policyapi.GlobalScheme,
		Cache:                  cache.Options{ReaderFailOnMissingInformer: true},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &again}})
	if err != nil {
		return err
	}
	for _, approver := range registry.Shared.Approvers() {
		if err := approver.Prepare(ctx, logr.Discard(), mgr); err != nil {
			return fmt.Errorf("approver %s: %w", approver.Name(), err)
		}
	}
	if err := controllers.AddControllers(ctx, controllers.Options{Log: logr.Discard(), Manager: mgr,
		Evaluators: registry.Shared.Evaluators(), Reconcilers: registry.Shared.Reconcilers()}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
