package workqueue

import (
	"fmt"
	"slices"
)

// check verifies every invariant that the comments on the fields of Queue, entry, line, waiters and alarms state. It
// is the one place where a test looks inside.
func (q *Queue[K]) check() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	where := map[*entry[K]]state{}
	put := func(l *list[K], s state) (err error) {
		n := 0
		var prev *entry[K]
		for e := l.head; e != nil; prev, e = e, e.next {
			if where[e] != idle {
				err = fmt.Errorf("%v is in two lists", e.key)
			}
			if e.prev != prev {
				err = fmt.Errorf("the links of %v disagree", e.key)
			}
			where[e] = s
			n++
		}
		if l.tail != prev || l.n != n {
			err = fmt.Errorf("the list of state %d has %d entries and a wrong tail or count %d", s, n, l.n)
		}
		return err
	}
	if err := put(&q.active, active); err != nil {
		return err
	}
	for _, l := range []struct {
		line  *line[K]
		state state
	}{{&q.ready, waiting}, {&q.aside, throttled}} {
		if err := l.line.check(func(keys *list[K]) error { return put(keys, l.state) }); err != nil {
			return err
		}
	}

	failing, refs := 0, map[string]int{}
	for k, e := range q.entries {
		switch {
		case e.key != k:
			return fmt.Errorf("%v is filed under %v", e.key, k)
		case where[e] != e.state:
			return fmt.Errorf("%v has state %d and is in list %d", k, e.state, where[e])
		case e.dirty && e.state != active:
			return fmt.Errorf("%v is dirty, and not active", k)
		case e.byGet && e.state != active:
			return fmt.Errorf("%v is held by Get, and not active", k)
		case e.ticket.Load() != 0 && (e.state != active || e.byGet):
			return fmt.Errorf("%v has a ticket, and no claim", k)
		case e.at != [2]int64{} && (int(e.alarm) >= len(q.alarms) || q.alarms[e.alarm] != e):
			return fmt.Errorf("%v has an alarm that is not in the heap", k)
		case e.state == active && !e.byGet && e.at[left] != 0:
			return fmt.Errorf("%v is claimed, and the outcome of its last run still stands", k)
		case e.state == idle && e.at == [2]int64{}:
			return fmt.Errorf("%v is kept for nothing", k)
		case e.state == throttled && !e.charged:
			return fmt.Errorf("%v waits for a token that it does not owe", k)
		case (e.group != nil) != (q.opts.Group != nil):
			return fmt.Errorf("%v has the wrong kind of group", k)
		}
		delete(where, e)
		if e.failing {
			failing++
		}
		if e.group != nil {
			refs[e.group.name]++
			if q.groups[e.group.name] != e.group {
				return fmt.Errorf("%v belongs to a group that is gone", k)
			}
		}
	}
	if len(where) > 0 {
		return fmt.Errorf("%d entries are listed, and not in entries", len(where))
	}
	if int64(failing) != q.failing.Load() {
		return fmt.Errorf("%d entries are failing, counted as %d", failing, q.failing.Load())
	}
	for name, g := range q.groups {
		if g.refs != refs[name] || g.refs == 0 {
			return fmt.Errorf("group %q has %d entries, counted as %d", name, refs[name], g.refs)
		}
	}

	for i, e := range q.alarms {
		switch {
		case int(e.alarm) != i:
			return fmt.Errorf("alarm %d thinks it is %d", i, e.alarm)
		case e.at == [2]int64{}:
			return fmt.Errorf("%v is in the heap without an alarm", e.key)
		case q.entries[e.key] != e:
			return fmt.Errorf("%v is in the heap, and not in entries", e.key)
		case q.alarms[(i-1)/2].due() > e.due():
			return fmt.Errorf("alarm %d rings before its parent", i)
		}
	}
	if !q.down && len(q.alarms) > 0 && (q.armed == 0 || q.armed > q.alarms[0].due()) {
		return fmt.Errorf("the timer is set to %d, after the first alarm at %d", q.armed, q.alarms[0].due())
	}

	n := 0
	for w := q.waiters.head; w != nil; w = w.next {
		if n++; !w.listed || len(w.woken) != 0 {
			return fmt.Errorf("a waiter in the list was woken")
		}
	}
	switch {
	case n != q.waiters.n:
		return fmt.Errorf("%d waiters, counted as %d", n, q.waiters.n)
	case n > 0 && q.waiters.waking < q.ready.n:
		return fmt.Errorf("%d keys are ready, %d workers sleep and only %d are awake", q.ready.n, n, q.waiters.waking)
	case q.down && n > 0:
		return fmt.Errorf("%d workers sleep after the shutdown", n)
	}
	spare := 0
	for e := q.free; e != nil; e = e.next {
		if spare++; e.state != idle || e.dirty || e.byGet || e.failing || e.group != nil || e.priority != 0 ||
			e.at != [2]int64{} || e.ticket.Load() != 0 {
			return fmt.Errorf("a spare entry remembers its last key")
		}
	}
	if spare != q.spare || spare > maxSpare {
		return fmt.Errorf("%d spare entries, counted as %d", spare, q.spare)
	}
	return nil
}

func (l *line[K]) check(list func(*list[K]) error) error {
	if len(l.classes) > 0 && l.plain.n > 0 {
		return fmt.Errorf("a line has classes and plain keys")
	}
	if err := list(&l.plain); err != nil {
		return err
	}
	n := l.plain.n
	if !slices.IsSortedFunc(l.classes, func(a, b *class[K]) int { return int(b.priority) - int(a.priority) }) {
		return fmt.Errorf("the classes are out of order")
	}
	for _, c := range l.classes {
		inClass, ring := 0, 0
		for f := c.turn; ring == 0 || f != c.turn; f = f.next {
			ring++
			inClass += f.keys.n
			if f.keys.n == 0 || c.flows[f.group] != f || f.next.prev != f {
				return fmt.Errorf("a flow of priority %d is empty, lost or badly linked", c.priority)
			}
			if err := list(&f.keys); err != nil {
				return err
			}
			for e := f.keys.head; e != nil; e = e.next {
				if e.priority != c.priority || e.group != f.group {
					return fmt.Errorf("%v waits in the wrong place", e.key)
				}
			}
		}
		if inClass != c.n || ring != len(c.flows) {
			return fmt.Errorf("priority %d has %d keys in %d flows, counted as %d in %d", c.priority, inClass, ring, c.n, len(c.flows))
		}
		if c.overtaken > l.maxOvertaken+len(l.classes) {
			// P is taken now, and may have been larger when the class was passed over; the tests that look for the
			// exact bound hold P still.
			if c.overtaken > l.maxOvertaken+256 {
				return fmt.Errorf("priority %d was passed over %d times", c.priority, c.overtaken)
			}
		}
		n += c.n
	}
	if n != l.n {
		return fmt.Errorf("a line has %d keys, counted as %d", n, l.n)
	}
	return nil
}
