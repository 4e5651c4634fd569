package workqueue

import "hash/maphash"

// index finds the entry of a key. It does what a map[K]*entry[K] would, in a quarter of the memory, as it does not keep
// a second copy of each key; it is searched with a hash that was computed before the lock was taken; and it gives memory
// back when keys leave, which a map does not.
//
// It is 64 hash tables with linear probing, of which a key's hash selects one. They grow one by one, so no add has to
// wait until a million entries have moved: a 64th of them at most.
type index[K comparable] struct {
	seed   maphash.Seed
	n      int
	tables [64]table[K]
}

// table has at most three quarters of its slots in use. From the home of an entry, which its hash selects, to the slot
// where the entry is, going up and around, no slot is empty.
type table[K comparable] struct {
	slots []*entry[K]
	n     int
}

const (
	minSlots  = 8    // of a table that has an entry
	fewSlots  = 256  // a table does not shrink to less: 64 of them are 128 KiB
	manySlots = 1024 // from here on memory counts for more than time
)

func (x *index[K]) hash(key K) uint32 { return uint32(maphash.Comparable(x.seed, key)) }

func (x *index[K]) table(hash uint32) *table[K] { return &x.tables[hash>>26] }

// home maps the part of a hash that did not select the table evenly to the slots.
func (t *table[K]) home(hash uint32) int { return int(uint64(hash<<6) * uint64(len(t.slots)) >> 32) }

func (t *table[K]) after(slot int) int {
	if slot++; slot < len(t.slots) {
		return slot
	}
	return 0
}

// get returns the entry of key, or nil.
func (x *index[K]) get(key K, hash uint32) *entry[K] {
	t := x.table(hash)
	if t.n == 0 {
		return nil
	}
	for i := t.home(hash); ; i = t.after(i) {
		if e := t.slots[i]; e == nil || e.hash == hash && e.key == key {
			return e
		}
	}
}

// put adds e, the key of which is not in the index.
func (x *index[K]) put(e *entry[K]) {
	t := x.table(e.hash)
	if t.n++; t.n > len(t.slots)*3/4 {
		switch slots := len(t.slots); {
		case slots < manySlots:
			t.resize(max(minSlots, 4*slots))
		default:
			t.resize(slots * 3 / 2) // not to the double, which would leave more slots empty on average
		}
	}
	x.n++
	t.put(e)
}

func (t *table[K]) put(e *entry[K]) {
	i := t.home(e.hash)
	for t.slots[i] != nil {
		i = t.after(i)
	}
	t.slots[i] = e
}

// remove takes out e, which is in the index.
func (x *index[K]) remove(e *entry[K]) {
	t := x.table(e.hash)
	gap := t.home(e.hash)
	for t.slots[gap] != e {
		gap = t.after(gap)
	}
	// What was pushed past the gap by the entry that was there moves into it, or the gap would cut it off.
	for i := t.after(gap); t.slots[i] != nil; i = t.after(i) {
		if t.distance(t.home(t.slots[i].hash), i) >= t.distance(gap, i) {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = nil
	x.n--
	if t.n--; t.n < len(t.slots)/6 && len(t.slots)/3 >= fewSlots {
		t.resize(len(t.slots) / 3)
	}
}

// distance is how far up and around it is from one slot to another.
func (t *table[K]) distance(from, to int) int {
	if to < from {
		to += len(t.slots)
	}
	return to - from
}

func (t *table[K]) resize(slots int) {
	old := t.slots
	t.slots = make([]*entry[K], slots)
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
