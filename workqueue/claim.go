package workqueue

import (
	"context"
	"time"
)

// Claim is the right to work on one key, handed out by [Queue.Take]. Each of its methods but Key ends it: the first
// call counts, and any later one, on a copy too, does nothing but count as a stray. Until then no other worker gets the
// key, so a claim that is never ended keeps its key out of circulation. The zero Claim has ended.
//
// How a claim ends is the outcome of the run, and the outcome replaces the delay that an earlier outcome of the same
// key left. What others add is theirs and stays: a key that was added during the run is queued again whatever the
// outcome, and an AddAfter of somebody else still comes.
//
//	            the run          its failures         it comes back by itself
//	Done        succeeded        are forgotten        no
//	DoneAfter   succeeded        are forgotten        after a delay that it chose
//	Retry       failed           are one more         when the rate limiter says so
//	RetryAfter  failed           are one more         after a delay that it chose
//	Rest        left it open     stay what they are   no, or after the longest wait for somebody to add it
//
// After a shutdown nothing is queued again by an outcome; what it asked for is reported by [Queue.Drain].
type Claim[K comparable] struct {
	q      *Queue[K]
	turn   *turn[K]
	ticket uint64
	key    K
}

// Take waits for a key and claims it. It returns ctx's error as soon as ctx ends, and [ErrShutDown] when the queue is
// shut down and has nothing more to hand out. With a ctx that has ended it claims nothing.
func (q *Queue[K]) Take(ctx context.Context) (Claim[K], error) {
	t, key, err := q.next(ctx, false)
	if err != nil {
		return Claim[K]{}, err
	}
	return Claim[K]{q, t, t.ticket.Load(), key}, nil // nobody else can end the claim yet: the ticket is still its own
}

// Key returns the key that was claimed.
func (c Claim[K]) Key() K { return c.key }

// Done ends the claim: the run succeeded.
func (c Claim[K]) Done() {
	if c.use() {
		defer c.q.end(c.turn, outcome{})
		c.q.forget(c.key)
	}
}

// DoneAfter ends the claim: the run succeeded, and the key is to be looked at again after d, at once if d is not
// positive.
func (c Claim[K]) DoneAfter(d time.Duration) {
	if c.use() {
		defer c.q.end(c.turn, outcome{again: true, after: d})
		c.q.forget(c.key)
	}
}

// Retry ends the claim: the run failed, and the key comes back after the delay that the rate limiter asks for. It
// returns that delay.
func (c Claim[K]) Retry() (d time.Duration) {
	if c.use() {
		d = defaultMost // should the rate limiter end this goroutine
		defer func() { c.q.end(c.turn, outcome{again: true, after: d}) }()
		d = c.q.when(c.key)
	}
	return d
}

// RetryAfter ends the claim: the run failed, and the key comes back after d, at once if d is not positive. The rate
// limiter counts the failure; the delay it asks for does not apply.
func (c Claim[K]) RetryAfter(d time.Duration) {
	if c.use() {
		defer c.q.end(c.turn, outcome{again: true, after: d})
		c.q.when(c.key)
	}
}

// Rest ends the claim without a verdict: the key rests until somebody adds it, or until longest has passed if that is
// positive, and its failures stay counted.
func (c Claim[K]) Rest(longest time.Duration) {
	if c.use() {
		c.q.end(c.turn, outcome{again: longest > 0, after: longest, rests: true})
	}
}

// use says whether the claim was still good, and makes it void.
func (c Claim[K]) use() bool {
	if c.turn != nil && c.turn.ticket.CompareAndSwap(c.ticket, 0) {
		return true
	}
	if c.q != nil {
		c.q.lock()
		c.q.counts.strays++
		c.q.mu.Unlock()
	}
	return false
}

// end ends the claim on t, which is void already.
func (q *Queue[K]) end(t *turn[K], o outcome) {
	q.lock()
	q.finish(t, o)
}

// outcome is how a run ended.
type outcome struct {
	again bool          // the run itself asks for another one
	after time.Duration // with again: how long from now
	rests bool          // with again: no verdict, so no retry
}

// finish ends the hand-out of t. It is called with the lock held and returns without it.
func (q *Queue[K]) finish(t *turn[K], o outcome) {
	e, priority, started := t.entry, t.priority, t.started
	if o.again {
		if !o.rests {
			q.counts.retries++
		}
		if o.after > 0 || q.down {
			q.setAlarm(e, left, o.after, priority)
		} else {
			q.want(e, priority)
		}
	}
	q.active.remove(t)
	t.state, t.byGet = idle, false
	if t.dirty {
		t.dirty, t.priority = false, t.dirtyPriority
		q.enqueue(t)
	} else {
		q.release(e)
	}
	q.settle()
	if q.opts.Metrics == nil {
		q.mu.Unlock()
		return
	}
	worked := time.Duration(q.now() - started)
	q.mu.Unlock()
	q.tellWorked(priority, worked)
}

