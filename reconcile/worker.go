package reconcile

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// worker is one goroutine that reconciles one key at a time. stuck.go says what becomes of it when a call of Reconcile
// does not return.
type worker struct {
	// Never changed.
	*Controller
	log              klog.Logger
	takeCtx, runCtx  context.Context // no key is taken when the first has ended; calls end with the second
	endedCtx         context.Context // a child of runCtx that has ended
	id               string          // of its goroutine, as stacks show it
	startReplacement func()          // starts another worker

	// The worker's goroutine only.
	replaced bool                 // another worker has taken over
	claim    workqueue.Claim[Key] // the latest one
	outcome  outcome              // of its run
	entry    *keyEntry            // of its key; its content is guarded by the keyHistory's mu
	// sawInvalid says that the run has called Options.Invalid, or nothing, in place of Reconcile.
	sawInvalid bool
	// record is that of the run that has ended, for Options.OnRun; nil if there is none, or the run is not for it.
	record *status.Run

	// Of the run that goes on. The worker's goroutine writes them between runs. Others may read them with the run's mu
	// held, if the run has not ended.
	began  time.Time
	causes causes

	// mu is a lock for each worker, so that workers do not wait for each other. stuck.mu may be taken with mu held.
	mu sync.Mutex
	// Guarded by mu. run is the call that goes on, or nil; it counts as stuck from stuckAt on, and foundStuck says
	// that checkStuck has counted it. The timer is set for stuckAt or earlier while there is a call that is not
	// counted. It is not stopped when a call returns: the next call finds it set, which saves a quarter of the loop's
	// time for a key (BenchmarkReconcile).
	run        *run
	stuckAt    time.Time
	foundStuck bool
	stuckIn    atomic.Pointer[string] // where in the user's code, while foundStuck; read without mu
	stuckTimer *time.Timer            // nil unless it is set, or fires at this moment
}

// newWorker makes a worker for the goroutine that calls it.
func newWorker(c *Controller, takeCtx, runCtx context.Context, startReplacement func()) *worker {
	log := klog.FromContext(runCtx).WithValues("controller", c.name)
	runCtx = klog.NewContext(runCtx, log)
	endedCtx, end := context.WithCancel(runCtx)
	end()
	return &worker{Controller: c, log: log, takeCtx: takeCtx, runCtx: runCtx, endedCtx: endedCtx, id: goroutineID(),
		startReplacement: startReplacement}
}

// work reconciles keys until takeCtx ends, or until another worker has taken over. One does so, too, if Reconcile ends
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
		over = !w.handleNext() || w.replaced
	}
}

// handleNext takes one key from the queue and handles it. It reports whether there may be more.
func (w *worker) handleNext() (more bool) {
	claim, err := w.queue.Take(w.takeCtx)
	if err != nil {
		return false // takeCtx has ended: the queue is never shut down, so that this process can lead again
	}
	w.handle(claim)
	return true
}

// causesOfRun returns a copy of the causes of the latest run, for the log: a log sink may format it during the next
// run.
func (w *worker) causesOfRun() *causes {
	why := w.causes
	return &why
}

// handle reconciles one key, or parks it, and ends its claim in every case.
func (w *worker) handle(claim workqueue.Claim[Key]) {
	w.claim = claim
	c, key := w.Controller, claim.Key()
	if c.paused.holds(key) {
		claim.Rest(0) // Resume adds the key again
		return
	}
	if c.ledger.park(key) {
		w.log.V(4).Info("Parked until the caches have seen what the last run wrote, and may be acted on", "key", key)
		claim.Rest(0) // the ledger adds the key again when its last debt is paid, even before this line
		return
	}
	if w.takeCtx.Err() != nil || w.runCtx.Err() != nil {
		c.putBack(claim) // no new call begins
		return
	}
	if left := c.refusals.left(key); left > 0 {
		now := time.Now()
		c.history.heldBack(key, status.Wait{For: status.WaitBackoff, From: now, To: now.Add(left)})
		claim.Rest(left)
		return
	}
	w.began = time.Now()
	r := &run{worker: w, key: key}
	if rest := c.history.beginRun(r); rest > 0 {
		c.history.heldBack(key, status.Wait{For: status.WaitHotLoop, From: w.began, To: w.began.Add(rest)})
		claim.Rest(rest)
		return
	}
	defer w.finish(r) // deferred: Reconcile may end the goroutine
	w.call(r)
}

