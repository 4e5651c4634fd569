package reconcile

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
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
	ctx      context.Context      // of the present run: runCtx, or a child of it that ends with the key's slice
	claim    workqueue.Claim[Key] // the latest one
	outcome  outcome              // of its run
	turn     keys.Turn            // of its runs; others may read a part of it, as its doc says
	needed   []string             // the namespaces that the key needs
	unknown  error                // why nobody knows which those are
	// sawInvalid says that the run has called Options.Invalid, or nothing, in place of Reconcile.
	sawInvalid bool
	// record is that of the run that has ended, for Options.OnRun; nil if there is none, or the run is not for it.
	record *status.Run

	// Others may use what follows. current is the latest call. While one goes on that is not counted as stuck, the
	// timer is set for when it will be, or earlier, and armed says so. The timer is not stopped when a call returns:
	// the next call finds it set, which saves a quarter of the loop's time for a key (BenchmarkReconcile).
	current    atomic.Pointer[run]
	armed      atomic.Bool
	stuckTimer *time.Timer // never changed; runs checkStuck
}

// newWorker makes a worker for the goroutine that calls it.
func newWorker(c *Controller, takeCtx, runCtx context.Context, startReplacement func()) *worker {
	log := klog.FromContext(runCtx).WithValues("controller", c.name)
	runCtx = klog.NewContext(runCtx, log)
	endedCtx, end := context.WithCancel(runCtx)
	end()
	w := &worker{Controller: c, log: log, takeCtx: takeCtx, runCtx: runCtx, endedCtx: endedCtx,
		id: lifecycle.GoroutineID(), startReplacement: startReplacement}
	w.turn.Log = log
	w.armed.Store(true)
	w.stuckTimer = time.AfterFunc(w.timeout+stuckAfter, w.checkStuck)
	return w
}

