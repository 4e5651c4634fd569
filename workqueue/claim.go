package workqueue

import (
	"context"
	"time"
)

// Claim is the right to work on one key, handed out by [Queue.Take]. Each of its methods but Key, Priority and Group
// ends it. The first call counts; any later one, on a copy too, does nothing but count as a stray. Until a claim ends
// no other worker gets its key. The zero Claim has ended.
//
// The method that ends a claim is the outcome of the run. It replaces the delay that an earlier outcome set. It does
// not touch what others asked for: a key that was added during the run becomes ready again whatever the outcome, and
// the delay of an AddAfter stands.
//
//	            the run           its failures     the key comes back
//	Done        succeeded         are forgotten    no
//	DoneAfter   succeeded         are forgotten    after the delay that the run chose
//	Retry       failed            are one more     after the delay that the rate limiter returns
//	RetryAfter  failed            are one more     after the delay that the run chose
//	Rest        neither of these  are unchanged    no, or after the longest rest
//
// After a shutdown an outcome brings no key back; [Queue.Drain] returns the keys for which one asked.
type Claim[K comparable] struct {
	q      *Queue[K]
	turn   *turn[K]
	ticket uint64
	key    K
}

// Take waits for a key and claims it. It returns ctx's error as soon as ctx ends, and [ErrShutDown] when the queue is
// shut down and has no more keys to hand out. With a ctx that has ended it claims nothing.
func (q *Queue[K]) Take(ctx context.Context) (Claim[K], error) {
	t, key, err := q.next(ctx, false)
	if err != nil {
		return Claim[K]{}, err
	}
	return Claim[K]{q, t, t.ticket.Load(), key}, nil // no copy exists yet, so the ticket is still its own
}

// Key returns the key that was claimed.
func (c Claim[K]) Key() K { return c.key }

// Priority returns the priority with which the key was handed out. It must not be called after the claim has ended.
func (c Claim[K]) Priority() Priority {
	if c.turn == nil {
		return 0
	}
	return c.turn.priority
}

// Group returns the key's group, or "" without Options.Group. It must not be called after the claim has ended.
func (c Claim[K]) Group() string {
	if c.turn == nil || c.turn.group == nil {
		return ""
	}
	return c.turn.group.name
}

// Done ends the claim: the run succeeded.
func (c Claim[K]) Done() {
	if c.use() {
		c.q.opts.RateLimiter.Forget(c.key)
		c.q.end(c.turn, outcome{})
	}
}

// DoneAfter ends the claim: the run succeeded, and the key comes back after d, at once if d is not positive.
func (c Claim[K]) DoneAfter(d time.Duration) {
	if c.use() {
		c.q.opts.RateLimiter.Forget(c.key)
		c.q.end(c.turn, outcome{again: true, after: d})
	}
}

// Retry ends the claim: the run failed, and the key comes back after the delay that the rate limiter returns. Retry
// returns that delay.
func (c Claim[K]) Retry() (d time.Duration) {
	if c.use() {
		d = c.q.opts.RateLimiter.When(c.key)
		c.q.end(c.turn, outcome{again: true, after: d})
	}
	return d
}

// RetryAfter ends the claim: the run failed, and the key comes back after d, at once if d is not positive. The rate
// limiter counts the failure; the delay it asks for does not count.
func (c Claim[K]) RetryAfter(d time.Duration) {
	if c.use() {
		c.q.opts.RateLimiter.When(c.key)
		c.q.end(c.turn, outcome{again: true, after: d})
	}
}

// Rest ends the claim of a run that neither succeeded nor failed: the key rests until it is added, or until longest has
// passed if that is positive. Its failures stay counted.
func (c Claim[K]) Rest(longest time.Duration) {
	if c.use() {
		c.q.end(c.turn, outcome{again: longest > 0, after: longest, rests: true})
	}
}

// use makes the claim void, and reports whether it was not before.
func (c Claim[K]) use() bool {
	if c.turn != nil && c.turn.ticket.CompareAndSwap(c.ticket, 0) {
		return true
	}
	if c.q != nil {
		c.q.core.lock()
		c.q.core.counts.strays++
		c.q.core.mu.Unlock()
	}
	return false
}

// end ends the run of t, whose claim is void already.
func (q *Queue[K]) end(t *turn[K], o outcome) {
	q.core.lock()
	q.finish(t, o)
}

// finish ends the run of t, and tells the metrics. The caller holds the lock; finish lets go of it.
func (q *Queue[K]) finish(t *turn[K], o outcome) {
	c := &q.core
	if q.opts.Metrics == nil {
		c.finish(t, o)
		c.mu.Unlock()
		return
	}
	priority, worked := t.priority, time.Duration(c.now()-t.started)
	c.finish(t, o)
	c.mu.Unlock()
	q.opts.Metrics.Worked(priority, worked)
}

// next waits for a key and hands it out. With byGet the caller must not touch the turn, as [Queue.Done] may end its run
// at any time. next does not return a claim, which is too large for registers: to pass one on twice took a fifth of a
// key's time.
func (q *Queue[K]) next(ctx context.Context, byGet bool) (t *turn[K], key K, err error) {
	// The context is user code, so next asks for its channel before it takes the lock.
	if err = ctx.Err(); err != nil {
		return nil, key, err
	}
	ended := ctx.Done()
	c := &q.core
	c.lock()
	for c.ready.n == 0 {
		if c.down {
			c.mu.Unlock()
			return nil, key, ErrShutDown
		}
		c.wait(ended)
		if isClosed(ended) {
			c.wake() // the key that this worker was woken for is for another one now
			c.mu.Unlock()
			return nil, key, ctx.Err()
		}
	}
	t = c.start(byGet)
	key = t.entry.key
	priority, waited := t.priority, time.Duration(t.started-t.since)
	c.mu.Unlock()
	if q.opts.Metrics != nil {
		q.opts.Metrics.Waited(priority, waited)
	}
	return t, key, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