// call calls the Reconciler, within its Timeout, and recovers its panic. It sets the outcome even if the Reconciler
// ends the goroutine. It does not use lifecycle.Guard: that would take 5 % more of a key's time.
func (w *worker) call(r *run) {
	w.callBegins(r)
	returned := false
	defer func() {
		var p *lifecycle.PanicError
		if !returned {
			p = &lifecycle.PanicError{Value: recover(), Stack: debug.Stack()}
			w.outcome = outcome{kind: retry, err: p, panicked: true, why: status.ErrorOf(p, true)}
		}
		r.end()
		w.callReturned()
		if p != nil {
			r.log().Error(p, "Reconcile panicked", "stack", string(p.Stack))
		}
	}()
	result, err := w.reconcile(r)
	w.outcome = decide(result, err)
	returned = true
}

// reconcile calls the Reconciler or, for a key whose object is invalid, Options.Invalid. An object that becomes invalid
// after this look has not become invisible: the store keeps its last good state.
func (w *worker) reconcile(r *run) (Result, error) {
	w.sawInvalid = false
	for i := range w.sources {
		s := &w.sources[i]
		if !s.subject {
			continue
		}
		if why := s.invalidObject(r.key); why != nil {
			return w.reconcileInvalid(r, why)
		}
	}
	return w.reconciler.Reconcile(r, r.key)
}

func (w *worker) reconcileInvalid(r *run, why error) (Result, error) {
	w.sawInvalid = true
	var invalid *informer.InvalidError
	if w.invalid != nil && errors.As(why, &invalid) {
		return w.invalid(r, r.key, invalid)
	}
	return Result{}, Terminal(fmt.Errorf("the object is invalid, so Reconcile is not called, and there is no "+
		"Options.Invalid: %w", why))
}

// finish ends the claim as the outcome says, and reports it to the Recorder, to OnRun and the log.
func (w *worker) finish(r *run) {
	w.end(r)
	if record := w.record; record != nil {
		w.record = nil
		w.onRun(w.name, r.key, *record)
	}
}

func (w *worker) end(r *run) {
	c, claim, o := w.Controller, &w.claim, &w.outcome
	took := time.Since(w.began)
	result, stopped := o.result(), o.err != nil && w.runCtx.Err() != nil
	if stopped {
		result = "stopped"
	}
	c.history.endRun(r, *o, result, w.began.Add(took))
	w.checkPace(r, took)
	if log := w.log.V(4); log.Enabled() {
		log.Info("Reconciled", "key", r.key, "took", took, "err", o.err, "causes", w.causesOfRun())
	}

	c.recorder.Reconciled(result, took)
	if stopped { // half-way: not a failure of the key
		c.putBack(*claim)
		return
	}
	if o.pause > 0 {
		c.refusals.begin(r.key, o.pause)
	}
	switch o.kind {
	case done:
		claim.Done()
	case doneAfter:
		claim.DoneAfter(o.after)
	case retry:
		delay := max(claim.Retry(), o.pause)
		c.history.retries(r.key, w.began, delay)
		if w.record != nil {
			w.record.Again = w.record.Started.Add(took + delay)
		}
		r.log().Error(o.err, "Reconcile failed", "retryAfter", delay, "causes", w.causesOfRun())
	case retryAfter:
		claim.RetryAfter(o.after)
		r.log().Error(o.err, "Reconcile failed", "retryAfter", max(o.after, o.pause), "causes", w.causesOfRun())
	case terminal:
		claim.Done()
		r.log().Error(o.err, "Reconcile failed for good: the key rests until something changes", "causes",
			w.causesOfRun())
	}
}

// putBack ends a claim without an outcome. The key stays in the queue until this process leads again, and its failures
// stay counted.
func (c *Controller) putBack(claim workqueue.Claim[Key]) {
	c.add(claim.Key(), false)
	claim.Rest(0)
}
