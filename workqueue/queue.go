package workqueue

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// ErrShutDown is what [Queue.Take] returns once the queue is shut down and nothing is left in it to hand out.
var ErrShutDown = errors.New("workqueue: queue is shut down")

// Defaults of the Options.
const (
	defaultBase         = 5 * time.Millisecond // of the RateLimiter
	defaultMost         = 1000 * time.Second   // of the RateLimiter
	defaultMaxOvertaken = 10
)

// Options shape a [Queue]. The zero value is a plain first-in-first-out queue with back-off for each key.
type Options[K comparable] struct {
	// Name tells this queue from others in metrics and on pages. Empty means unnamed.
	Name string

	// RateLimiter says how long a key that failed has to wait. nil means
	// Exponential(5*time.Millisecond, 1000*time.Second, 0).
	RateLimiter RateLimiter[K]

	// Group names the party that a key belongs to (its namespace, its tenant). The groups of a priority are served
	// in turn, one key each, so that a group with many keys cannot starve the others. It is called without a lock,
	// and must return the same name for the same key. nil means that there are no groups.
	Group func(K) string

	// MaxOvertaken is how often a priority that has ready keys is passed over in favour of higher ones before it is
	// due; while P priorities have ready keys, one of its keys is handed out after MaxOvertaken+P-2 others at most.
	// Zero means 10. It matters only once a key is added with a priority other than 0.
	MaxOvertaken int

	// Metrics is told how long keys waited and how long they were worked on. nil means nobody is.
	Metrics Metrics
}

// Queue holds the keys that need attention and hands each of them to one worker at a time. See the package's doc for
// the life of a key. Make one with [New]; its methods may be called from any goroutine.
type Queue[K comparable] struct {
	opts Options[K]
	born time.Time // zero point of all times below, which are nanoseconds since then and never 0

	mu sync.Mutex // guards all fields below, except the tickets of turns, panics and panicLog

	// For every entry e and its turn t:
	//   t is in ready  <=> t.state == waiting
	//   t is in active <=> t.state == active
	//   e is in alarms, once or twice <=> e.alarm has an index that is not 0
	//   t.dirty         => t.state == active
	// An entry of which none of this holds is not in entries: what is known about a key leaves with it.
	entries index[K]
	ready   line[K] // keys whose turn it will be
	active  list[K] // keys in the hands of a worker, the longest held first
	alarms  alarms[K]
	delayed int // entries that are in alarms

	waiters    waiters           // workers that wait for a key
	groups     map[string]*group // the groups that some entry belongs to; nil without Options.Group
	mostGroups int               // that groups has held; see roomy
	pool       pool[K]
	tickets    uint64 // the last ticket that a claim was given

	read    int64       // the time, as this hold of the lock knows it; 0: the clock has not been read yet; see now
	timer   *time.Timer // runs ring; made when first needed
	armed   int64       // when it fires; 0: not set; 1: it has fired, and alarms are ringing
	coarse  int64       // see stamp; 0: to be read anew
	stamped bool        // coarse was used since it was read

	down    bool          // no more adds, no more alarms
	idle    chan struct{} // closed when ready and active are both empty; nil unless a drain waits for it
	hurried chan struct{} // closed by ShutDown to end ShutDownWithDrain; nil unless that was called

	counts   counts
	panics   atomic.Uint64 // of user code
	panicLog lifecycle.LogLimit
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
	q := &Queue[K]{opts: o, born: time.Now(), entries: index[K]{seed: maphash.MakeSeed()}}
	if o.Group != nil {
		q.groups = map[string]*group{}
	}
	q.ready.maxOvertaken = o.MaxOvertaken
	return q, nil
}

// Name returns Options.Name.
func (q *Queue[K]) Name() string { return q.opts.Name }

