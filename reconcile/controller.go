package reconcile

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/workqueue"
)

// Options may be left zero.
type Options struct {
	// Workers is how many keys are reconciled at once. Zero: 1.
	Workers int
	// Timeout is how long a call of Reconcile may take: its ctx ends then. Zero: 2 minutes.
	Timeout time.Duration
	// RateLimiter says how long a key rests after a failure. Nil: 5 ms, doubled with each failure in a row, up to 1,000
	// s. That takes the place of one that panics or ends its goroutine, too, which the log names.
	RateLimiter workqueue.RateLimiter[Key]
	// AllowHotLoops lets keys go in circles at full speed: see the package's doc for what a circle is, and how a key in
	// one is slowed down.
	AllowHotLoops bool
	// Metrics collects what the controller does. Nil: nobody does.
	Metrics Metrics
}

// Controller calls a Reconciler for each key that one of its sources names: at most one call for a key at a time, and
// none for a key whose last run wrote something that the caches have not seen. Make one with [NewController], give it
// sources with [For], [Owns], [Watches] and [WatchesChan], and hand it to a [Manager], which runs it.
type Controller struct {
	name       string
	reconciler Reconciler
	workers    int
	timeout    time.Duration
	queue      *workqueue.Queue[Key]
	ledger     *ledger
	history    *keyHistory
	recorder   Recorder
	stuck      stuckCalls

	// Set before the Manager starts, by For and its like.
	sources    []source
	channels   []channel
	mistakes   []error
	hasManager bool // a Manager has it: too late for more
}

// NewController makes a controller. Its name stands in logs, errors and metrics. It returns every mistake in its
// arguments.
func NewController(name string, r Reconciler, opts Options) (*Controller, error) {
	var errs []error
	if name == "" {
		errs = append(errs, errors.New("the name is empty"))
	}
	if kube.IsNil(r) {
		errs = append(errs, errors.New("the Reconciler is nil"))
	}
	if opts.Workers < 0 {
		errs = append(errs, fmt.Errorf("Options.Workers is %d; it is a number of workers, or zero for one",
			opts.Workers))
	}
	if opts.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Options.Timeout is %s; it is a duration, or zero for 2 minutes", opts.Timeout))
	}
	if opts.RateLimiter != nil && kube.IsNil(opts.RateLimiter) {
		errs = append(errs, fmt.Errorf("Options.RateLimiter is a nil %T; leave it out", opts.RateLimiter))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("NewController %q: %w", name, err)
	}
	c := &Controller{
		name: name, reconciler: r, workers: opts.Workers, timeout: opts.Timeout,
		recorder: noRecorder{}, history: newKeyHistory(opts.AllowHotLoops),
	}
	queue := workqueue.Options[Key]{Name: name}
	if opts.RateLimiter != nil {
		queue.RateLimiter = newGuardedLimiter(name, opts.RateLimiter)
	}
	if opts.Metrics != nil {
		told := opts.Metrics.Controller(name, c.Stats)
		if kube.IsNil(told) {
			return nil, fmt.Errorf("NewController %q: Options.Metrics has returned no Recorder", name)
		}
		c.recorder = &guardedRecorder{guard{what: "Recorder", controller: name}, told}
		queue.Metrics = c.recorder
	}
	var err error
	if c.queue, err = workqueue.New(queue); err != nil {
		return nil, fmt.Errorf("NewController %q: %w", name, err)
	}
	if c.workers == 0 {
		c.workers = 1
	}
	if c.timeout == 0 {
		c.timeout = 2 * time.Minute
	}
	c.ledger = newLedger(c.queue.Add, c.unparked)
	return c, nil
}

// Name returns the controller's name.
func (c *Controller) Name() string { return c.name }

// Enqueue adds a key from outside: for triggers that are neither objects of an informer nor values of a channel. The
// controller needs a source even so: what its Reconcile looks at, by [DependsOn] if by nothing else.
func (c *Controller) Enqueue(key Key) { c.enqueueFor(key, "Enqueue") }

// named adds a key that a source has named because of no object.
func (c *Controller) enqueueFor(key Key, source string) {
	c.history.recordCause(key, source, Key{}, "", sighting{})
	c.queue.Add(key)
}

// resumed is told by the ledger that a key is parked no longer.
func (c *Controller) unparked(key Key, parked time.Duration) {
	c.recorder.Parked(parked)
	klog.Background().V(4).Info("No longer parked", "controller", c.name, "key", key, "for", parked)
}

// mistake keeps an error of a function that returns none, for NewManager to report.
func (c *Controller) mistake(format string, args ...any) {
	c.mistakes = append(c.mistakes, fmt.Errorf("controller %q: "+format, append([]any{c.name}, args...)...))
}

// start adds the controller's workers to a group. They take keys until taking ends, and reconcile within acting, which
// lasts longer.
func (c *Controller) start(taking, acting context.Context, group *lifecycle.Group) {
	klog.FromContext(acting).V(1).Info("Workers start", "controller", c.name, "workers", c.workers)
	var add func()
	add = func() {
		group.Go("worker of controller "+c.name, func() { newWorker(c, taking, acting, add).work() })
	}
	for range c.workers {
		add()
	}
	group.Go("prober of controller "+c.name, func() { c.ledger.runProber(taking, group, c.name) })
}

// putBack ends a claim on which no run has ended. The key waits for whoever leads next in this process, and its
// failures stay counted.
func (c *Controller) putBack(claim workqueue.Claim[Key]) {
	c.queue.Add(claim.Key())
	claim.Rest(0)
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
