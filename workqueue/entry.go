package workqueue

import (
	"maps"
	"sync/atomic"
	"time"
)

// entry is what a queue knows about one key. A key that is delayed has one or two alarms; a key that waits for a
// worker or is in the hands of one has a turn; it may have all of it. A key that has nothing has no entry.
type entry[K comparable] struct {
	key  K
	turn *turn[K] // nil iff the key is neither waiting nor active; with Options.Group never nil

	alarm    [2]int32    // where each alarm is in Queue.alarms; 0: not set
	priority [2]Priority // which the key will have when it rings
	hash     uint32      // of key, for Queue.entries
}

func (e *entry[K]) delayed() bool { return e.alarm != [2]int32{} }

// state says in which of the queue's lists a turn is.
type state uint8

const (
	idle    state = iota // in none; such a turn only keeps the group of a delayed key
	waiting              // in Queue.ready
	active               // in Queue.active
)

// turn is a key's way through the queue, from the add to the end of the run, and on to the next one if the key is
// added again meanwhile.
type turn[K comparable] struct {
	entry      *entry[K]
	next, prev *turn[K] // neighbours in the list that state names
	group      *group   // nil without Options.Group

	// ticket is the live claim on this turn, 0 if there is none. Whoever swaps it for 0 may end the claim, so that a
	// claim ends once, whatever its copies do. No ticket is given twice, so the claims of an earlier life of this
	// turn fail here, too.
	ticket atomic.Uint64

	since   int64 // waiting or dirty: when the wait began
	started int64 // active: when the run began

	state         state
	priority      Priority
	dirty         bool     // active, and wanted again
	dirtyPriority Priority // dirty: which the key will have then
	byGet         bool     // active, handed out by Get
}

// list is a doubly linked list through its turns.
type list[K comparable] struct {
	head, tail *turn[K]
	n          int
}

func (l *list[K]) push(t *turn[K]) {
	t.prev, t.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = t
	} else {
		l.head = t
	}
	l.tail = t
	l.n++
}

func (l *list[K]) remove(t *turn[K]) {
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		l.head = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		l.tail = t.prev
	}
	t.next, t.prev = nil, nil
	l.n--
}

// group is one of the names that Options.Group returned, shared by the turns that belong to it.
type group struct {
	name string
	refs int // entries that belong to it; the group leaves with the last
}

// pool keeps entries and turns for reuse: enough for the batches of a busy informer, and after a burst some 80 kB where
// keys leave in about their order. As turns are made in blocks, it is 0.6 MB at the worst.
type pool[K comparable] struct {
	entries []*entry[K]
	turns   []*turn[K]
}

const poolSize = 512

// roomy is how many keys a map may have held and yet be kept although it holds few. A map stays as large as it once
// was, so one that has held more than that is replaced by a new one when an eighth of them is left.
const roomy = 1024

// shrunk returns m, or a copy if m has become too large for what it holds, and the most that the returned map has held.
func shrunk[M ~map[K]V, K comparable, V any](m M, peak int) (M, int) {
	if peak <= roomy || len(m) > peak/8 {
		return m, peak
	}
	smaller := make(M, len(m))
	maps.Copy(smaller, m)
	return smaller, len(m)
}

func (p *pool[K]) entry() (e *entry[K]) {
	if n := len(p.entries); n > 0 {
		e, p.entries = p.entries[n-1], p.entries[:n-1]
		return e
	}
	return new(entry[K])
}

func (p *pool[K]) turn() (t *turn[K]) {
	if len(p.turns) == 0 {
		// Sixteen at a time. They leave in about the order in which they came, so few blocks outlive a burst.
		for block, i := make([]turn[K], 16), 0; i < len(block); i++ {
			p.turns = append(p.turns, &block[i])
		}
	}
	n := len(p.turns)
	t, p.turns = p.turns[n-1], p.turns[:n-1]
	return t
}