// AddOptions say how [Queue.AddWith] adds a key. The zero value is what [Queue.Add] does.
type AddOptions struct {
	// Priority of the key while it waits: keys of a higher one go first, within the bound of Options.MaxOvertaken.
	// A key that is added several times before it is handed out has the highest of the priorities asked for.
	Priority Priority

	// After is how long to wait before the key is queued. Zero and less mean at once.
	After time.Duration

	// RateLimited counts this add as a failure with the RateLimiter and waits for what that says, or for After if
	// that is longer.
	RateLimited bool
}

// Add queues key, unless it waits already: adding a waiting key again does nothing. A key that a worker holds is
// queued again, once, when the worker is done with it. After a shutdown Add does nothing.
func (q *Queue[K]) Add(key K) { q.add(key, AddOptions{}) }

// AddAfter adds key once d has passed, at once if d is not positive. Of several calls for one key the earliest time
// counts, and it counts once. [Queue.Add] in between does not change it; [Queue.Cancel] takes it back.
func (q *Queue[K]) AddAfter(key K, d time.Duration) { q.add(key, AddOptions{After: d}) }

// AddRateLimited counts a failure of key with the rate limiter, and adds key after the delay that this one asks for.
// The count goes back to zero with [Queue.Forget], with [Claim.Done] and with [Claim.DoneAfter]: a worker that calls
// AddRateLimited and then ends its claim with Done starts over each time. [Claim.Retry] is for that.
func (q *Queue[K]) AddRateLimited(key K) { q.add(key, AddOptions{RateLimited: true}) }

// AddWith adds key with priority, delay or rate limit, each as its option says.
func (q *Queue[K]) AddWith(key K, o AddOptions) { q.add(key, o) }

func (q *Queue[K]) add(key K, o AddOptions) {
	if key != key { // nobody could find it again
		panic("workqueue: a key that is not equal to itself; does it contain a NaN?")
	}
	if q.opts.Group == nil && !o.RateLimited {
		q.insert(key, "", o)
		return
	}
	var group string
	wait := time.Duration(0)
	if o.RateLimited {
		wait = defaultMost // should the rate limiter, or the group function, end this goroutine
	}
	defer func() {
		o.After = max(o.After, wait)
		q.insert(key, group, o)
	}()
	if q.opts.Group != nil {
		group = q.groupOf(key)
	}
	if o.RateLimited {
		wait = q.when(key)
	}
}

func (q *Queue[K]) insert(key K, group string, o AddOptions) {
	hash := q.entries.hash(key)
	q.lock()
	defer q.mu.Unlock()
	if q.down {
		return
	}
	e := q.enter(key, hash, group)
	if o.RateLimited || o.After > 0 {
		q.counts.retries++
	}
	if o.After > 0 {
		q.setAlarm(e, asked, o.After, o.Priority)
	} else {
		q.want(e, o.Priority)
	}
}

// Forget sets the count of failures of key back to zero. It changes nothing about where key is in the queue.
func (q *Queue[K]) Forget(key K) { q.forget(key) }

// NumRequeues returns how often key failed since it was last forgotten, according to the rate limiter.
func (q *Queue[K]) NumRequeues(key K) int { return q.failures(key) }

// Get waits for a key and hands it out; the caller calls [Queue.Done] with it when the work is finished. It returns
// shutdown, and no key, when the queue is shut down and empty. [Queue.Take] does the same with a context and a claim
// that cannot be ended by mistake.
func (q *Queue[K]) Get() (key K, shutdown bool) {
	_, key, err := q.next(context.Background(), true)
	return key, err != nil
}

// Done ends the hand-out of key that [Queue.Get] began; if key was added in the meantime it is queued again. For a
// key that Get did not hand out, or that a [Claim] holds, it does nothing but count a stray call.
func (q *Queue[K]) Done(key K) {
	q.lock()
	var t *turn[K]
	if q.active.n <= 8 { // so few that to look at each is cheaper than to hash
		for t = q.active.head; t != nil && t.entry.key != key; {
			t = t.next
		}
	} else {
		q.mu.Unlock() // others need not wait for the hash
		hash := q.entries.hash(key)
		q.lock()
		t = q.held(key, hash)
	}
	if t == nil || !t.byGet {
		q.counts.strays++
		q.mu.Unlock()
		return
	}
	q.finish(t, outcome{})
}

