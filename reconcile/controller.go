package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// RateLimiter says how long a key rests after a failure. Nil: 5 ms, doubled with each failure in a row, up to
	// 1,000 s. That is used, too, after RateLimiter has panicked or ended its goroutine, which is logged.
	RateLimiter workqueue.RateLimiter[Key]
	// AllowHotLoops switches the detection of hot loops off: keys that repeat themselves are not slowed down. The
	// package's doc says what a hot loop is.
	AllowHotLoops bool
	// Metrics collects what the controller does. Nil: nothing is collected.
	Metrics Metrics
}

// Controller calls a Reconciler for each key that one of its sources names: at most one call for a key at a time, and
// none for a key whose last run wrote something that the caches have not seen. Make one with [NewController], give it
// sources with [For], [Owns], [Watches] and [WatchesChan], and hand it to a [Manager], which runs it.
type Controller struct {
	// Never changed after NewController. What it points to has locks of its own.
	name       string
	reconciler Reconciler
	workers    int
	timeout    time.Duration
	queue      *workqueue.Queue[Key]
	ledger     *ledger
	history    *keyHistory
	recorder   Recorder
	stuck      stuckCalls

	// Changed by For and its like, and by NewManager, in one goroutine; not after the Manager has started.
	sources    []source
	channels   []channel
	mistakes   []error
	hasManager bool // no more sources can be added
}

// NewController makes a controller. Its name stands in logs, errors and metrics. The error joins every mistake in the
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
		name: name, reconciler: r, workers: cmp.Or(opts.Workers, 1), timeout: cmp.Or(opts.Timeout, 2*time.Minute),
		recorder: noRecorder{}, history: newKeyHistory(opts.AllowHotLoops),
	}
	queue := workqueue.Options[Key]{Name: name}
	if opts.RateLimiter != nil {
		queue.RateLimiter = newGuardedLimiter(name, opts.RateLimiter)
	}
	told := &guardedRecorder{guard: guard{what: "Recorder", controller: name}}
	if opts.Metrics != nil {
		c.recorder, queue.Metrics = told, told
	}
	var err error
	if c.queue, err = workqueue.New(queue); err != nil {
		return nil, fmt.Errorf("NewController %q: %w", name, err)
	}
	c.ledger = newLedger(c.queue.Add, c.unparked)
	if opts.Metrics != nil { // last, for Stats may be called from now on
		if told.recorder = opts.Metrics.Controller(name, c.Stats); kube.IsNil(told.recorder) {
			return nil, fmt.Errorf("NewController %q: Options.Metrics has returned no Recorder", name)
		}
	}
	return c, nil
}

// Name returns the controller's name.
func (c *Controller) Name() string { return c.name }

// Enqueue adds a key from outside: for triggers that are neither objects of an informer nor values of a channel. A
// controller that has no other trigger still needs a source: name the informers that its Reconcile reads by
// [DependsOn].
func (c *Controller) Enqueue(key Key) { c.enqueueFor(key, "Enqueue") }

// enqueueFor adds a key that a source without objects has named.
func (c *Controller) enqueueFor(key Key, source string) {
	c.history.recordCause(key, source, Key{}, "", sighting{})
	c.queue.Add(key)
}

// unparked is called by the ledger when a key is no longer parked.
func (c *Controller) unparked(key Key, parked time.Duration) {
	c.recorder.Parked(parked)
	klog.Background().V(4).Info("No longer parked", "controller", c.name, "key", key, "for", parked)
}

// mistake keeps an error of a function that returns none. NewManager returns it.
func (c *Controller) mistake(format string, args ...any) {
	c.mistakes = append(c.mistakes, fmt.Errorf("controller %q: "+format, append([]any{c.name}, args...)...))
}

// start adds the controller's workers and its prober to a group. They take keys until takeCtx ends, and reconcile
// within runCtx, which lasts longer.
func (c *Controller) start(takeCtx, runCtx context.Context, group *lifecycle.Group) {
	klog.FromContext(runCtx).V(1).Info("Workers start", "controller", c.name, "workers", c.workers)
	var add func()
	add = func() {
		group.Go("worker of controller "+c.name, func() { newWorker(c, takeCtx, runCtx, add).work() })
	}
	for range c.workers {
		add()
	}
	group.Go("prober of controller "+c.name, func() { c.ledger.prober.run(takeCtx, group, c.name) })
}
