package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// otherNames are the metrics that controller-runtime has, as far as there are figures for them.
type otherNames struct {
	results                            *prometheus.CounterVec
	errors, terminal, panics, timeouts *prometheus.CounterVec
	took                               *prometheus.HistogramVec
}

func newOtherNames() *otherNames {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "controller_runtime_" + name, Help: help},
			append([]string{"controller"}, labels...))
	}
	return &otherNames{
		results:  counter("reconcile_total", "Calls of Reconcile, by what they came to.", "result"),
		errors:   counter("reconcile_errors_total", "Calls of Reconcile that failed."),
		terminal: counter("terminal_reconcile_errors_total", "Calls of Reconcile that failed for good."),
		panics:   counter("reconcile_panics_total", "Calls of Reconcile that panicked."),
		timeouts: counter("reconcile_timeouts_total", "Calls of Reconcile that took longer than they may."),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "controller_runtime_reconcile_time_seconds",
			Help: "How long calls of Reconcile took.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
				0.9, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60}},
			[]string{"controller"}),
	}
}

func (o *otherNames) vecs() []prometheus.Collector {
	return []prometheus.Collector{o.results, o.errors, o.terminal, o.panics, o.timeouts, o.took}
}

// otherRecorder has the metrics of one controller.
type otherRecorder struct {
	success, requeueAfter, failed      prometheus.Counter // of results
	errors, terminal, panics, timeouts prometheus.Counter
	took                               prometheus.Observer
	timeout                            time.Duration
}

// of makes the recorder of a controller. All its series exist from then on, with the value 0.
func (o *otherNames) of(controller string, timeout time.Duration) *otherRecorder {
	o.results.WithLabelValues(controller, "requeue") // what no result of a Reconciler here can be
	return &otherRecorder{
		success:      o.results.WithLabelValues(controller, "success"),
		failed:       o.results.WithLabelValues(controller, "error"),
		requeueAfter: o.results.WithLabelValues(controller, "requeue_after"),
		errors:       o.errors.WithLabelValues(controller), terminal: o.terminal.WithLabelValues(controller),
		panics: o.panics.WithLabelValues(controller), timeouts: o.timeouts.WithLabelValues(controller),
		took: o.took.WithLabelValues(controller), timeout: timeout,
	}
}

// reconciled is what reconcile.Recorder is told.
func (r *otherRecorder) reconciled(result string, took time.Duration) {
	r.took.Observe(took.Seconds())
	if took >= r.timeout {
		r.timeouts.Inc()
	}
	switch result {
	case "success":
		r.success.Inc()
		return
	case "requeue_after":
		r.requeueAfter.Inc()
		return
	case "terminal":
		r.terminal.Inc()
	case "panic":
		r.panics.Inc()
	}
	r.errors.Inc()
	r.failed.Inc()
}

var (
	activeWorkers = desc("controller_runtime_active_workers", "Workers that have a key.", "controller")
	maxConcurrent = desc("controller_runtime_max_concurrent_reconciles", "Workers of a controller.", "controller")
	queuedItems   = desc("informer_queued_items", "Changes that the store has not taken yet.", resourceLabels...)
	storeVersion  = desc("informer_store_resource_version",
		"The last 15 digits of the resourceVersion that the store has reached.", resourceLabels...)

	resourceLabels = []string{"name", "group", "version", "resource"}
	otherDescs     = []*prometheus.Desc{activeWorkers, maxConcurrent, queuedItems, storeVersion}
)

func (out sink) otherController(name string, s status.Stats) {
	out.gauge(activeWorkers, float64(s.Queue.Active), name)
	out.gauge(maxConcurrent, float64(s.Workers), name)
}

// otherInformer shows what an informer tells of its queue and its version.
func (out sink) otherInformer(inf Informer, h informer.Health) {
	labels := []string{inf.Name(), h.Resource.Group, h.Resource.Version, h.Resource.Resource}
	out.gauge(queuedItems, float64(h.Queued), labels...)
	version := inf.ResourceVersion(metav1.NamespaceAll)
	if n, err := strconv.ParseUint(version[max(0, len(version)-15):], 10, 64); err == nil {
		out.gauge(storeVersion, float64(n), labels...)
	}
}
