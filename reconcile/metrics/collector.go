// Package metrics shows Prometheus what controllers, informers, electors and shards do.
//
//	collector := metrics.New(metrics.Options{})
//	c, err := reconcile.NewController("replicaset", r, reconcile.Options{Metrics: collector})
//	collector.Informer(pods)
//	collector.Handler(pods.Name(), "audit", registration) // of a handler of your own
//	collector.RESTClients()
//	server, err := serve.New(serve.Options{Address: "127.0.0.1:8080", Metrics: collector})
//	m, err := reconcile.NewManager(reconcile.ManagerOptions{
//		Controllers: []*reconcile.Controller{c}, Serve: server.Run,
//	})
//
// A Collector is a handler of requests, as here, and a prometheus.Collector that can be registered.
//
// The metrics of queues, of leadership and of requests have the names and labels that Kubernetes' own components give
// them, so dashboards made for those work; the rest begins with thermostat_. No metric has a label that grows with the
// number of objects. The slices of package sharding that a process has, have some of their own: see [Collector.Shards].
//
// # Dashboards made for controller-runtime
//
// With [Options].ControllerRuntimeNames the collector also shows what such a dashboard asks for:
//
//	controller_runtime_reconcile_total                   controller, result: success, error or requeue_after
//	controller_runtime_reconcile_errors_total            controller
//	controller_runtime_terminal_reconcile_errors_total   controller
//	controller_runtime_reconcile_panics_total            controller
//	controller_runtime_reconcile_timeouts_total          controller
//	controller_runtime_reconcile_time_seconds            controller
//	controller_runtime_active_workers                    controller
//	controller_runtime_max_concurrent_reconciles         controller
//	informer_queued_items                                name, group, version, resource
//	informer_store_resource_version                      name, group, version, resource
//
// The metrics workqueue_* have the label controller as well then, and the buckets of controller-runtime. An error that
// brings its own delay counts as an error, and so does a call that was stopped half-way. group, version and resource
// are empty unless the client of the informer is an [informer.Resource]. The two metrics of informers are those that
// client-go has since 0.37. Its third, informer_processing_latency_seconds, is not shown: the informer does not measure
// it. Neither are waits for consistent reads: a parked key is no read that blocks. leader_election_master_status and
// rest_client_* need no option, but [Collector.Elector] and [Collector.RESTClients].
//
// It is the only package of the library that imports the Prometheus client.
//
// # Reading order
//
// collector.go, then queue.go: the queues of controllers, shards.go: the slices of package sharding,
// controllerruntime.go: the other names, rest.go: the requests of all clients of the process.
package metrics

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// Collector is a prometheus.Collector, and an http.Handler that shows itself. It reads states and counters when it is
// scraped, and records only durations as they happen. Make one with [New], register it, and give it the controllers,
// informers and electors to show. Safe for concurrent use.
type Collector struct {
	// Never changed.
	queues       queues
	took, parked *prometheus.HistogramVec
	results      *prometheus.CounterVec
	webhooks     *prometheus.HistogramVec
	rest         requests
	others       *otherNames // nil without Options.ControllerRuntimeNames
	page         func() http.Handler

	mu sync.Mutex
	// Guarded by mu.
	controllers []controller
	informers   []Informer
	handlers    []handler
	electors    []elector
	shards      []shards
}

type controller struct {
	name  string
	stats func() status.Stats
}

type handler struct {
	informer, name string
	registration   Registration
}

type elector struct {
	name  string
	stats func() leaderelection.Stats
}

// Informer is what a Collector reads of an informer; *informer.SharedIndexInformer is one for every type of object, and
// *reconcile.Dynamic stands for all of its informers, which come and go.
type Informer = informer.AnyInformer

// Registration is what a Collector reads of a handler; *informer.Registration is one.
type Registration interface {
	Pending() int
	Merged() int
}

// durations covers a microsecond to a quarter of an hour.
var durations = prometheus.ExponentialBuckets(1e-6, 8, 11)

// Options may be left zero.
type Options struct {
	// ControllerRuntimeNames also shows the figures under the names that programs of controller-runtime, and informers
	// of client-go, give them: those that the package's doc lists.
	ControllerRuntimeNames bool
}

// New makes a Collector.
func New(opts Options) *Collector {
	histogram := func(name, help, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: durations},
			[]string{label})
	}
	c := &Collector{
		queues: newQueues(opts.ControllerRuntimeNames),
		took:   histogram("thermostat_reconcile_duration_seconds", "How long calls of Reconcile took.", "controller"),
		parked: histogram("thermostat_parked_seconds",
			"How long keys were parked until the caches had seen what their last run wrote.", "controller"),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "thermostat_reconcile_total",
			Help: "Calls of Reconcile, by what they came to."},
			[]string{"controller", "result"}),
		webhooks: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "thermostat_webhook_duration_seconds",
			Help: "How long calls of webhooks took, by what they came to.", Buckets: durations},
			[]string{"path", "outcome"}),
		rest: newRequests(),
	}
	if opts.ControllerRuntimeNames {
		c.others = newOtherNames()
	}
	c.page = sync.OnceValue(c.newPage)
	return c
}

