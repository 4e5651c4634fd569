package workqueue

import (
	"maps"
	"sync/atomic"
)

// entry is what a queue knows about one key. A delayed key has one or two alarms; a ready or active key has a turn; a
// key may have all of these. An unknown key has no entry.
type entry[K comparable] struct {
	key  K
	turn *turn[K] // nil iff the key is neither ready nor active; with Options.Group never nil

	alarm    [2]int32    // where each alarm is in core.alarms; 0: not set
	priority [2]Priority // which the key will have when it rings
	hash     uint32      // of key, for core.entries
}

func (e *entry[K]) delayed() bool { return e.alarm != [2]int32{} }

// state says in which of the queue's lists a turn is.
type state uint8

const (
	idle    state = iota // in none; such a turn only keeps the group of a delayed key
	waiting              // in core.ready
	active               // in core.active
)

// turn is a key's way through the queue, from the add to the end of the run, and on to the next one if the key is
// added again meanwhile.
type turn[K comparable] struct {
	entry      *entry[K]
	next, prev *turn[K] // neighbours in the list that state names
	group      *group   // nil without Options.Group

	// ticket is the number of the live claim on this turn, 0 if there is none; it is swapped without the lock. The
	// caller that swaps it for 0 ends the claim, so a claim ends once, whatever its copies do. No number is given
	// twice, so the claims of an earlier life of this turn fail here, too.
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

// pool keeps entries and turns for reuse: enough for the batches of a busy informer. After a burst that is about 80 kB
// if the keys leave in about their order, and 0.6 MB at worst, as turns are made in blocks.
type pool[K comparable] struct {
	entries []*entry[K]
	turns   []*turn[K]
}

const poolSize = 512

func (p *pool[K]) entry() (e *entry[K]) {
	if n := len(p.entries); n > 0 {
		e, p.entries = p.entries[n-1], p.entries[:n-1]
		return e
	}
	return new(entry[K])
}

func (p *pool[K]) putEntry(e *entry[K]) {
	*e = entry[K]{} // the key may hold memory
	if len(p.entries) < poolSize {
		p.entries = append(p.entries, e)
	}
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

func (p *pool[K]) putTurn(t *turn[K]) {
	t.entry = nil
	if len(p.turns) < poolSize {
		p.turns = append(p.turns, t)
	}
}

// roomy is how many keys a map can have held without being replaced. A map stays as large as it once was, so shrunk
// replaces one that has held more when only an eighth of them is left.
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
