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
	q.lock()
	defer q.mu.Unlock()
	e := q.entries.get(key, hash)
	if e == nil || !e.delayed() {
		return false
	}
	q.clearAlarm(e, asked)
	q.clearAlarm(e, left)
	if e.turn == nil || e.turn.state == idle {
		q.release(e)
	}
	return true
}

// setAlarm lets e's alarm ring after d, unless it rings earlier anyway.
func (q *Queue[K]) setAlarm(e *entry[K], kind int, d time.Duration, p Priority) {
	at := after(q.now(), d)
	if e.alarm[kind] != 0 {
		p = max(p, e.priority[kind])
		q.alarms.hasten(e, kind, at)
	} else {
		if !e.delayed() {
			q.delayed++
		}
		q.alarms.add(e, kind, at)
	}
	e.priority[kind] = p
	q.arm(q.alarms.next())
}

func (q *Queue[K]) clearAlarm(e *entry[K], kind int) {
	if e.alarm[kind] == 0 {
		return
	}
	q.alarms.remove(e, kind)
	if !e.delayed() {
		q.delayed--
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

// ring runs when the timer fires: the keys whose alarm is due become wanted, and the timer is set anew.
func (q *Queue[K]) ring() {
	q.lock()
	defer q.mu.Unlock()
	q.armed = 1 // nothing is earlier: whoever sets an alarm between the steps does not start a second one of these
	for !q.ringSome() {
		// A million keys that are due at once must not keep everybody else from the lock.
		q.mu.Unlock()
		q.lock()
	}
	q.armed = 0
	if q.down {
		return
	}
	if next := q.alarms.next(); next != never {
		q.arm(next)
	}
	if q.coarse != 0 {
		if q.coarse = 0; q.stamped {
			q.coarse, q.stamped = q.now(), false
			q.arm(q.coarse + int64(granularity))
		}
	}
}

// ringSome lets up to a thousand alarms ring, and says whether that was all that are due.
func (q *Queue[K]) ringSome() (all bool) {
	now := q.now()
	for range 1000 {
		if q.down || q.alarms.next() > now {
			return true
		}
		e := q.alarms[1].entry
		kind := q.alarms.first(e)
		q.clearAlarm(e, kind)
		q.want(e, e.priority[kind])
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

// never is the end of time: an alarm that is set to it does not ring.
const never = math.MaxInt64

// alarm is one of the alarms of an entry: the one whose index the entry knows.
type alarm[K comparable] struct {
	at    int64
	entry *entry[K]
}

// alarms is a binary heap. It begins at 1, so that an entry without an alarm can say 0; what is at 0 rings before all.
//
//	alarms[i/2].at <= alarms[i].at and, if i > 0, alarms[i].entry.alarm[kind] == i for one kind
type alarms[K comparable] []alarm[K]

// next is when the next alarm rings.
func (h alarms[K]) next() int64 {
	if len(h) <= 1 {
		return never
	}
	return h[1].at
}

// first returns which alarm of e, which is delayed, rings first.
func (h alarms[K]) first(e *entry[K]) (kind int) {
	if e.alarm[asked] == 0 || e.alarm[left] != 0 && h[e.alarm[left]].at < h[e.alarm[asked]].at {
		return left
	}
	return asked
}

func (h *alarms[K]) add(e *entry[K], kind int, at int64) {
	if *h == nil {
		*h = append(*h, alarm[K]{at: math.MinInt64})
	}
	*h = append(*h, alarm[K]{})
	h.settle(int32(len(*h)-1), alarm[K]{at, e}, kind)
}

// hasten lets the alarm of e ring at the time at, unless it rings earlier anyway.
func (h alarms[K]) hasten(e *entry[K], kind int, at int64) {
	if i := e.alarm[kind]; at < h[i].at {
		h.settle(i, alarm[K]{at, e}, kind)
	}
}

func (h *alarms[K]) remove(e *entry[K], kind int) {
	free, last := e.alarm[kind], int32(len(*h)-1)
	e.alarm[kind] = 0
	moved := (*h)[last]
	(*h)[last] = alarm[K]{} // the key may hold memory
	*h = (*h)[:last]
	if free != last {
		h.settle(free, moved, moved.entry.kind(last))
	}
	if cap(*h) > 1024 && int(last) < cap(*h)/4 { // after a burst
		*h = append(make(alarms[K], 0, cap(*h)/2), *h...)
	}
}

// settle puts a where it belongs, from the free place i upwards or downwards.
func (h alarms[K]) settle(i int32, a alarm[K], kind int) {
	for a.at < h[i/2].at {
		h.move(i/2, i)
		i /= 2
	}
	for child := 2 * i; int(child) < len(h); child = 2 * i {
		if int(child)+1 < len(h) && h[child+1].at < h[child].at {
			child++
		}
		if a.at <= h[child].at {
			break
		}
		h.move(child, i)
		i = child
	}
	h[i], a.entry.alarm[kind] = a, i
}

func (h alarms[K]) move(from, to int32) {
	e := h[from].entry
	h[to], e.alarm[e.kind(from)] = h[from], to
}

// kind returns which of the alarms of e, which has one there, is at i.
func (e *entry[K]) kind(i int32) int {
	if e.alarm[asked] == i {
		return asked
	}
	return left
}