// vecs are the metrics that are recorded as things happen.
func (c *Collector) vecs() []prometheus.Collector {
	vecs := append(c.rest.vecs(), c.queues.waited, c.queues.worked, c.took, c.parked, c.results, c.webhooks)
	if c.others != nil {
		vecs = append(vecs, c.others.vecs()...)
	}
	return vecs
}

// Controller implements reconcile.Metrics.
func (c *Collector) Controller(name string, stats func() status.Stats) reconcile.Recorder {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controllers = append(c.controllers, controller{name, stats})
	r := &recorder{
		waited: c.queues.waited.WithLabelValues(c.queues.labels(name)...),
		worked: c.queues.worked.WithLabelValues(c.queues.labels(name)...),
		took:   c.took.WithLabelValues(name),
		parked: c.parked.WithLabelValues(name), results: c.results.MustCurryWith(prometheus.Labels{"controller": name}),
	}
	if c.others != nil {
		r.others = c.others.of(name, stats().Timeout)
	}
	return r
}

// Informer lets the collector show informers. Names have to differ, or the scrape fails.
func (c *Collector) Informer(informers ...Informer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.informers = append(c.informers, informers...)
}

// Handler lets the collector show how far a handler of an informer lags behind; both are called by their names, which
// have to differ between the handlers of one informer, or the scrape fails. r is what AddHandler has returned. The
// handlers of controllers are inline, and never lag.
func (c *Collector) Handler(informer, name string, r Registration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers = append(c.handlers, handler{informer, name, r})
}

// Elector lets the collector show whether this process leads and how its elections go. name is that of the Lease, and
// stats the method of an elector. Names have to differ, or the scrape fails.
func (c *Collector) Elector(name string, stats func() leaderelection.Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.electors = append(c.electors, elector{name, stats})
}

// Webhook implements webhook.Recorder.
func (c *Collector) Webhook(path, outcome string, took time.Duration) {
	c.webhooks.WithLabelValues(path, outcome).Observe(took.Seconds())
}

type recorder struct {
	waited, worked, took, parked prometheus.Observer
	results                      *prometheus.CounterVec
	others                       *otherRecorder // nil if there are no other names
}

func (r *recorder) Waited(_ workqueue.Priority, d time.Duration) { r.waited.Observe(d.Seconds()) }
func (r *recorder) Worked(_ workqueue.Priority, d time.Duration) { r.worked.Observe(d.Seconds()) }
func (r *recorder) Reconciled(result string, took time.Duration) {
	r.took.Observe(took.Seconds())
	r.results.WithLabelValues(result).Inc()
	if r.others != nil {
		r.others.reconciled(result, took)
	}
}

