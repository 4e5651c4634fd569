package metrics

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

func TestOtherNamesAreOffByDefault(t *testing.T) {
	for _, name := range described(t) {
		require.NotContains(t, name, "controller_runtime")
		require.False(t, strings.HasPrefix(name, "informer_"), name)
	}
}

// TestNamesOfControllerRuntime runs a controller whose calls end in every way that there is, and is stopped in one of
// them.
func TestNamesOfControllerRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serverWith(t, "good", "again", "bad", "delayed", "terminal", "panics", "slow", "stopped")
		api, err := informer.NewResource[*corev1.ConfigMap](server.Config(),
			corev1.SchemeGroupVersion.WithResource("configmaps"), informer.ResourceOptions{})
		require.NoError(t, err)
		maps, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: "configmaps"})
		require.NoError(t, err)
		collector := New(Options{ControllerRuntimeNames: true})
		var seen sync.Map
		c, err := reconcile.NewController("test", reconcile.Func(
			func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
				_, again := seen.LoadOrStore(key, true)
				switch {
				case key.Name == "stopped":
					<-ctx.Done()
					return reconcile.Result{}, ctx.Err()
				case again:
					return reconcile.Result{}, nil
				}
				switch key.Name {
				case "again":
					return reconcile.Result{RequeueAfter: time.Second}, nil
				case "bad":
					return reconcile.Result{}, errors.New("bad")
				case "delayed":
					return reconcile.Result{}, reconcile.RetryAfter(time.Second, errors.New("busy"))
				case "terminal":
					return reconcile.Result{}, reconcile.Terminal(errors.New("for good"))
				case "panics":
					panic("oh")
				case "slow":
					time.Sleep(20 * time.Second)
				}
				return reconcile.Result{}, nil
			}), reconcile.Options{Workers: 3, Timeout: 20 * time.Second, Metrics: collector})
		require.NoError(t, err)
		reconcile.For(c, maps)
		collector.Informer(maps)
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
			DrainTimeout: time.Millisecond})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(10 * time.Second)

		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(collector))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP controller_runtime_active_workers Workers that have a key.
# TYPE controller_runtime_active_workers gauge
controller_runtime_active_workers{controller="test"} 2
# HELP controller_runtime_max_concurrent_reconciles Workers of a controller.
# TYPE controller_runtime_max_concurrent_reconciles gauge
controller_runtime_max_concurrent_reconciles{controller="test"} 3
# HELP informer_queued_items Changes that the store has not taken yet.
# TYPE informer_queued_items gauge
informer_queued_items{group="",name="configmaps",resource="configmaps",version="v1"} 0
# HELP informer_store_resource_version The last 15 digits of the resourceVersion that the store has reached.
# TYPE informer_store_resource_version gauge
informer_store_resource_version{group="",name="configmaps",resource="configmaps",version="v1"} 1009
# HELP workqueue_adds_total Keys that began to wait.
# TYPE workqueue_adds_total counter
workqueue_adds_total{controller="test",name="test"} 12
`), "controller_runtime_active_workers", "controller_runtime_max_concurrent_reconciles", "informer_queued_items",
			"informer_store_resource_version", "workqueue_adds_total"))

		time.Sleep(10 * time.Second)
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP controller_runtime_reconcile_errors_total Calls of Reconcile that failed.
# TYPE controller_runtime_reconcile_errors_total counter
controller_runtime_reconcile_errors_total{controller="test"} 5
# HELP controller_runtime_reconcile_panics_total Calls of Reconcile that panicked.
# TYPE controller_runtime_reconcile_panics_total counter
controller_runtime_reconcile_panics_total{controller="test"} 1
# HELP controller_runtime_reconcile_timeouts_total Calls of Reconcile that took longer than they may.
# TYPE controller_runtime_reconcile_timeouts_total counter
controller_runtime_reconcile_timeouts_total{controller="test"} 2
# HELP controller_runtime_reconcile_total Calls of Reconcile, by what they came to.
# TYPE controller_runtime_reconcile_total counter
controller_runtime_reconcile_total{controller="test",result="error"} 5
controller_runtime_reconcile_total{controller="test",result="requeue"} 0
controller_runtime_reconcile_total{controller="test",result="requeue_after"} 1
controller_runtime_reconcile_total{controller="test",result="success"} 6
# HELP controller_runtime_terminal_reconcile_errors_total Calls of Reconcile that failed for good.
# TYPE controller_runtime_terminal_reconcile_errors_total counter
controller_runtime_terminal_reconcile_errors_total{controller="test"} 1
`), "controller_runtime_reconcile_errors_total", "controller_runtime_reconcile_panics_total",
			"controller_runtime_reconcile_timeouts_total", "controller_runtime_reconcile_total",
			"controller_runtime_terminal_reconcile_errors_total"))
		families, err := registry.Gather()
		require.NoError(t, err)
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		require.NoError(t, err)
		require.Empty(t, problems)
	})
}
