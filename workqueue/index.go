package workqueue

import "hash/maphash"

// index finds the entry of a key. It does what a map[K]*entry[K] would, in a quarter of the memory, as it has no second
// copy of each key. Its callers compute the hash before they take the lock. It gives memory back when keys leave, which
// a map does not.
//
// It is 64 hash tables with linear probing, of which a key's hash selects one. They grow one by one, so an add waits
// for the move of a 64th of the entries at most. The table of internal/store is another one: it numbers its rows
// without gaps, and moves two chains at a time, as it would have to hash each key anew; here an entry keeps its hash
// and its address.
type index[K comparable] struct {
	seed   maphash.Seed
	n      int
	tables [64]table[K]
}

// table has at most three quarters of its slots in use, or vacated. From the home of an entry, which its hash selects,
// up and around to the slot of the entry, no slot is empty. A slot that an entry leaves between others is vacated: to
// move the others up, each would have to be read, and they are far away in memory.
//
// tags[i] is empty or vacated if slots[i] is nil, and otherwise the tag of the entry's hash. A lookup of a new key
// passes about eight slots before it finds an empty one; for nearly all of them the tag is enough, without the entry.
type table[K comparable] struct {
	slots   []*entry[K]
	tags    []uint8
	n       int // entries
	vacated int // slots
}

// Tags of slots without an entry.
const (
	empty = iota
	vacated
	used // all others
)

const (
	minSlots  = 8    // of a table that has an entry
	fewSlots  = 256  // a table does not shrink to less: 64 of them are 128 KiB
	manySlots = 1024 // from here on memory counts for more than time
)

func (x *index[K]) hash(key K) uint32 { return uint32(maphash.Comparable(x.seed, key)) }

func (x *index[K]) table(hash uint32) *table[K] { return &x.tables[hash>>26] }

// home maps the part of a hash that did not select the table evenly to the slots.
func (t *table[K]) home(hash uint32) int { return int(uint64(hash<<6) * uint64(len(t.slots)) >> 32) }

// tag is taken from the bits of a hash that home hardly regards.
func tag(hash uint32) uint8 { return max(uint8(hash), used) }

func (t *table[K]) after(slot int) int {
	if slot++; slot < len(t.slots) {
		return slot
	}
	return 0
}

func (t *table[K]) before(slot int) int {
	if slot == 0 {
		slot = len(t.slots)
	}
	return slot - 1
}

// get returns the entry of key, or nil.
func (x *index[K]) get(key K, hash uint32) *entry[K] {
	t := x.table(hash)
	if t.n == 0 {
		return nil
	}
	for i := t.home(hash); t.tags[i] != empty; i = t.after(i) {
		if t.tags[i] == tag(hash) {
			if e := t.slots[i]; e.hash == hash && e.key == key {
				return e
			}
		}
	}
	return nil
}

// put adds e, the key of which is not in the index.
func (x *index[K]) put(e *entry[K]) {
	t := x.table(e.hash)
	if t.n++; t.n+t.vacated > len(t.slots)*3/4 {
		switch slots := len(t.slots); {
		case t.n <= slots/2:
			t.resize(slots) // which is rid of the vacated ones
		case slots < manySlots && t.vacated == 0:
			t.resize(max(minSlots, 4*slots))
		case slots < manySlots:
			t.resize(2 * slots) // it may be little more than half full
		default:
			t.resize(slots * 3 / 2) // not to the double, which would leave more slots empty on average
		}
	}
	x.n++
	t.put(e)
}

func (t *table[K]) put(e *entry[K]) {
	i := t.home(e.hash)
	for t.tags[i] >= used {
		i = t.after(i)
	}
	if t.tags[i] == vacated {
		t.vacated--
	}
	t.slots[i], t.tags[i] = e, tag(e.hash)
}

// remove takes out e, which is in the index.
func (x *index[K]) remove(e *entry[K]) {
	t := x.table(e.hash)
	i := t.home(e.hash)
	for t.slots[i] != e {
		i = t.after(i)
	}
	t.slots[i], t.tags[i] = nil, vacated
	t.vacated++
	// Nothing goes on beyond a vacated slot that an empty one follows.
	if t.tags[t.after(i)] == empty {
		for ; t.tags[i] == vacated; i = t.before(i) {
			t.tags[i] = empty
			t.vacated--
		}
	}
	x.n--
	if t.n--; t.n < len(t.slots)/6 && len(t.slots)/3 >= fewSlots {
		t.resize(len(t.slots) / 3)
	}
}

func (t *table[K]) resize(slots int) {
	old := t.slots
	t.slots, t.tags, t.vacated = make([]*entry[K], slots), make([]uint8, slots), 0
	for _, e := range old {
		if e != nil {
			t.put(e)
		}
	}
}

// all yields every entry, in no particular order.
func (x *index[K]) all(yield func(*entry[K]) bool) {
	for i := range x.tables {
		for _, e := range x.tables[i].slots {
			if e != nil && !yield(e) {
				return
			}
		}
	}
}