func (r *recorder) Parked(d time.Duration) { r.parked.Observe(d.Seconds()) }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	oldest  = desc("thermostat_queue_oldest_seconds", "How long the first key in line has been waiting.", "name")
	delayed = desc("thermostat_queue_delayed", "Keys whose delay has not ended.", "name")
	failing = desc("thermostat_queue_failing", "Keys that failed and are tried again; not those that failed for good.",
		"name")
	workers = desc("thermostat_workers", "Workers of a controller.", "controller")
	parked  = desc("thermostat_parked_keys", "Keys that wait for a cache to see what their last run wrote.",
		"controller")
	parkedMost = desc("thermostat_parked_longest_seconds", "How long the longest of them has been waiting.",
		"controller")
	paused  = desc("thermostat_paused_keys", "Keys that are not reconciled until Resume is called.", "controller")
	hotKeys = desc("thermostat_hot_keys",
		"Keys in a hot loop: they are slowed down, since their own runs alone bring them up.", "controller")
	hotLoops = desc("thermostat_hot_loops_total", "Hot loops that have begun.", "controller")
	stuck    = desc("thermostat_stuck_reconciles",
		"Calls of Reconcile that do not return although their context has ended.", "controller")
	objects = desc("thermostat_informer_objects", "Objects in the cache.", "informer")
	bytes   = desc("thermostat_informer_bytes", "About how much of the heap the cache takes.", "informer")
	state   = desc("thermostat_informer_state", "1 for the state that the cache is in.", "informer", "state")
	stale   = desc("thermostat_informer_stale_seconds",
		"How long the cache has not been following the server; 0 while it is.", "informer")
	rewinds = desc("thermostat_informer_rewinds_total",
		"Times that the cluster went back to an older state, as after a restore.", "informer")
	progress = desc("thermostat_informer_last_progress_timestamp_seconds",
		"When the server last told something, a bookmark included.", "informer")
	lists   = desc("thermostat_informer_lists_total", "Lists that were begun.", "informer")
	unknown = desc("thermostat_informer_unknown", "Objects that are named and that the cache does not know yet.",
		"informer")
	rejected = desc("thermostat_informer_rejected", "Objects whose latest state could not be taken into the cache.",
		"informer")
	pending = desc("thermostat_handler_pending_events", "Events that a handler has not returned from.", "informer",
		"handler")
	merged = desc("thermostat_handler_merged_events_total",
		"Events that a handler was not called with because it was too far behind: they were merged with others of "+
			"their object.", "informer", "handler")
	master    = desc("leader_election_master_status", "1 while this process leads.", "name")
	remaining = desc("thermostat_leader_tenure_remaining_seconds",
		"Seconds for which this process may lead without a renewal.", "name")
	tenures         = desc("thermostat_leader_tenures_total", "Times that this process began to lead.", "name")
	losses          = desc("thermostat_leader_losses_total", "Times that it lost the Lease while it led.", "name")
	renewalFailures = desc("thermostat_leader_renewal_failures_total", "Tries to renew the Lease that failed.", "name")
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append(c.queues.descs(), oldest, delayed, failing, workers, parked, parkedMost, paused, hotKeys,
		hotLoops, stuck, objects, bytes, state, stale, rewinds, progress, lists, unknown, rejected, pending, merged,
		master, remaining, tenures, losses, renewalFailures) {
		ch <- d
	}
	for _, d := range shardDescs {
		ch <- d
	}
	if c.others != nil {
		for _, d := range otherDescs {
			ch <- d
		}
	}
	for _, v := range c.vecs() {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	// Copied, because their methods are not called with a lock held.
	c.mu.Lock()
	controllers, informers, handlers, electors, shards := c.controllers, c.informers, c.handlers, c.electors, c.shards
	c.mu.Unlock()

	out := sink(ch)
	for _, ctl := range controllers {
		stats := ctl.stats()
		c.queues.show(out, ctl.name, stats.Queue)
		out.controller(ctl.name, stats)
		if c.others != nil {
			out.otherController(ctl.name, stats)
		}
	}
	for _, inf := range informers {
		health := inf.Health()
		out.informer(inf.Name(), inf.Len(), health)
		if c.others != nil {
			out.otherInformer(inf, health)
		}
	}
	for _, h := range handlers {
		out.gauge(pending, float64(h.registration.Pending()), h.informer, h.name)
		out.counter(merged, float64(h.registration.Merged()), h.informer, h.name)
	}
	for _, e := range electors {
		out.elector(e.name, e.stats())
	}
	for _, s := range shards {
		out.shards(s.name, s.stats())
	}
	for _, v := range c.vecs() {
		v.Collect(ch)
	}
}

// ServeHTTP answers a scrape with what the collector shows, and with the metrics of the Go runtime and of the process:
// it makes the collector a handler for serve.Options.Metrics. A program with metrics of its own registers the
// collector in their registry instead.
func (c *Collector) ServeHTTP(w http.ResponseWriter, req *http.Request) { c.page().ServeHTTP(w, req) }

// newPage makes the handler for a registry with nothing else in it.
func (c *Collector) newPage() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// A sink takes the metrics of a scrape.
type sink chan<- prometheus.Metric

func (out sink) gauge(d *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (out sink) counter(d *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

func (out sink) controller(name string, s status.Stats) {
	q := s.Queue
	out.gauge(oldest, q.OldestReady.Seconds(), name)
	out.gauge(delayed, float64(q.Delayed), name)
	out.gauge(failing, float64(q.Failing), name)
	out.gauge(workers, float64(s.Workers), name)
	out.gauge(parked, float64(s.Parked), name)
	out.gauge(parkedMost, s.LongestParked.Seconds(), name)
	out.gauge(paused, float64(s.Paused), name)
	out.gauge(hotKeys, float64(s.HotKeys), name)
	out.counter(hotLoops, float64(s.HotLoops), name)
	out.gauge(stuck, float64(s.Stuck), name)
}

func (out sink) informer(name string, length int, h informer.Health) {
	out.gauge(objects, float64(length), name)
	out.gauge(bytes, float64(h.Bytes), name)
	out.gauge(state, 1, name, string(h.State))
	notLive := 0.0
	if h.State != informer.Live {
		notLive = time.Since(h.Since).Seconds()
	}
	out.gauge(stale, notLive, name)
	out.counter(rewinds, float64(h.Rewinds), name)
	if !h.LastProgress.IsZero() {
		out.gauge(progress, float64(h.LastProgress.UnixMilli())/1000, name)
	}
	out.counter(lists, float64(h.Lists), name)
	out.gauge(unknown, float64(h.Unknown), name)
	out.gauge(rejected, float64(h.Rejected), name)
}

func (out sink) elector(name string, s leaderelection.Stats) {
	leading := 0.0
	if s.Leading {
		leading = 1
	}
	out.gauge(master, leading, name)
	out.gauge(remaining, s.Remaining.Seconds(), name)
	out.counter(tenures, float64(s.Tenures), name)
	out.counter(losses, float64(s.Losses), name)
	out.counter(renewalFailures, float64(s.RenewalFailures), name)
}
