package reconcile

import (
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// Metrics collects what controllers do; *metrics.Collector of package reconcile/metrics is one.
type Metrics interface {
	// Controller is called once for each controller, when it is made. It returns what the controller reports to; stats
	// may be called at any time.
	Controller(name string, stats func() status.Stats) Recorder
}

// Recorder receives what one controller does. Its workers call it, unless a method says otherwise, and several at
// once: no lock is held.
type Recorder interface {
	workqueue.Metrics
	// Reconciled: a call of Reconcile has returned. result is one of success, requeue_after, error, retry_after,
	// terminal, panic and stopped, the last for a call that failed because its context had ended.
	Reconciled(result string, took time.Duration)
	// Parked: a key has waited this long for the caches to see what its last run wrote, or for a cache to be complete
	// or young enough to be acted on. It is called by an informer, too.
	Parked(d time.Duration)
}

// Stats returns the figures of this moment.
func (c *Controller) Stats() status.Stats {
	n := c.keys.Counts()
	return status.Stats{Queue: c.queue.Stats(), Workers: c.workers, Timeout: c.timeout, Parked: n.Parked,
		LongestParked: n.LongestParked, Paused: n.Paused, Stuck: c.Stuck(), HotKeys: n.HotKeys, HotLoops: n.HotLoops}
}

// noRecorder is the Recorder of a controller without metrics.
type noRecorder struct{}

func (noRecorder) Waited(workqueue.Priority, time.Duration) {}
func (noRecorder) Worked(workqueue.Priority, time.Duration) {}
func (noRecorder) Reconciled(string, time.Duration)         {}
func (noRecorder) Parked(time.Duration)                     {}

// result is what a Recorder is told of the outcome.
func (o outcome) result() string {
	if o.panicked != nil {
		return "panic"
	}
	return [...]string{done: "success", doneAfter: "requeue_after", retry: "error", retryAfter: "retry_after",
		terminal: "terminal"}[o.kind]
}
