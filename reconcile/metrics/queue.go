package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/thermostat-go/thermostat/workqueue"
)

// queues are the metrics of queues, under the names that Kubernetes' components give them.
type queues struct {
	// twice: the name of a controller is also the value of a second label, "controller", as in controller-runtime.
	twice                                     bool
	depth, adds, retries, unfinished, longest *prometheus.Desc
	waited, worked                            *prometheus.HistogramVec
}

func newQueues(twice bool) queues {
	labels, buckets := []string{"name"}, durations
	if twice {
		labels, buckets = []string{"name", "controller"}, prometheus.ExponentialBuckets(10e-9, 10, 12)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	return queues{
		twice:   twice,
		depth:   desc("workqueue_depth", "Keys that wait for a worker.", labels...),
		adds:    desc("workqueue_adds_total", "Keys that began to wait.", labels...),
		retries: desc("workqueue_retries_total", "Keys that were added with a delay or a rate limit.", labels...),
		unfinished: desc("workqueue_unfinished_work_seconds",
			"How long workers have had the keys that they have now, together.", labels...),
		longest: desc("workqueue_longest_running_processor_seconds",
			"How long the longest of them has been going on.", labels...),
		waited: histogram("workqueue_queue_duration_seconds", "How long keys waited for a worker."),
		worked: histogram("workqueue_work_duration_seconds", "How long workers had keys."),
	}
}

// labels are the values of the labels of a controller's queue.
func (q queues) labels(controller string) []string {
	if q.twice {
		return []string{controller, controller}
	}
	return []string{controller}
}

func (q queues) descs() []*prometheus.Desc {
	return []*prometheus.Desc{q.depth, q.adds, q.retries, q.unfinished, q.longest}
}

func (q queues) show(out sink, controller string, s workqueue.Stats) {
	labels := q.labels(controller)
	out.gauge(q.depth, float64(s.Ready), labels...)
	out.counter(q.adds, float64(s.Adds), labels...)
	out.counter(q.retries, float64(s.Retries), labels...)
	out.gauge(q.unfinished, s.UnfinishedSum.Seconds(), labels...)
	out.gauge(q.longest, s.LongestActive.Seconds(), labels...)
}
