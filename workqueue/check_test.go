package workqueue

import (
	"fmt"
	"slices"
)

// check verifies every invariant that the comments on the fields of core, entry, line, waiters and alarms state. It
// is the one place where a test looks inside.
func (q *Queue[K]) check() error {
	q.core.lock()
	defer q.core.mu.Unlock()
	where := map[*turn[K]]state{}
	put := func(l *list[K], s state) (err error) {
		n := 0
		var prev *turn[K]
		for t := l.head; t != nil; prev, t = t, t.next {
			if where[t] != idle {
				err = fmt.Errorf("%v is in two lists", t.entry.key)
			}
			if t.prev != prev {
				err = fmt.Errorf("the links of %v disagree", t.entry.key)
			}
			where[t] = s
			n++
		}
		if l.tail != prev || l.n != n {
			err = fmt.Errorf("the list of state %d has %d turns and a wrong tail or count %d", s, n, l.n)
		}
		return err
	}
	if err := put(&q.core.active, active); err != nil {
		return err
	}
	if err := q.core.ready.check(func(keys *list[K]) error { return put(keys, waiting) }); err != nil {
		return err
	}

	refs, alarms, delayed := map[string]int{}, 0, 0
	for e := range q.core.entries.all {
		k, t := e.key, e.turn
		if e.delayed() {
			delayed++
		}
		for kind, i := range e.alarm {
			if i == 0 {
				continue
			}
			alarms++
			if int(i) >= len(q.core.alarms) || q.core.alarms[i].entry != e || e.kind(i) != kind {
				return fmt.Errorf("%v has an alarm that is not in the heap", k)
			}
		}
		if t == nil {
			if !e.delayed() {
				return fmt.Errorf("%v is kept for nothing", k)
			}
			if q.opts.Group != nil {
				return fmt.Errorf("%v has lost its group", k)
			}
			continue
		}
		switch {
		case t.entry != e:
			return fmt.Errorf("%v has a turn of another key", k)
		case where[t] != t.state:
			return fmt.Errorf("%v has state %d and is in list %d", k, t.state, where[t])
		case t.state == idle && (t.group == nil || !e.delayed()):
			return fmt.Errorf("%v is kept for nothing", k)
		case t.dirty && t.state != active:
			return fmt.Errorf("%v is dirty, and not active", k)
		case t.byGet && t.state != active:
			return fmt.Errorf("%v is held by Get, and not active", k)
		case t.ticket.Load() != 0 && (t.state != active || t.byGet):
			return fmt.Errorf("%v has a ticket, and no claim", k)
		case t.state == active && !t.byGet && e.alarm[ofOutcome] != 0:
			return fmt.Errorf("%v is claimed, and the outcome of its last run still stands", k)
		case (t.group != nil) != (q.opts.Group != nil):
			return fmt.Errorf("%v has the wrong kind of group", k)
		}
		delete(where, t)
		if t.group != nil {
			refs[t.group.name]++
			if q.core.groups[t.group.name] != t.group {
				return fmt.Errorf("%v belongs to a group that is gone", k)
			}
		}
	}
	if len(where) > 0 {
		return fmt.Errorf("%d turns are listed, and have no entry", len(where))
	}
	if alarms != max(len(q.core.alarms)-1, 0) || delayed != q.core.delayed {
		return fmt.Errorf("%d entries have %d alarms, the heap has %d places and counts %d", delayed, alarms,
			len(q.core.alarms), q.core.delayed)
	}
	for name, g := range q.core.groups {
		if g.refs != refs[name] || g.refs == 0 {
			return fmt.Errorf("group %q has %d entries, counted as %d", name, refs[name], g.refs)
		}
	}
	if err := q.core.entries.check(); err != nil {
		return err
	}

	for i, a := range q.core.alarms {
		if q.core.alarms[i/2].at > a.at {
			return fmt.Errorf("alarm %d rings before its parent", i)
		}
		if (i == 0) != (a.entry == nil) {
			return fmt.Errorf("alarm %d belongs to %v", i, a.entry)
		}
	}
	for i, a := range q.core.alarms[len(q.core.alarms):cap(q.core.alarms)] {
		if a != (alarm[K]{}) {
			return fmt.Errorf("the place of alarm %d remembers the last one", len(q.core.alarms)+i)
		}
	}
	if next := q.core.alarms.next(); !q.core.down && next != never && (q.core.armed == 0 || q.core.armed > next) {
		return fmt.Errorf("the timer is set to %d, after the first alarm at %d", q.core.armed, next)
	}

	n := len(q.core.waiters.asleep)
	for i, w := range q.core.waiters.asleep {
		if len(w) != 0 {
			return fmt.Errorf("a waiter in the list was woken")
		}
		if slices.Contains(q.core.waiters.asleep[:i], w) || slices.Contains(q.core.waiters.free, w) {
			return fmt.Errorf("a waiter is in the list twice")
		}
	}
	switch {
	case n > 0 && q.core.waiters.waking < q.core.ready.n:
		return fmt.Errorf("%d keys are ready, %d workers sleep and only %d are awake", q.core.ready.n, n,
			q.core.waiters.waking)
	case q.core.down && n > 0:
		return fmt.Errorf("%d workers sleep after the shutdown", n)
	}
	for _, t := range q.core.pool.turns {
		if t.state != idle || t.entry != nil || t.group != nil || t.next != nil || t.prev != nil ||
			t.dirty || t.byGet || t.ticket.Load() != 0 {
			return fmt.Errorf("a spare turn remembers its last key")
		}
	}
	for _, e := range q.core.pool.entries {
		if *e != (entry[K]{}) {
			return fmt.Errorf("a spare entry remembers its last key")
		}
	}
	if len(q.core.pool.entries) > poolSize || len(q.core.pool.turns) > poolSize {
		return fmt.Errorf("too many spares")
	}
	return nil
}