// next waits for a key and hands it out. With byGet the turn is not to be touched, as [Queue.Done] may end it at any
// time. It does not return a claim, which is too large for registers: to pass one on twice took a fifth of a key's
// time.
func (q *Queue[K]) next(ctx context.Context, byGet bool) (t *turn[K], key K, err error) {
	// The context is the caller's code: it is asked before the lock is taken and after this worker has left the
	// waiters, so that nothing but the worker itself is lost if it panics.
	if err = ctx.Err(); err != nil {
		return nil, key, err
	}
	ended := ctx.Done()
	q.lock()
	for q.ready.n == 0 {
		if q.down {
			q.mu.Unlock()
			return nil, key, ErrShutDown
		}
		w, woken := q.waiters.join(), false
		q.mu.Unlock()
		select {
		case <-w.woken:
			woken = true
		case <-ended:
		}
		q.lock()
		if !woken && !q.waiters.quit(w) { // woken at the same moment
			<-w.woken
			woken = true
		}
		if woken {
			q.waiters.waking--
		}
		q.waiters.recycle(w)
		if isClosed(ended) {
			q.wake() // the key that this worker was woken for is for another one now
			q.mu.Unlock()
			if err = ctx.Err(); err == nil { // or the caller would take the zero claim for a real one
				err = context.Canceled
			}
			return nil, key, err
		}
	}
	t = q.ready.pop()
	q.start(t, byGet)
	key = t.entry.key
	priority, waited := t.priority, time.Duration(t.started-t.since)
	q.mu.Unlock()
	if q.opts.Metrics != nil {
		q.waited(t, key, byGet, priority, waited)
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

// waited tells the metrics how long key waited. If they end this goroutine nobody else knows that the key was handed
// out, so the hand-out ends here, and the key is queued again.
func (q *Queue[K]) waited(t *turn[K], key K, byGet bool, p Priority, d time.Duration) {
	told := false
	defer func() {
		switch {
		case told:
		case !byGet:
			t.ticket.Store(0)
			q.end(t, outcome{again: true})
		default:
			hash := q.entries.hash(key)
			q.lock()
			if q.held(key, hash) == t && t.byGet {
				q.finish(t, outcome{again: true})
			} else {
				q.mu.Unlock()
			}
		}
	}()
	q.tellWaited(p, d)
	told = true
}

// start gives a turn that was taken out of the line to a worker.
func (q *Queue[K]) start(t *turn[K], byGet bool) {
	t.state, t.started, t.byGet = active, q.stamp(), byGet
	q.active.push(t)
	if byGet {
		return
	}
	q.clearAlarm(t.entry, left) // this run's own outcome takes its place
	q.tickets++
	t.ticket.Store(q.tickets)
}

// waiters are the workers that found nothing to do, the longest waiting first. A worker is woken through a channel
// of its own, since it has to hear its context as well; channels and waiters are used again.
type waiters struct {
	head, tail *waiter
	n          int     // workers in the list
	waking     int     // workers that were woken, and have not looked yet
	free       *waiter // linked by next
}

type waiter struct {
	next, prev *waiter
	woken      chan struct{} // holds one signal at most
	listed     bool
}

func (ws *waiters) join() *waiter {
	w := ws.free
	if w != nil {
		ws.free = w.next
	} else {
		w = &waiter{woken: make(chan struct{}, 1)}
	}
	w.next, w.prev, w.listed = nil, ws.tail, true
	if ws.tail != nil {
		ws.tail.next = w
	} else {
		ws.head = w
	}
	ws.tail = w
	ws.n++
	return w
}

// quit takes w out of the list, and says whether it was still there.
func (ws *waiters) quit(w *waiter) bool {
	if !w.listed {
		return false
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		ws.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		ws.tail = w.prev
	}
	w.listed = false
	ws.n--
	return true
}

// wake lets the longest waiting worker look.
func (ws *waiters) wake() {
	w := ws.head
	ws.quit(w)
	ws.waking++
	w.woken <- struct{}{}
}

func (ws *waiters) recycle(w *waiter) { w.next, ws.free = ws.free, w }

// wake sees to it that there is a worker awake for each ready key, as long as workers wait:
//
//	waiters.n == 0 || waiters.waking >= ready.n
//
// It is called when a key becomes ready, and when a worker that was woken gives up. A worker that was woken and takes a
// key makes both sides of the inequality one less; one that finds none found ready.n == 0.
func (q *Queue[K]) wake() {
	for q.waiters.n > 0 && q.waiters.waking < q.ready.n {
		q.waiters.wake()
	}
}
