package controllerruntime

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// outcomes are what the first call for an object of that name comes to; the second one succeeds.
type outcomes struct{ called sync.Map }

var errOutcome = errors.New("as the name says")

func (o *outcomes) of(ctx context.Context, name string) (after time.Duration, terminal bool, err error) {
	if _, again := o.called.LoadOrStore(name, true); again {
		return 0, false, nil
	}
	switch name {
	case "again":
		return time.Minute, false, nil
	case "bad":
		return 0, false, errOutcome
	case "terminal":
		return 0, true, errOutcome
	case "panics":
		panic("as the name says")
	case "timeout":
		<-ctx.Done()
		return 0, false, ctx.Err()
	}
	return 0, false, nil
}

const (
	diffName    = "diff"
	diffTimeout = 30 * time.Second
	diffLasts   = 10 * time.Minute
)

// theirFamilies runs a program of controller-runtime over these outcomes, and returns what it shows.
func theirFamilies(t *testing.T, server *reconciletest.Server) map[string]*dto.MetricFamily {
	var o outcomes
	twice := true
	m, err := ctrl.NewManager(server.Link().Config(), ctrl.Options{Logger: logr.Discard(), LeaderElection: true,
		LeaderElectionID: diffName, LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
		Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(t, err)
	require.NoError(t, ctrl.NewControllerManagedBy(m).Named(diffName).For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2, ReconciliationTimeout: diffTimeout,
			SkipNameValidation: &twice}).
		Complete(ctrlreconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			after, terminal, err := o.of(ctx, r.Name)
			if terminal {
				err = ctrlreconcile.TerminalError(err)
			}
			return ctrl.Result{RequeueAfter: after}, err
		})))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	time.Sleep(diffLasts)
	families, err := ctrlmetrics.Registry.Gather()
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-ended)
	return byName(families)
}

// ourFamilies is the same with this library.
func ourFamilies(t *testing.T, server *reconciletest.Server) map[string]*dto.MetricFamily {
	var o outcomes
	cfg := server.Link().Config()
	elector, err := leaderelection.New(leaderelection.Config{REST: cfg, Namespace: "default", Name: diffName})
	require.NoError(t, err)
	cache, err := informer.New[*corev1.ConfigMap](kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(""),
		informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	collector := metrics.New(metrics.Options{ControllerRuntimeNames: true})
	c, err := reconcile.NewController(diffName, reconcile.Func(
		func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			after, terminal, err := o.of(ctx, key.Name)
			if terminal {
				err = reconcile.Terminal(err)
			}
			return reconcile.Result{RequeueAfter: after}, err
		}), reconcile.Options{Workers: 2, Timeout: diffTimeout, Metrics: collector})
	require.NoError(t, err)
	reconcile.For(c, cache)
	collector.Elector(diffName, elector.Stats)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: elector})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	time.Sleep(diffLasts)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-ended)
	return byName(families)
}

// byName returns families without the series of other tests of this process.
func byName(families []*dto.MetricFamily) map[string]*dto.MetricFamily {
	named := map[string]*dto.MetricFamily{}
	for _, f := range families {
		f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
			return !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
				return l.GetValue() == diffName || l.GetName() == "host"
			})
		})
		if len(f.Metric) > 0 {
			named[f.GetName()] = f
		}
	}
	return named
}

// series are the values of a family by labels: of counters and gauges, and the number of observations of histograms.
func series(f *dto.MetricFamily) map[string]float64 {
	values := map[string]float64{}
	for _, m := range f.Metric {
		var labels []string
		for _, l := range m.Label {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(labels)
		values[strings.Join(labels, ",")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
			float64(m.GetHistogram().GetSampleCount())
	}
	return values
}

// labelNames of a family; an empty label is the same as none.
func labelNames(f *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range f.Metric {
		for _, l := range m.Label {
			if l.GetValue() != "" {
				names[l.GetName()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// TestDashboardsOfControllerRuntime runs one program with both libraries. What a dashboard finds under the names of
// controller-runtime has the same type, the same labels and, where the two do the same work, the same values.
func TestDashboardsOfControllerRuntime(t *testing.T) {
	var theirs, ours map[string]*dto.MetricFamily
	for _, run := range []func(*testing.T, *reconciletest.Server){
		func(t *testing.T, s *reconciletest.Server) { theirs = theirFamilies(t, s) },
		func(t *testing.T, s *reconciletest.Server) { ours = ourFamilies(t, s) },
	} {
		synctest.Test(t, func(t *testing.T) {
			server := reconciletest.NewServer(t, reconciletest.Options{})
			client := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps("default")
			for _, name := range []string{"good", "again", "bad", "terminal", "panics", "timeout"} {
				_, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
					metav1.CreateOptions{})
				require.NoError(t, err)
			}
			run(t, server)
		})
	}
	compared := 0
	for name, family := range theirs {
		mine, ok := ours[name]
		switch {
		case strings.HasPrefix(name, "controller_runtime_reconcile_time"):
			require.True(t, ok, name)
			require.Equal(t, bounds(family), bounds(mine), name)
			require.Equal(t, series(family), series(mine), name)
		case strings.HasPrefix(name, "controller_runtime_"):
			require.True(t, ok, name)
			require.Equal(t, series(family), series(mine), name)
		case strings.HasPrefix(name, "workqueue_"):
			require.True(t, ok, name)
			want := slices.DeleteFunc(labelNames(family), func(l string) bool { return l == "priority" })
			require.Equal(t, want, labelNames(mine), name)
			require.Equal(t, bounds(family), bounds(mine), name)
		case name == "leader_election_master_status":
			require.Equal(t, series(family), series(mine))
		default:
			continue
		}
		require.Equal(t, family.GetType(), mine.GetType(), name)
		compared++
	}
	require.Equal(t, 16, compared, "8 of controllers, 7 of queues, and who leads")
	require.Equal(t, map[string]float64{"controller=diff,result=error": 4, "controller=diff,result=requeue": 0,
		"controller=diff,result=requeue_after": 1, "controller=diff,result=success": 5},
		series(ours["controller_runtime_reconcile_total"]))

	// client-go tells one collector of a process of its requests, and that is controller-runtime's here.
	require.Equal(t, labelNames(theirs["rest_client_requests_total"]),
		describedLabels(t, "rest_client_requests_total"))
}

// bounds of the buckets of a histogram.
func bounds(f *dto.MetricFamily) (all []float64) {
	for _, b := range f.Metric[0].GetHistogram().GetBucket() {
		all = append(all, b.GetUpperBound())
	}
	return all
}

// describedLabels are the variable labels that a collector declares for a metric.
func describedLabels(t *testing.T, name string) []string {
	descs := make(chan *prometheus.Desc, 100)
	metrics.New(metrics.Options{}).Describe(descs)
	close(descs)
	declared := regexp.MustCompile(`fqName: "` + name + `".*variableLabels: \{([^}]*)\}`)
	for d := range descs {
		if found := declared.FindStringSubmatch(d.String()); found != nil {
			return slices.Sorted(slices.Values(strings.Split(found[1], ",")))
		}
	}
	require.Fail(t, "not described", name)
	return nil
}
