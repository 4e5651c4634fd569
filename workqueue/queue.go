package workqueue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrShutDown is what [Queue.Take] returns once the queue is shut down and has no more keys to hand out.
var ErrShutDown = errors.New("workqueue: queue is shut down")

// Defaults of the Options.
const (
	defaultBase         = 5 * time.Millisecond // of the RateLimiter
	defaultMost         = 1000 * time.Second   // of the RateLimiter
	defaultMaxOvertaken = 10
)

// Options configure a [Queue]. The zero value is a first-in-first-out queue with exponential back-off per key. The
// queue calls the functions and interfaces in it without a lock, from many goroutines. It does not recover from their
// panics: one ends the process.
type Options[K comparable] struct {
	// Name identifies the queue in log lines. Empty means unnamed.
	Name string

	// RateLimiter decides how long a key waits after a failure. nil means
	// Exponential(5*time.Millisecond, 1000*time.Second, 0).
	RateLimiter RateLimiter[K]

	// Group returns the group that a key belongs to, such as its namespace or its tenant. The queue serves the groups
	// of a priority in turn, one key each, so that a group with many keys cannot starve the others. It must return the
	// same group for the same key. nil means that there are no groups.
	Group func(K) string

	// MaxOvertaken is how often the queue passes over a priority that has ready keys in favour of higher ones before
	// that priority is due. While P priorities have ready keys, one of its keys is handed out after at most
	// MaxOvertaken+P-2 others. Zero means 10. It matters only once a key is added with a priority other than 0.
	MaxOvertaken int

	// Metrics receives how long keys waited and how long workers worked on them. nil means that nothing does.
	Metrics Metrics
}

// Queue holds the keys that need attention and hands each of them to one worker at a time. The package's doc draws the
// life of a key. Make a Queue with [New]; its methods may be called from any goroutine.
type Queue[K comparable] struct {
	opts Options[K] // with all defaults; never changed
	core core[K]    // which keys there are, and where; has the lock
}

// New returns an empty queue, or an error that names the option which makes no sense. The zero Options are valid.
func New[K comparable](o Options[K]) (*Queue[K], error) {
	if o.MaxOvertaken < 0 {
		return nil, fmt.Errorf("workqueue: Options.MaxOvertaken is %d; it is how often a priority can be passed over, "+
			"or zero for %d", o.MaxOvertaken, defaultMaxOvertaken)
	}
	if o.RateLimiter == nil {
		o.RateLimiter = Exponential[K](defaultBase, defaultMost, 0)
	}
	if o.MaxOvertaken == 0 {
		o.MaxOvertaken = defaultMaxOvertaken
	}
	q := &Queue[K]{opts: o}
	q.core.init(o)
	return q, nil
}

// Name returns Options.Name.
func (q *Queue[K]) Name() string { return q.opts.Name }

// AddOptions configure one [Queue.AddWith]. The zero value is what [Queue.Add] does.
type AddOptions struct {
	// Priority of the key while it waits: the queue hands out keys of a higher one first, within the bound of
	// Options.MaxOvertaken. A key that is added several times before it is handed out has the highest of the
	// priorities asked for.
	Priority Priority

	// After is how long to wait before the key becomes ready. Zero and less mean at once.
	After time.Duration

	// RateLimited counts this add as a failure with the RateLimiter, and waits for the delay that this one returns, or
	// for After if that is longer.
	RateLimited bool
}

// Add makes key ready, unless it is ready already: adding a ready key again does nothing. A key that a worker holds
// becomes ready again, once, when the worker ends its run. After a shutdown Add does nothing.
func (q *Queue[K]) Add(key K) { q.AddWith(key, AddOptions{}) }

// AddAfter adds key once d has passed, at once if d is not positive. Of several calls for one key the earliest time
// counts, and it counts once. [Queue.Add] in between does not change it; [Queue.Cancel] takes it back.
func (q *Queue[K]) AddAfter(key K, d time.Duration) { q.AddWith(key, AddOptions{After: d}) }

// AddRateLimited counts a failure of key with the rate limiter, and adds key after the delay that this one returns. The
// count goes back to zero with [Queue.Forget], with [Claim.Done] and with [Claim.DoneAfter], so a worker that calls
// AddRateLimited and then ends its claim with Done starts over each time. Use [Claim.Retry] there.
func (q *Queue[K]) AddRateLimited(key K) { q.AddWith(key, AddOptions{RateLimited: true}) }

// AddWith adds key with a priority, a delay or a rate limit.
func (q *Queue[K]) AddWith(key K, o AddOptions) {
	if key != key { // no lookup would find it again
		panic("workqueue: a key that is not equal to itself; does it contain a NaN?")
	}
	group := ""
	if q.opts.Group != nil {
		group = q.opts.Group(key)
	}
	if o.RateLimited {
		o.After = max(o.After, q.opts.RateLimiter.When(key))
	}
	q.insert(key, group, o)
}

