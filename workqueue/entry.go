package workqueue

import (
	"sync/atomic"
	"time"
)

// state says in which of the queue's lists an entry is.
type state uint8

const (
	idle      state = iota // in none; it is kept for an alarm, or leaves
	waiting                // in Queue.ready
	throttled              // in Queue.aside
	active                 // in Queue.active
)

// entry is all that a queue knows about one key.
type entry[K comparable] struct {
	key        K
	next, prev *entry[K] // neighbours in the list that state names
	group      *group    // nil without Options.Group

	// ticket is the live claim on this entry, 0 if there is none. Whoever swaps it to 0 may end the claim, so that
	// one claim ends once, whatever its copies do. Tickets are never given twice, so the claims of an earlier life
	// of the entry fail here as well.
	ticket atomic.Uint64

	at      [2]int64 // when each alarm rings, 0: not set
	since   int64    // state is waiting or throttled, or dirty: when this wait began
	started int64    // state is active: when the run began

	alarm    int32 // index in Queue.alarms; meaningful iff at has a time
	priority Priority
	state    state
	dirty    bool    // wanted again while active
	charged  bool    // waiting, throttled or dirty, only because of rate-limited adds
	limited  [2]bool // as charged, for what each alarm will want
	byGet    bool    // active, handed out by Get
	failing  bool    // added rate-limited and not forgotten since
}

// pending says whether somebody asked for a run that has not begun.
func (e *entry[K]) pending() bool {
	return e.state == waiting || e.state == throttled || e.dirty || e.at != [2]int64{}
}

// list is a doubly linked list through its entries.
type list[K comparable] struct {
	head, tail *entry[K]
	n          int
}

func (l *list[K]) push(e *entry[K]) {
	e.prev, e.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = e
	} else {
		l.head = e
	}
	l.tail = e
	l.n++
}

func (l *list[K]) remove(e *entry[K]) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.tail = e.prev
	}
	e.next, e.prev = nil, nil
	l.n--
}

// group is one of the names that Options.Group returned, shared by the entries that belong to it.
type group struct {
	name string
	refs int // entries that belong to it; the group leaves with the last
}

const maxSpare = 256 // entries kept for reuse: enough for the steady state, nothing to speak of after a burst

// enter makes the entry of a key that the queue knows nothing about.
func (q *Queue[K]) enter(key K, groupName string) *entry[K] {
	e := q.free
	if e != nil {
		q.free, e.next = e.next, nil
		q.spare--
	} else {
		e = new(entry[K])
	}
	e.key = key
	if q.opts.Group != nil {
		g := q.groups[groupName]
		if g == nil {
			if q.groups == nil {
				q.groups = map[string]*group{}
			}
			g = &group{name: groupName}
			q.groups[groupName] = g
		}
		g.refs++
		e.group = g
	}
	q.entries[key] = e
	return e
}

// leave drops an entry of which nothing is left to know.
func (q *Queue[K]) leave(e *entry[K]) {
	q.setFailing(e, false)
	delete(q.entries, e.key)
	if g := e.group; g != nil {
		if g.refs--; g.refs == 0 {
			delete(q.groups, g.name)
		}
		e.group = nil
	}
	var none K
	e.key = none // it may hold strings
	e.priority = 0
	if q.spare < maxSpare {
		e.next, q.free = q.free, e
		q.spare++
	}
}

// want notes that e's key needs a run: it queues an idle one, and marks an active one to be queued again.
func (q *Queue[K]) want(e *entry[K], limited bool) {
	if e.state == idle || e.state == active && !e.dirty {
		e.since, e.charged = q.now(), limited
		q.counts.adds++
		if e.state == active {
			e.dirty = true
		} else {
			q.enqueue(e)
		}
		return
	}
	if e.charged && !limited { // a plain add owes no token
		e.charged = false
		if e.state == throttled {
			q.aside.remove(e)
			q.enqueue(e)
		}
	}
}

// enqueue puts e at the end of the line and sees to it that a worker comes for it.
func (q *Queue[K]) enqueue(e *entry[K]) {
	e.state = waiting
	q.ready.push(e)
	q.wake()
}

// prioritize notes that somebody asks for priority p. Among the asks that one run will serve, the highest counts.
func (q *Queue[K]) prioritize(e *entry[K], p Priority) {
	switch {
	case p == e.priority || p < e.priority && e.pending():
	case e.state == waiting:
		q.ready.remove(e)
		e.priority = p
		q.ready.push(e)
	case e.state == throttled:
		q.aside.remove(e)
		e.priority = p
		q.aside.push(e)
	default:
		e.priority = p
	}
}

func (q *Queue[K]) setFailing(e *entry[K], failing bool) {
	if e.failing == failing {
		return
	}
	e.failing = failing
	if failing {
		q.failing.Add(1)
	} else {
		q.failing.Add(-1)
	}
}

// now is the time on the queue's own scale: nanoseconds since it was made, never 0, which means "not set".
func (q *Queue[K]) now() int64 { return int64(time.Since(q.born)) + 1 }

// wall turns a time on the queue's own scale into one to show.
func (q *Queue[K]) wall(t int64) time.Time { return q.born.Add(time.Duration(t - 1)) }