// enter returns the entry of key, a new one if there is none.
func (q *Queue[K]) enter(key K, hash uint32, groupName string) *entry[K] {
	if e := q.entries.get(key, hash); e != nil {
		return e
	}
	e := q.pool.entry()
	e.key, e.hash = key, hash
	q.entries.put(e)
	if q.opts.Group != nil {
		g := q.groups[groupName]
		if g == nil {
			g = &group{name: groupName}
			q.groups[groupName] = g
			q.mostGroups = max(q.mostGroups, len(q.groups))
		}
		g.refs++
		e.turn = q.pool.turn()
		e.turn.entry, e.turn.group = e, g
	}
	return e
}

// release is called when e has no turn any more: an entry that has no alarm either leaves.
func (q *Queue[K]) release(e *entry[K]) {
	t := e.turn
	if e.delayed() {
		if t != nil && t.group == nil {
			q.free(t)
			e.turn = nil
		}
		return
	}
	if t != nil {
		if g := t.group; g != nil {
			if g.refs--; g.refs == 0 {
				delete(q.groups, g.name)
				q.groups, q.mostGroups = shrunk(q.groups, q.mostGroups)
			}
			t.group = nil
		}
		q.free(t)
	}
	q.entries.remove(e)
	*e = entry[K]{} // the key may hold memory
	if len(q.pool.entries) < poolSize {
		q.pool.entries = append(q.pool.entries, e)
	}
}

func (q *Queue[K]) free(t *turn[K]) {
	t.entry = nil
	if len(q.pool.turns) < poolSize {
		q.pool.turns = append(q.pool.turns, t)
	}
}

// want notes that e's key needs a run: it queues a key that is not in the queue, and marks one that a worker has.
func (q *Queue[K]) want(e *entry[K], p Priority) {
	t := e.turn
	if t == nil {
		t = q.pool.turn()
		t.entry, e.turn = e, t
	}
	switch {
	case t.state == idle:
		t.since, t.priority = q.stamp(), p
		q.counts.adds++
		q.enqueue(t)
	case t.state == active && !t.dirty:
		t.since, t.dirtyPriority, t.dirty = q.stamp(), p, true
		q.counts.adds++
	case t.state == active:
		t.dirtyPriority = max(t.dirtyPriority, p)
	case p > t.priority:
		q.ready.remove(t)
		t.priority = p
		q.ready.push(t)
	}
}

// enqueue puts t at the end of the line and sees to it that a worker comes for it.
func (q *Queue[K]) enqueue(t *turn[K]) {
	t.state = waiting
	q.ready.push(t)
	q.wake()
}

// now is the time on the queue's own scale: nanoseconds since it was made, never 0, which means "not set". The lock is
// held. However often it is asked under one hold of the lock it gives one answer, so what was not due in the first half
// of a critical section is not due in the second half either; and as the clock is read under the lock, a later hold
// never sees an earlier time.
func (q *Queue[K]) now() int64 {
	if q.read == 0 {
		q.read = int64(time.Since(q.born)) + 1
	}
	return q.read
}

// wall turns a time on the queue's own scale into one to show.
func (q *Queue[K]) wall(t int64) time.Time { return q.born.Add(time.Duration(t - 1)) }

// granularity of the times that are only there for people to look at.
const granularity = 100 * time.Millisecond

// stamp is the time to note for an add or a hand-out. It is exact if Metrics are to be told. Otherwise it may be behind
// by granularity: reading the clock twice would take as long as the rest of an add and a hand-out together, so it is
// read once for all that happens until the timer fires.
func (q *Queue[K]) stamp() int64 {
	if q.opts.Metrics != nil || q.down { // after a shutdown the timer rests
		return q.now()
	}
	q.stamped = true
	if q.coarse == 0 {
		q.coarse = q.now()
		q.arm(q.coarse + int64(granularity))
	}
	return q.coarse
}