func (x *index[K]) check() error {
	total := 0
	for i := range x.tables {
		n, left := 0, 0
		for j, e := range x.tables[i].slots {
			t := x.tables[i].tags[j]
			if (t < used) != (e == nil) || e != nil && t != tag(e.hash) {
				return fmt.Errorf("slot %d of table %d has the tag %d, which is not that of its entry", j, i, t)
			}
			if t == vacated {
				if left++; x.tables[i].tags[x.tables[i].after(j)] == empty {
					return fmt.Errorf("slot %d of table %d is vacated for nothing", j, i)
				}
			}
			if e == nil {
				continue
			}
			n++
			if e.hash != x.hash(e.key) || x.table(e.hash) != &x.tables[i] || x.get(e.key, e.hash) != e {
				return fmt.Errorf("%v is in slot %d, where nobody finds it", e.key, j)
			}
		}
		if slots := len(x.tables[i].slots); n != x.tables[i].n || left != x.tables[i].vacated || n+left > slots*3/4 ||
			slots/3 >= fewSlots && n < slots/6 {
			return fmt.Errorf("table %d has %d entries and %d that left, counted as %d and %d, in %d slots", i, n, left,
				x.tables[i].n, x.tables[i].vacated, slots)
		}
		total += n
	}
	if total != x.n {
		return fmt.Errorf("the index has %d entries, counted as %d", total, x.n)
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
		for f := c.next; ring == 0 || f != c.next; f = f.next {
			ring++
			inClass += f.keys.n
			if f.keys.n == 0 || c.flows[f.group] != f || f.next.prev != f {
				return fmt.Errorf("a flow of priority %d is empty, lost or badly linked", c.priority)
			}
			if err := list(&f.keys); err != nil {
				return err
			}
			for t := f.keys.head; t != nil; t = t.next {
				if t.priority != c.priority || t.group != f.group {
					return fmt.Errorf("%v waits in the wrong place", t.entry.key)
				}
			}
		}
		if inClass != c.n || ring != len(c.flows) {
			return fmt.Errorf("priority %d has %d keys in %d flows, counted as %d in %d", c.priority, inClass, ring,
				c.n, len(c.flows))
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