// held returns the turn of an active key, or nil.
func (q *Queue[K]) held(key K, hash uint32) *turn[K] {
	if e := q.entries.get(key, hash); e != nil && e.turn != nil && e.turn.state == active {
		return e.turn
	}
	return nil
}

// Len returns how many keys are ready to be handed out. Keys that are delayed or held by a worker are not among them.
func (q *Queue[K]) Len() int {
	q.lock()
	defer q.mu.Unlock()
	return q.ready.n
}

// ShutDown closes the queue to adds: from now on they do nothing, and delays no longer end. Workers are still given
// what is ready, and a key that was added while they held it; then Get and Take report the shutdown. It ends the
// waiting of [Queue.ShutDownWithDrain].
func (q *Queue[K]) ShutDown() {
	q.lock()
	defer q.mu.Unlock()
	q.shutDown()
	if q.hurried != nil {
		close(q.hurried)
		q.hurried = nil
	}
}

// ShutDownWithDrain is ShutDown, and waits until the workers have done all that was ready or in their hands, or until
// somebody calls ShutDown. [Queue.Drain] waits with a deadline.
func (q *Queue[K]) ShutDownWithDrain() {
	q.lock()
	q.shutDown()
	if q.hurried == nil {
		q.hurried = make(chan struct{})
	}
	idle, hurried := q.whenIdle(), q.hurried
	q.mu.Unlock()
	select {
	case <-idle:
	case <-hurried:
	}
}

// ShuttingDown reports whether the queue was shut down.
func (q *Queue[K]) ShuttingDown() bool {
	q.lock()
	defer q.mu.Unlock()
	return q.down
}

// Drain is ShutDown, and waits until the workers have done all that was ready or in their hands, or until ctx ends.
// It returns the keys that were left undone, in no particular order: those that are delayed or that an outcome asked
// for, and if ctx ended, whose error is then returned, those that are ready or still held.
func (q *Queue[K]) Drain(ctx context.Context) (undone []K, err error) {
	q.lock()
	q.shutDown()
	idle := q.whenIdle()
	q.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.lock()
	defer q.mu.Unlock()
	if q.isIdle() {
		err = nil
	}
	for e := range q.entries.all {
		undone = append(undone, e.key)
	}
	return undone, err
}

func (q *Queue[K]) shutDown() {
	q.down = true
	if q.timer != nil {
		q.timer.Stop()
	}
	for q.waiters.n > 0 {
		q.waiters.wake()
	}
}

// lock takes the lock, and forgets the time that the hold before it knew. If it is taken, other goroutines run first:
// it is held so briefly that to wait at the mutex, which spins, parks and wakes, takes longer than the work, and the
// memory in question changes cores each time. With 8 producers and 8 workers on 2 cores a key needs a fifth less time
// for it.
func (q *Queue[K]) lock() {
	if !q.mu.TryLock() {
		q.lockSlow()
	}
	q.read = 0
}

func (q *Queue[K]) lockSlow() {
	for range 2 {
		runtime.Gosched()
		if q.mu.TryLock() {
			return
		}
	}
	q.mu.Lock()
}

func (q *Queue[K]) isIdle() bool { return q.ready.n == 0 && q.active.n == 0 }

// whenIdle returns a channel that is closed once the queue, which is shut down, is idle.
func (q *Queue[K]) whenIdle() <-chan struct{} {
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.settle()
	return idle
}

// settle tells those who drain that the queue is idle. It is called whenever a key has left ready or active.
func (q *Queue[K]) settle() {
	if q.idle != nil && q.isIdle() {
		close(q.idle)
		q.idle = nil
	}
}

// counts are the totals of a queue's life, as [Stats] tells them.
type counts struct {
	adds, retries, strays uint64
}
