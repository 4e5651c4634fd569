package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// configMaps returns a client of a server in memory with ConfigMaps of these names.
func configMaps(t *testing.T, names ...string) typedcorev1.ConfigMapInterface {
	server := serverWith(t, names...)
	return kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps("default")
}

func serverWith(t *testing.T, names ...string) *reconciletest.Server {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	client := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps("default")
	for _, name := range names {
		_, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return server
}

// TestARunningControllerIsShown runs a controller over three objects, one of which it cannot reconcile, and reads what
// a scrape would.
func TestARunningControllerIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := configMaps(t, "a", "b", "bad")
		maps, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: "configmaps"})
		require.NoError(t, err)
		collector := New(Options{})
		c, err := reconcile.NewController("test",
			reconcile.Func(func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
				if key.Name == "bad" {
					return reconcile.Result{}, reconcile.Terminal(errors.New("cannot be"))
				}
				return reconcile.Result{}, nil
			}), reconcile.Options{Workers: 2, Metrics: collector})
		require.NoError(t, err)
		reconcile.For(c, maps)
		collector.Informer(maps)
		quick, err := maps.AddHandler(func(informer.Event[*corev1.ConfigMap]) {},
			informer.HandlerOptions{Name: "audit"})
		require.NoError(t, err)
		collector.Handler(maps.Name(), "audit", quick)
		collector.Elector("my-lease", func() leaderelection.Stats {
			return leaderelection.Stats{Leading: true, Remaining: 9 * time.Second, Tenures: 3, Losses: 2,
				RenewalFailures: 5}
		})

		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()

		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(collector))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP leader_election_master_status 1 while this process leads.
# TYPE leader_election_master_status gauge
leader_election_master_status{name="my-lease"} 1
# HELP thermostat_informer_objects Objects in the cache.
# TYPE thermostat_informer_objects gauge
thermostat_informer_objects{informer="configmaps"} 3
# HELP thermostat_informer_state 1 for the state that the cache is in.
# TYPE thermostat_informer_state gauge
thermostat_informer_state{informer="configmaps",state="Live"} 1
# HELP thermostat_informer_unknown Objects that are named and that the cache does not know yet.
# TYPE thermostat_informer_unknown gauge
thermostat_informer_unknown{informer="configmaps"} 0
# HELP thermostat_leader_losses_total Times that it lost the Lease while it led.
# TYPE thermostat_leader_losses_total counter
thermostat_leader_losses_total{name="my-lease"} 2
# HELP thermostat_leader_renewal_failures_total Tries to renew the Lease that failed.
# TYPE thermostat_leader_renewal_failures_total counter
thermostat_leader_renewal_failures_total{name="my-lease"} 5
# HELP thermostat_leader_tenure_remaining_seconds Seconds for which this process may lead without a renewal.
# TYPE thermostat_leader_tenure_remaining_seconds gauge
thermostat_leader_tenure_remaining_seconds{name="my-lease"} 9
# HELP thermostat_leader_tenures_total Times that this process began to lead.
# TYPE thermostat_leader_tenures_total counter
thermostat_leader_tenures_total{name="my-lease"} 3
# HELP thermostat_reconcile_total Calls of Reconcile, by what they came to.
# TYPE thermostat_reconcile_total counter
thermostat_reconcile_total{controller="test",result="success"} 2
thermostat_reconcile_total{controller="test",result="terminal"} 1
# HELP workqueue_adds_total Keys that began to wait.
# TYPE workqueue_adds_total counter
workqueue_adds_total{name="test"} 3
# HELP workqueue_depth Keys that wait for a worker.
# TYPE workqueue_depth gauge
workqueue_depth{name="test"} 0
`), "leader_election_master_status", "thermostat_informer_objects", "thermostat_informer_unknown",
			"thermostat_informer_state",
			"thermostat_leader_losses_total", "thermostat_leader_renewal_failures_total",
			"thermostat_leader_tenure_remaining_seconds", "thermostat_leader_tenures_total",
			"thermostat_reconcile_total",
			"workqueue_adds_total", "workqueue_depth"))

		families, err := registry.Gather()
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(families), 20)
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		require.NoError(t, err)
		require.Empty(t, problems)

		cancel()
		require.NoError(t, <-done)
	})
}

// TestAHandlerThatLagsIsShown has a handler that does not return while the only object changes more often than events
// are kept apart.
func TestAHandlerThatLagsIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := configMaps(t, "a")
		maps, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: "configmaps"})
		require.NoError(t, err)
		returns := make(chan struct{})
		slow, err := maps.AddHandler(func(informer.Event[*corev1.ConfigMap]) { <-returns },
			informer.HandlerOptions{Name: "audit"})
		require.NoError(t, err)
		collector := New(Options{})
		collector.Handler(maps.Name(), "audit", slow)
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(collector))
		shows := func(pending, merged int) {
			t.Helper()
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP thermostat_handler_merged_events_total Events that a handler was not called with because it was too far behind:`+
				` they were merged with others of their object.
# TYPE thermostat_handler_merged_events_total counter
thermostat_handler_merged_events_total{handler="audit",informer="configmaps"} %d
# HELP thermostat_handler_pending_events Events that a handler has not returned from.
# TYPE thermostat_handler_pending_events gauge
thermostat_handler_pending_events{handler="audit",informer="configmaps"} %d
`, merged, pending)), "thermostat_handler_merged_events_total", "thermostat_handler_pending_events"))
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- maps.Run(ctx) }()
		synctest.Wait()
		shows(1, 0) // it is at work on the first event
		const updates = 1500
		for i := range updates {
			_, err := api.Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Data: map[string]string{"update": fmt.Sprint(i)}}, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		require.Positive(t, slow.Pending())
		require.Positive(t, slow.Merged())
		require.Equal(t, 1+updates, slow.Pending()+slow.Merged())
		shows(slow.Pending(), slow.Merged())
		close(returns)
		synctest.Wait()
		shows(0, slow.Merged())
		cancel()
		require.NoError(t, <-done)
	})
}

// A collector is its own page.
func TestTheCollectorAnswersScrapes(t *testing.T) {
	collector := New(Options{})
	collector.Elector("lease", func() leaderelection.Stats { return leaderelection.Stats{} })
	for range 2 { // the registry is made once
		answer := httptest.NewRecorder()
		collector.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		require.Equal(t, http.StatusOK, answer.Code)
		for _, want := range []string{`leader_election_master_status{name="lease"} 0`, "go_goroutines ",
			"process_start_time_seconds "} {
			require.Contains(t, answer.Body.String(), want)
		}
	}
}
