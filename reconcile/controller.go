package reconcile

import (
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