// work reconciles keys until takeCtx ends, or until another worker has taken over. One does so, too, if Reconcile ends
// the goroutine (runtime.Goexit).
func (w *worker) work() {
	over := false
	defer func() {
		w.stuckTimer.Stop()
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

// handle reconciles one key, or parks it, and ends its claim in every case.
func (w *worker) handle(claim workqueue.Claim[Key]) {
	w.claim = claim
	c, key := w.Controller, claim.Key()
	leave, err := w.enter(key)
	if err != nil {
		claim.Done()
		w.letGo(key)
		return
	}
	defer leave()
	if c.keys.Paused(key) {
		claim.Rest(0) // Resume adds the key again
		return
	}
	woken := false
	lifecycle.OrExit(func() { // both call user code
		w.needed, w.unknown = c.needed(w.needed[:0], key)
		woken = w.unknown == nil && c.awaitCaches(key, w.needed)
	}, func() { claim.Retry() })
	if woken {
		claim.Rest(0) // it needs no more what it has waited for: the ledger has added it again
		return
	}
	if c.ledger.Park(key) {
		w.log.V(4).Info("Parked until the caches have seen what the last run wrote, and may be acted on", "key", key)
		claim.Rest(0) // the ledger adds the key again when its last debt is paid, even before this line
		return
	}
	if w.takeCtx.Err() != nil || w.ctx.Err() != nil {
		c.putBack(claim) // no new call begins
		return
	}
	w.turn.Began = time.Now()
	r := &run{Run: keys.Run{Key: key, Turn: &w.turn}, worker: w}
	if left, held := c.keys.Begin(&r.Run); held {
		claim.Rest(left) // if it is paused, Resume adds the key again
		return
	}
	defer w.finish(r) // deferred: Reconcile may end the goroutine
	if w.shards != nil {
		r.makeIn(w.ctx)
	}
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
			w.outcome = outcome{kind: retry, err: p, panicked: p, why: status.ErrorOf(p, true)}
		}
		r.end()
		w.callReturned(r)
		if p != nil {
			r.Log().Error(p, "Reconcile panicked", "stack", string(p.Stack))
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
	if w.unknown != nil {
		return Result{}, w.unknown
	}
	for i := range w.sources {
		s := &w.sources[i]
		if !s.subject {
			continue
		}
		if why := s.invalidObject(r.Key); why != nil {
			return w.reconcileInvalid(r, why)
		}
	}
	return w.reconciler.Reconcile(r, r.Key)
}

func (w *worker) reconcileInvalid(r *run, why error) (Result, error) {
	w.sawInvalid = true
	var invalid *informer.InvalidError
	if w.invalid != nil && errors.As(why, &invalid) {
		return w.invalid(r, r.Key, invalid)
	}
	return Result{}, Terminal(fmt.Errorf("the object is invalid, so Reconcile is not called, and there is no "+
		"Options.Invalid: %w", why))
}

// finish ends the claim as the outcome says, and reports it to the Recorder, to OnRun and the log.
func (w *worker) finish(r *run) {
	w.end(r)
	if record := w.record; record != nil {
		w.record = nil
		w.onRun(w.name, r.Key, *record)
	}
}

func (w *worker) end(r *run) {
	c, claim, o := w.Controller, &w.claim, &w.outcome
	took := time.Since(w.turn.Began)
	result, stopped := o.result(), o.err != nil && w.ctx.Err() != nil
	if stopped {
		result = "stopped"
	}
	w.record = c.keys.End(&r.Run, w.recorded(result, stopped), w.turn.Began.Add(took))
	w.checkPace(r, took)
	if log := w.log.V(4); log.Enabled() {
		log.Info("Reconciled", "key", r.Key, "took", took, "err", o.err, "causes", w.turn.Causes())
	}

	c.recorder.Reconciled(result, took)
	if stopped { // half-way: not a failure of the key
		c.putBack(*claim)
		return
	}
	switch o.kind {
	case done:
		claim.Done()
	case doneAfter:
		claim.DoneAfter(o.after)
	case retry:
		delay := max(claim.Retry(), o.pause)
		c.keys.Retries(r.Key, w.turn.Began, delay)
		if w.record != nil {
			w.record.Again = w.record.Started.Add(took + delay)
		}
		r.Log().Error(o.err, "Reconcile failed", "retryAfter", delay, "causes", w.turn.Causes())
	case retryAfter:
		claim.RetryAfter(o.after)
		r.Log().Error(o.err, "Reconcile failed", "retryAfter", max(o.after, o.pause), "causes", w.turn.Causes())
	case terminal:
		claim.Done()
		r.Log().Error(o.err, "Reconcile failed for good: the key rests until something changes", "causes",
			w.turn.Causes())
	}
}

// recorded is the outcome as the table of keys has it.
func (w *worker) recorded(result string, stopped bool) keys.Outcome {
	o := keys.Outcome{Result: result, Error: w.outcome.why, After: w.outcome.after, Pause: w.outcome.pause,
		Invalid: w.sawInvalid, Priority: int(w.claim.Priority()), Group: w.claim.Group(), Report: w.onRun != nil}
	if o.Error != nil && !w.errorTexts {
		why := *o.Error
		why.Text = ""
		o.Error = &why
	}
	if p := w.outcome.panicked; p != nil {
		o.Where = lifecycle.WhereInUserCode(string(p.Stack))
	}
	if stopped {
		o.Pause = 0
	}
	return o
}

// putBack ends a claim without an outcome. The key stays in the queue until this process leads again, and its failures
// stay counted. With shards it is let go if its slice has been lost.
func (c *Controller) putBack(claim workqueue.Claim[Key]) {
	c.add(claim.Key(), false)
	claim.Rest(0)
}

// checkPace says, once for a controller, that a run has had the pace of a client that is limited on this side.
func (w *worker) checkPace(r *run, took time.Duration) {
	if took < time.Second {
		return // as most runs do
	}
	seen := r.Requests(took)
	if !seen.LooksLimited() {
		return
	}
	w.paceSaid.Do(func() {
		r.Log().Info("A run has spent most of its time before its requests, and not in them. If Reconcile itself is "+
			"not slow, its client has a client-side limit: client-go sets one of 5 requests a second, unless the "+
			"rest.Config has a QPS; reconcile.ClientConfig sets none", "took", took, "before", seen.BeforeRequests,
			"requests", seen.Requests)
	})
}
