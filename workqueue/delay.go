package workqueue

import (
	"math"
	"time"
)

// A key has two alarms. Each is set to the earliest time asked for, and rings once.
const (
	asked = 0 // by AddAfter and its like: stands until it rings or is cancelled
	left  = 1 // by the outcome of the key's latest run: the next claim clears it
)

// Cancel takes back every delay of key: what AddAfter and AddRateLimited asked for and what an outcome left. It says
// whether there was one. A key that is ready or held is not affected, nor what the rate limiter counts: Cancel never
// loses an Add.
func (q *Queue[K]) Cancel(key K) bool {
	hash := q.entries.hash(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries.get(key, hash)
	if e == nil || !e.delayed() {
		return false
	}
	q.clearAlarm(e, asked)
	q.clearAlarm(e, left)
	if e.turn == nil || e.turn.state == idle {
		q.rest(e)
	}
	return true
}

// setAlarm lets e's alarm ring after d, unless it rings earlier anyway.
func (q *Queue[K]) setAlarm(e *entry[K], kind int, d time.Duration, p Priority, limited bool) {
	at := after(q.now(), d)
	if was := e.at[kind]; was != 0 {
		limited = limited && e.limited[kind]
		at, p = min(at, was), max(p, e.priority[kind])
	}
	e.limited[kind] = limited
	e.priority[kind] = p
	if e.delayed() {
		e.at[kind] = at
		q.alarms.up(e.alarm)
	} else {
		e.at[kind] = at
		q.alarms.add(e)
	}
	q.arm(q.alarms[0].due())
}

func (q *Queue[K]) clearAlarm(e *entry[K], kind int) {
	if e.at[kind] == 0 {
		return
	}
	e.at[kind] = 0
	if e.delayed() {
		q.alarms.down(e.alarm)
	} else {
		q.alarms.remove(e)
	}
}

// arm makes sure that the queue wakes by the time at. Waking too early is harmless, so the timer is never set back.
func (q *Queue[K]) arm(at int64) {
	if q.down || q.armed != 0 && q.armed <= at {
		return
	}
	q.armed = at
	d := time.Duration(at - q.now())
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.ring)
	} else {
		q.timer.Reset(d)
	}
}

// armForToken makes sure that a worker is woken when the first key in aside gets its token.
func (q *Queue[K]) armForToken() {
	if q.aside.n == 0 {
		return
	}
	if now, next := q.now(), q.tokens.next(); next > now || q.waiters.n > 0 { // else the next worker that looks finds it
		q.arm(max(next, now))
	}
}

// ring runs when the timer fires: the keys whose alarm is due become wanted, and the timer is set anew.
func (q *Queue[K]) ring() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = 0
	for !q.ringSome() {
		// A million keys that are due at once must not keep everybody else from the lock.
		q.mu.Unlock()
		q.mu.Lock()
	}
	if q.down {
		return
	}
	if len(q.alarms) > 0 {
		q.arm(q.alarms[0].due())
	}
	now := q.now()
	if q.aside.n > 0 {
		if q.tokens.next() > now {
			q.arm(q.tokens.next())
		} else if q.waiters.n > 0 {
			q.waiters.wake()
		} // else the next worker that looks for a key finds the token
	}
	if q.coarse != 0 {
		if q.coarse = 0; q.stamped {
			q.coarse, q.stamped = now, false
			q.arm(now + int64(granularity))
		}
	}
}

// ringSome lets up to a thousand alarms ring, and says whether that was all that are due.
func (q *Queue[K]) ringSome() (all bool) {
	now := q.now()
	for range 1000 {
		if q.down || len(q.alarms) == 0 || q.alarms[0].due() > now {
			return true
		}
		e := q.alarms[0]
		for kind, at := range e.at {
			if at != 0 && at <= now {
				q.clearAlarm(e, kind)
				q.want(e, e.priority[kind], e.limited[kind])
			}
		}
	}
	return false
}

// after is now+d, or the end of time.
func after(now int64, d time.Duration) int64 {
	if at := now + int64(max(d, 0)); at > 0 {
		return at
	}
	return math.MaxInt64
}

// due is when the next alarm of e rings.
func (e *entry[K]) due() int64 {
	switch {
	case e.at[asked] == 0:
		return e.at[left]
	case e.at[left] == 0:
		return e.at[asked]
	}
	return min(e.at[asked], e.at[left])
}

// alarms is a binary heap of the entries that have one:
//
//	alarms[(i-1)/2].due() <= alarms[i].due() and alarms[i].alarm == i
type alarms[K comparable] []*entry[K]

func (h *alarms[K]) add(e *entry[K]) {
	e.alarm = int32(len(*h))
	*h = append(*h, e)
	h.up(e.alarm)
}

func (h *alarms[K]) remove(e *entry[K]) {
	last := len(*h) - 1
	moved := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	if moved != e {
		(*h)[e.alarm], moved.alarm = moved, e.alarm
		h.up(moved.alarm)
		h.down(moved.alarm)
	}
	if cap(*h) > 1024 && last < cap(*h)/4 { // after a burst
		*h = append(make(alarms[K], 0, cap(*h)/2), *h...)
	}
}

func (h alarms[K]) up(i int32) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].due() <= h[i].due() {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h alarms[K]) down(i int32) {
	for {
		child := 2*i + 1
		if int(child) >= len(h) {
			return
		}
		if int(child)+1 < len(h) && h[child+1].due() < h[child].due() {
			child++
		}
		if h[i].due() <= h[child].due() {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h alarms[K]) swap(i, j int32) {
	h[i], h[j] = h[j], h[i]
	h[i].alarm, h[j].alarm = i, j
}