func (q *Queue[K]) insert(key K, group string, o AddOptions) {
	c := &q.core
	hash := c.entries.hash(key)
	c.lock()
	defer c.mu.Unlock()
	if c.down {
		return
	}
	e := c.enter(key, hash, group)
	if o.RateLimited || o.After > 0 {
		c.counts.retries++
	}
	if o.After > 0 {
		c.setAlarm(e, ofAdd, o.After, o.Priority)
	} else {
		c.want(e, o.Priority)
	}
}

// Cancel takes back every delay of key: those of AddAfter, AddWith and AddRateLimited, and that of the latest outcome.
// It reports whether there was one. It changes neither a key that is ready or active nor the counts of the rate
// limiter: Cancel never loses an Add.
func (q *Queue[K]) Cancel(key K) bool {
	c := &q.core
	hash := c.entries.hash(key)
	c.lock()
	defer c.mu.Unlock()
	e := c.entries.get(key, hash)
	if e == nil || !e.delayed() {
		return false
	}
	c.clearAlarm(e, ofAdd)
	c.clearAlarm(e, ofOutcome)
	if e.turn == nil || e.turn.state == idle {
		c.release(e)
	}
	return true
}

// Forget sets the count of failures of key back to zero. It does not change where key is in the queue.
func (q *Queue[K]) Forget(key K) { q.opts.RateLimiter.Forget(key) }

// NumRequeues returns how often key failed since it was last forgotten, according to the rate limiter.
func (q *Queue[K]) NumRequeues(key K) int { return q.opts.RateLimiter.NumRequeues(key) }

// Get waits for a key and hands it out; the caller calls [Queue.Done] with it when its run has ended. It returns
// shutdown, and no key, when the queue is shut down and empty. [Queue.Take] does the same with a context, and its claim
// cannot be ended by mistake.
func (q *Queue[K]) Get() (key K, shutdown bool) {
	_, key, err := q.next(context.Background(), true)
	return key, err != nil
}

// Done ends the run of key that [Queue.Get] began; if key was added in the meantime it becomes ready again. For a key
// that Get did not hand out, or that a [Claim] holds, it does nothing but count a stray call.
func (q *Queue[K]) Done(key K) {
	c := &q.core
	c.lock()
	var t *turn[K]
	if c.active.n <= 8 { // so few that to look at each is cheaper than to hash
		for t = c.active.head; t != nil && t.entry.key != key; {
			t = t.next
		}
	} else {
		c.mu.Unlock() // others need not wait for the hash
		hash := c.entries.hash(key)
		c.lock()
		t = c.activeTurn(key, hash)
	}
	if t == nil || !t.byGet {
		c.counts.strays++
		c.mu.Unlock()
		return
	}
	q.finish(t, outcome{})
}

// Len returns how many keys are ready. Keys that are only delayed or active are not among them.
func (q *Queue[K]) Len() int {
	q.core.lock()
	defer q.core.mu.Unlock()
	return q.core.ready.n
}

// ShutDown closes the queue to adds: from now on they do nothing, and delays no longer end. Workers still receive the
// ready keys, and active keys that were added meanwhile; then Get and Take report the shutdown. ShutDown also ends the
// wait of [Queue.ShutDownWithDrain].
func (q *Queue[K]) ShutDown() {
	c := &q.core
	c.lock()
	defer c.mu.Unlock()
	c.shutDown()
	if c.hurried != nil {
		close(c.hurried)
		c.hurried = nil
	}
}

// ShutDownWithDrain is ShutDown, and waits until the workers have ended the runs of all ready and active keys, or until
// ShutDown is called. [Queue.Drain] waits with a deadline.
func (q *Queue[K]) ShutDownWithDrain() {
	c := &q.core
	c.lock()
	c.shutDown()
	if c.hurried == nil {
		c.hurried = make(chan struct{})
	}
	idle, hurried := c.whenIdle(), c.hurried
	c.mu.Unlock()
	select {
	case <-idle:
	case <-hurried:
	}
}

// ShuttingDown reports whether the queue was shut down.
func (q *Queue[K]) ShuttingDown() bool {
	q.core.lock()
	defer q.core.mu.Unlock()
	return q.core.down
}

// Drain is ShutDown, and waits until the workers have ended the runs of all ready and active keys, or until ctx ends.
// It returns the keys that were left undone, in no particular order: those that are delayed or that an outcome asked
// for, and if ctx ended, whose error Drain then returns, those that are ready or active.
func (q *Queue[K]) Drain(ctx context.Context) (undone []K, err error) {
	c := &q.core
	c.lock()
	c.shutDown()
	idle := c.whenIdle()
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.lock()
	defer c.mu.Unlock()
	if c.isIdle() {
		err = nil
	}
	for e := range c.entries.all {
		undone = append(undone, e.key)
	}
	return undone, err
}
