package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// Options may be left zero.
type Options struct {
	// Workers is how many keys are reconciled at once. Zero: 1.
	Workers int
	// Timeout is how long a call of Reconcile may take: its ctx ends then. Zero: 2 minutes.
	Timeout time.Duration
	// RateLimiter says how long a key rests after a failure. Nil: 5 ms, doubled with each failure in a row, up to
	// 1,000 s.
	RateLimiter workqueue.RateLimiter[Key]
	// Invalid is called instead of Reconcile for a key whose object, in an informer given to [For], is invalid: its
	// present state could not be decoded, Options.Transform of the informer failed on it, or a [Condition] panicked on
	// it. Reconcile is never called
	// for such a key, as it would take the object for gone, or act on a state that is no longer true.
	//
	// What Invalid is given says why, and has the metadata of that state; ctx and the results are those of Reconcile.
	// It is the place to report the mistake (an Event, a condition), and to let go of an object that is being deleted:
	// objects.Finalize takes the metadata as it is, with a client of metadata. It must not clean up for an object that
	// is not being deleted. When the object is valid again, or gone, Reconcile is called.
	//
	// Nil: the key rests, with a log line that says why, until the object changes. Its finalizers stay.
	Invalid func(ctx context.Context, key Key, why *informer.InvalidError) (Result, error)
	// Priority returns the priority of a key that a source names: of the keys that wait, the queue hands out those with
	// a higher one first. Nil: 0 for all keys. It must be quick, and return the same for the same key.
	//
	// The keys that the first list of an informer names, and those that a resync names, have a priority that is lower
	// by [Background]: so a change that somebody waits for is reconciled before the thousands of objects that a new
	// process looks at once. A key that waits with a low priority gets the higher one when a change names it. No key
	// waits for ever: see MaxOvertaken.
	Priority func(Key) workqueue.Priority
	// MaxOvertaken is how often the queue passes over the keys of a priority in favour of higher ones before one of
	// them is due, as in workqueue.Options. Zero: 10.
	MaxOvertaken int
	// Group returns the group of a key, such as its namespace or its tenant. The queue serves the groups of a priority
	// in turn, one key each, so one with many keys does not keep the others waiting. It must be quick, and return the
	// same for the same key. Nil: first in, first out.
	Group func(Key) string
	// Namespaces returns the namespaces whose objects Reconcile reads or writes for a key, beside the key's own. The
	// key waits until every cache is complete and not too old in these, and for no other namespace: one that is new,
	// slow or refused holds back the keys that need it. It matters for informers that follow some namespaces, each by
	// itself (see [informer.NewNamespaced]); others are waited for as a whole. It must be quick, and may read caches:
	// what a key needs is mostly in its object. It is asked whenever a worker has taken the key, by several
	// workers at once, and by Why and InspectKey. A key that waits is not asked about again: what changes the answer
	// has to name the key. If it panics, that
	// counts as a run that has failed, and Reconcile is not called.
	//
	// Nil: the key's own; for a key without a namespace all that an informer follows, since nobody knows which it
	// needs. [Needs] is for namespaces that come and go.
	Namespaces func(Key) []string
	// ResyncEvery names each object of the informers given to [For] once in this time, changed or not, as Background.
	// The objects take turns. It is for a Reconciler that compares objects with something outside of the cluster, which
	// sends no events. It costs the memory for a second list of the keys. Zero: never. The least value is a second.
	ResyncEvery time.Duration
	// AllowHotLoops switches the detection of hot loops off: keys that repeat themselves are not slowed down. The
	// package's doc and internals.md say what a hot loop is.
	AllowHotLoops bool
	// History is how many runs the controller remembers, of all its keys together, for [Controller.InspectKey]: those
	// that wrote something, failed, were held back or took a second, at most eight of each key. One takes about 500
	// bytes, and 300 more for each write. Zero: 10,000. Negative: none.
	History int
	// OnRun is called with each run that History counts, after it has ended, for traces and the like. The worker waits
	// until OnRun returns, so it must be quick; calls for different keys may overlap. What run refers to is shared with
	// the history: read-only. Nil: nothing is called, and nothing is spent.
	OnRun func(controller string, key Key, run status.Run)
	// Metrics collects what the controller does. Nil: nothing is collected.
	Metrics Metrics
}

// Controller calls a Reconciler for each key that one of its sources names: at most one call for a key at a time, and
// none for a key whose last run wrote something that the caches have not seen. Make one with [NewController], give it
// sources with [For], [Owns], [Watches] and [WatchesChan], and hand it to a [Manager], which runs it.
type Controller struct {
	// Never changed after NewController. What it points to has locks of its own.
	name        string
	reconciler  Reconciler
	workers     int
	timeout     time.Duration
	resyncEvery time.Duration
	invalid     func(context.Context, Key, *informer.InvalidError) (Result, error) // nil: the key rests
	priority    func(Key) workqueue.Priority                                       // nil: 0 for all keys
	namespaces  func(Key) []string                                                 // nil: the key's own, or all
	queue       *workqueue.Queue[Key]
	ledger      *debts.Ledger
	paths       *writes.Paths // of own writes; nil if no run is remembered
	keys        *keys.Table
	errorTexts  bool // whether records have the texts of errors; set by NewManager
	recorder    Recorder
	onRun       func(controller string, key Key, run status.Run) // nil: nobody is told
	stuck       stuckCalls
	paceSaid    sync.Once // the log line of checkPace
	comers      comers
	gone        keys.Gone // of other processes

	// Changed by For and its like, and by NewManager, in one goroutine; not after that.
	sources    []source
	channels   []channel
	references []reference
	needs      []need
	mistakes   []error
	manager    *Manager // nil until NewManager; then no more sources can be added
	shards     sharder  // of that
}

