package workqueue

import (
	"math"
	"time"
)

// A key has two alarms. Each is set to the earliest time asked for, and rings once.
const (
	ofAdd     = 0 // set by AddAfter and its like; stands until it rings or is cancelled
	ofOutcome = 1 // set by the outcome of the key's latest run; the next claim clears it
)

// setAlarm lets e's alarm ring after d, unless it rings earlier anyway.
func (c *core[K]) setAlarm(e *entry[K], kind int, d time.Duration, p Priority) {
	at := later(c.now(), d)
	if e.alarm[kind] != 0 {
		p = max(p, e.priority[kind])
		c.alarms.hasten(e, kind, at)
	} else {
		if !e.delayed() {
			c.delayed++
		}
		c.alarms.add(e, kind, at)
	}
	e.priority[kind] = p
	c.arm(c.alarms.next())
}

func (c *core[K]) clearAlarm(e *entry[K], kind int) {
	if e.alarm[kind] == 0 {
		return
	}
	c.alarms.remove(e, kind)
	if !e.delayed() {
		c.delayed--
	}
}

// arm lets ring run at the time at or before. To run too early is harmless, so the timer is never set back.
func (c *core[K]) arm(at int64) {
	if c.down || c.armed != 0 && c.armed <= at {
		return
	}
	c.armed = at
	d := time.Duration(at - c.now())
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.ring)
	} else {
		c.timer.Reset(d)
	}
}

// ring runs when the timer fires: it wants the keys whose alarm is due, and sets the timer anew.
func (c *core[K]) ring() {
	c.lock()
	defer c.mu.Unlock()
	c.armed = 1 // nothing is earlier, so an alarm that is set between the steps does not set the timer
	for !c.ringSome() {
		// A million keys that are due at once must not keep the workers from the lock.
		c.mu.Unlock()
		c.lock()
	}
	c.armed = 0
	if c.down {
		return
	}
	if next := c.alarms.next(); next != never {
		c.arm(next)
	}
	if c.rough != 0 {
		c.rough = 0
		if c.roughUsed {
			c.rough, c.roughUsed = c.now(), false
			c.arm(c.rough + int64(granularity))
		}
	}
}

// ringSome lets up to a thousand alarms ring, and reports whether no more are due.
func (c *core[K]) ringSome() (all bool) {
	now := c.now()
	for range 1000 {
		if c.down || c.alarms.next() > now {
			return true
		}
		e := c.alarms[1].entry
		kind := c.alarms.first(e)
		c.clearAlarm(e, kind)
		c.want(e, e.priority[kind])
	}
	return false
}

// later is now+d, or the end of time.
func later(now int64, d time.Duration) int64 {
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
	if e.alarm[ofAdd] == 0 || e.alarm[ofOutcome] != 0 && h[e.alarm[ofOutcome]].at < h[e.alarm[ofAdd]].at {
		return ofOutcome
	}
	return ofAdd
}

func (h *alarms[K]) add(e *entry[K], kind int, at int64) {
	if *h == nil {
		*h = append(*h, alarm[K]{at: math.MinInt64})
	}
	*h = append(*h, alarm[K]{})
	h.sift(int32(len(*h)-1), alarm[K]{at, e}, kind)
}

// hasten lets the alarm of e ring at the time at, unless it rings earlier anyway.
func (h alarms[K]) hasten(e *entry[K], kind int, at int64) {
	if i := e.alarm[kind]; at < h[i].at {
		h.sift(i, alarm[K]{at, e}, kind)
	}
}

func (h *alarms[K]) remove(e *entry[K], kind int) {
	free, last := e.alarm[kind], int32(len(*h)-1)
	e.alarm[kind] = 0
	moved := (*h)[last]
	(*h)[last] = alarm[K]{} // the key may hold memory
	*h = (*h)[:last]
	if free != last {
		h.sift(free, moved, moved.entry.kind(last))
	}
	if cap(*h) > 1024 && int(last) < cap(*h)/4 { // after a burst
		*h = append(make(alarms[K], 0, cap(*h)/2), *h...)
	}
}

// sift puts a where it belongs, from the free place i upwards or downwards.
func (h alarms[K]) sift(i int32, a alarm[K], kind int) {
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
	if e.alarm[ofAdd] == i {
		return ofAdd
	}
	return ofOutcome
}
