// Package check runs controllers of Koordinator's manager, each by itself, as its main does. The webhooks, leader
// election, metrics and the indexes that other controllers need are left out.
package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	quotav1alpha1 "github.com/koordinator-sh/koordinator/apis/quota/v1alpha1"
	slov1alpha1 "github.com/koordinator-sh/koordinator/apis/slo/v1alpha1"
	schedv1alpha1 "github.com/koordinator-sh/koordinator/apis/thirdparty/scheduler-plugins/pkg/apis/scheduling/v1alpha1"
	utilclient "github.com/koordinator-sh/koordinator/pkg/util/client"
	"github.com/koordinator-sh/koordinator/pkg/util/sloconfig"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// check runs a scenario with one of the controllers. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, add func(ctrl.Manager) error, scenario reconciletest.Scenario) {
	t.Helper()
	scenario.Run = run(add)
	scenario.Server = reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
		Namespaces: []string{"default", sloconfig.ConfigNameSpace}}
	scenario.Limit = time.Minute
	reconciletest.Check(t, scenario)
}

// run is main with one controller.
func run(add func(ctrl.Manager) error) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		again, all := true, runtime.NewScheme()
		if err := errors.Join(scheme.AddToScheme(all), quotav1alpha1.AddToScheme(all), slov1alpha1.AddToScheme(all),
			schedv1alpha1.AddToScheme(all)); err != nil {
			return err
		}
		cfg = rest.CopyConfig(cfg)
		cfg.QPS, cfg.Burst = 30, 50
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{
			Scheme:                 all,
			Metrics:                metricsserver.Options{BindAddress: "0"},
			HealthProbeBindAddress: "0",
			NewClient:              utilclient.NewClient,
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
}

// node is one of a pool, with processors to give away.
func node(name, pool string, processors int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {pool: %s}}
status:
  allocatable: {cpu: %q, memory: 8Gi}
  capacity: {cpu: %[3]q, memory: 8Gi}
  conditions: [{type: Ready, status: "True", reason: KubeletReady}]
---
`, name, pool, fmt.Sprint(processors))
}

// configured is the ConfigMap that the controllers read, with one key.
func configured(key, value string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: %s}
data:
  %s: |
    %s
---
`, sloconfig.SLOCtrlConfigMap, sloconfig.ConfigNameSpace, key, value)
}