// defaultHistory is how many runs a controller remembers.
const defaultHistory = 10_000

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
	errs = append(errs, opts.mistakes()...)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("NewController %q: %w", name, err)
	}
	c := &Controller{
		name: name, reconciler: r, workers: cmp.Or(opts.Workers, 1), timeout: cmp.Or(opts.Timeout, 2*time.Minute),
		keys:     keys.New(opts.AllowHotLoops, cmp.Or(opts.History, defaultHistory), writes.ResourceOf),
		priority: opts.Priority, namespaces: opts.Namespaces, onRun: opts.OnRun, invalid: opts.Invalid,
		resyncEvery: opts.ResyncEvery,
	}
	recorder := &struct{ Recorder }{noRecorder{}}
	c.recorder = recorder
	queue := workqueue.Options[Key]{Name: name, RateLimiter: opts.RateLimiter, Group: opts.Group,
		MaxOvertaken: opts.MaxOvertaken}
	if opts.Metrics != nil {
		queue.Metrics = recorder
	}
	var err error
	if c.queue, err = workqueue.New(queue); err != nil {
		return nil, fmt.Errorf("NewController %q: %w", name, err)
	}
	c.ledger = debts.New(c.keys, func(key Key) { c.add(key, false) }, c.unparked)
	c.ledger.Controller = name
	if c.keys.Remembers() {
		c.paths = writes.NewPaths(c.ledger.States)
	}
	if opts.Metrics != nil { // last, for Stats may be called from now on
		if recorder.Recorder = opts.Metrics.Controller(name, c.Stats); kube.IsNil(recorder.Recorder) {
			return nil, fmt.Errorf("NewController %q: Options.Metrics has returned no Recorder", name)
		}
	}
	return c, nil
}

// mistakes returns what is wrong with the options.
func (opts Options) mistakes() (errs []error) {
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
	if opts.MaxOvertaken < 0 {
		errs = append(errs, fmt.Errorf("Options.MaxOvertaken is %d; it is how often a priority can be passed over, or "+
			"zero for 10", opts.MaxOvertaken))
	}
	if opts.ResyncEvery != 0 && opts.ResyncEvery < time.Second {
		errs = append(errs, fmt.Errorf("Options.ResyncEvery is %s; it is at least a second, or zero for never",
			opts.ResyncEvery))
	}
	if opts.OnRun != nil && opts.History < 0 {
		errs = append(errs, fmt.Errorf("Options.OnRun is told of the runs that History counts, and History is %d: "+
			"leave one of them out", opts.History))
	}
	return errs
}

// Name returns the controller's name.
func (c *Controller) Name() string { return c.name }

// Enqueue adds a key from outside: for triggers that are neither objects of an informer nor values of a channel. A
// controller that has no other trigger still needs a source: name the informers that its Reconcile reads by
// [DependsOn]. With the Shards of package sharding name it in all processes: the others than its leader drop it, or
// keep it for the case that its slice comes.
func (c *Controller) Enqueue(key Key) { c.enqueueFor(key, "Enqueue") }

// enqueueFor adds a key that a source without objects has named.
func (c *Controller) enqueueFor(key Key, source string) {
	c.keys.Named(key, source, Key{}, "", keys.Sighting{})
	c.add(key, false)
}

// Pause keeps a key from being reconciled until [Controller.Resume] is called for it. It reports whether the key was
// not paused already. A call that goes on is not disturbed. What names the key meanwhile is remembered as it always is:
// the key waits, holds no worker, and runs once when it is resumed. Its delays end as if it were not paused.
//
// A pause is of this process and this controller: it is not in the cluster. It ends with the process, and the next
// leader does not know of it. With the Shards of package sharding the next leader of a key may come at any time, as
// when a process joins: it reconciles the key. A pause by a process that does not lead the key does nothing until it
// does. The key need not exist.
func (c *Controller) Pause(key Key) bool {
	return c.keys.Hold(key, status.Wait{For: status.WaitPaused, From: time.Now()})
}

// Resume ends the pause of a key, and reports whether there was one. If the key has been due meanwhile, it is
// reconciled as soon as a worker is free.
func (c *Controller) Resume(key Key) bool {
	_, held, due := c.keys.Free(key, status.WaitPaused)
	if due {
		c.add(key, false)
	}
	return held
}

// Background is how much lower the priority of a key is that only the first list of an informer has named, or a resync:
// nobody waits for it more than for the others.
const Background workqueue.Priority = 100

// add adds a key to the queue. It is called for each change that names a key.
func (c *Controller) add(key Key, background bool) {
	var priority workqueue.Priority
	if c.priority != nil {
		priority = c.priority(key)
	}
	if background {
		priority = max(priority, math.MinInt8+Background) - Background
	}
	c.queue.AddWith(key, workqueue.AddOptions{Priority: priority})
}

// unparked queues a key that is no longer parked, before it tells anybody.
func (c *Controller) unparked(key Key, wait status.Wait) {
	parked := wait.To.Sub(wait.From)
	c.add(key, false)
	c.recorder.Parked(parked)
	klog.Background().V(4).Info("No longer parked", "controller", c.name, "key", key, "for", parked)
}

// mistake keeps an error of a function that returns none. NewManager returns it, and after that Run, which ends.
func (c *Controller) mistake(format string, args ...any) {
	err := fmt.Errorf("controller %q: "+format, append([]any{c.name}, args...)...)
	if c.manager != nil {
		c.manager.failures.add(err)
		return
	}
	c.mistakes = append(c.mistakes, err)
}

// start adds the controller's workers and its relister to a group. They take keys until takeCtx ends, and reconcile
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
	group.Go("relister of controller "+c.name, func() { c.ledger.RunRelister(takeCtx, c.name) })
}
