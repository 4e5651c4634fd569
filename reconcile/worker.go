package reconcile

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/workqueue"
)

// worker is one goroutine that reconciles one key at a time.
//
// A call that does not return although its context has ended is stuck. Nobody can end it from outside, so it keeps its
// key, which nobody else may work on, but not its place: another worker takes that, and this one ends when the call
// does return. A controller replaces as many workers as it has; past that it is not alive any more (see
// [Controller.Stuck]), and a restart of the process is the only way on.
type worker struct {
	*Controller
	log              klog.Logger
	takeCtx, runCtx  context.Context // no key is taken when the first has ended, and calls end with the second
	endedCtx         context.Context // is acting, and has ended
	id               string          // of its goroutine, as stacks name it
	startReplacement func()          // starts another worker
	replaced         bool            // somebody else has its place

	// Of the run that goes on: when it began, why, and what the trail has of its key. They are written by the worker's
	// goroutine, while none goes on. Others read the first two, with the run's mu held, and only as long as the run has
	// not ended: so the next one's come after that. step is the trail's again at the end.
	began  time.Time
	causes causes
	entry  *keyEntry

	// The latest claim, and what its run has come to.
	claim   workqueue.Claim[Key]
	outcome outcome

	// mu is the worker's own, so that no worker has to wait for another with each key; stuck.mu may be taken with it
	// held.
	mu sync.Mutex
	// Guarded by mu. run is the call that goes on, or nil. It counts as stuck from due on, and found says that look has
	// found it so. While there is one that look has not, the alarm is set, for due or earlier. It is not stopped when a
	// call returns, for the next one to find it set: that saves a quarter of what the loop costs for a key
	// (BenchmarkReconcile).
	run        *run
	stuckAt    time.Time
	foundStuck bool
	stuckTimer *time.Timer // nil unless it is set, or rings at this moment
}

// newWorker makes a worker of the goroutine that calls it.
func newWorker(c *Controller, taking, acting context.Context, replace func()) *worker {
	log := klog.FromContext(acting).WithValues("controller", c.name)
	acting = klog.NewContext(acting, log)
	over, end := context.WithCancel(acting)
	end()
	return &worker{Controller: c, log: log, takeCtx: taking, runCtx: acting, endedCtx: over, id: goroutineID(),
		startReplacement: replace}
}

// work takes keys until taking ends, or until another worker has its place. That is so, too, if code of the user's ends
// the goroutine (runtime.Goexit).
func (w *worker) work() {
	over := false
	defer func() {
		w.stopTimer()
		if !over && !w.replaced {
			w.startReplacement()
		}
	}()
	for !over {
		lifecycle.Guard(func() {
			for !over {
				over = !w.handleNext() || w.replaced
			}
		}, w.turnPanicked)
	}
}

// turn takes one key and handles it. It reports whether there may be more.
func (w *worker) handleNext() (more bool) {
	claim, err := w.queue.Take(w.takeCtx)
	if err != nil {
		return false // taking has ended: the queue is never shut down, so that this controller can lead again
	}
	w.handle(claim)
	return true
}

// failed ends the claim when a turn has not. Reconcile is guarded by itself, see call; this is other code of the user's
// that has a part in a run, such as a sink of log lines, or a bug of the library's.
func (w *worker) turnPanicked(p *lifecycle.PanicError) {
	w.claim.Retry() // does nothing if the claim has ended
	klog.Background().Error(p, "A worker panicked", "controller", w.name, "key", w.claim.Key(), "stack",
		string(p.Stack))
}

// why returns the causes of the latest run, for a line of the log: who writes it may do so when there is another run.
func (w *worker) causesOfRun() *causes {
	why := w.causes
	return &why
}

// handle reconciles one key and ends its claim, in every case.
func (w *worker) handle(claim workqueue.Claim[Key]) {
	w.claim = claim
	c, key := w.Controller, claim.Key()
	if c.ledger.park(key) {
		w.log.V(4).Info("Parked until the caches have seen what the last run wrote, and may be acted on", "key", key)
		claim.Rest(0) // what settles the last of its debts adds it, be that before this line
		return
	}
	if w.takeCtx.Err() != nil || w.runCtx.Err() != nil {
		c.putBack(claim) // nothing begins any more
		return
	}
	w.began = time.Now()
	r := &run{worker: w, key: key}
	if rest := c.history.beginRun(r); rest > 0 {
		claim.Rest(rest)
		return
	}
	defer w.finish(r) // even if Reconcile ends the goroutine
	w.call(r)
}

// call runs the Reconciler once, within its time, and survives its panic. The outcome is decided even if call does not
// return because the Reconciler has ended the goroutine. It does by itself what lifecycle.Guard does: that saves 5 % of
// a key's time.
func (w *worker) call(r *run) {
	w.callBegins(r)
	returned := false
	defer func() {
		var p *lifecycle.PanicError
		if !returned {
			p = &lifecycle.PanicError{Value: recover(), Stack: debug.Stack()}
			w.outcome = outcome{kind: retry, err: p, panicked: true}
		}
		r.end()
		w.callReturned()
		if p != nil {
			r.log().Error(p, "Reconcile panicked", "stack", string(p.Stack))
		}
	}()
	result, err := w.reconciler.Reconcile(r, r.key)
	w.outcome = decide(result, err)
	returned = true
}

// finish ends the claim as the outcome says, and tells of it.
func (w *worker) finish(r *run) {
	c, claim, o := w.Controller, &w.claim, &w.outcome
	took := time.Since(w.began)
	c.history.endRun(r, *o, w.began.Add(took))
	if log := w.log.V(4); log.Enabled() {
		log.Info("Reconciled", "key", r.key, "took", took, "err", o.err, "causes", w.causesOfRun())
	}

	if o.err != nil && w.runCtx.Err() != nil {
		// Stopped half-way, which is nobody's failure.
		c.recorder.Reconciled("stopped", took)
		c.putBack(*claim)
		return
	}
	c.recorder.Reconciled(o.result(), took)
	switch o.kind {
	case done:
		claim.Done()
	case doneAfter:
		claim.DoneAfter(o.after)
	case retry:
		r.log().Error(o.err, "Reconcile failed", "retryAfter", claim.Retry(), "causes", w.causesOfRun())
	case retryAfter:
		claim.RetryAfter(o.after)
		r.log().Error(o.err, "Reconcile failed", "retryAfter", o.after, "causes", w.causesOfRun())
	case terminal:
		claim.Done()
		r.log().Error(o.err, "Reconcile failed for good: the key rests until something changes", "causes", w.causesOfRun())
	}
}

// putBack ends a claim on which no run has ended. The key waits for whoever leads next in this process, and its
// failures stay counted.
func (c *Controller) putBack(claim workqueue.Claim[Key]) {
	c.queue.Add(claim.Key())
	claim.Rest(0)
}
