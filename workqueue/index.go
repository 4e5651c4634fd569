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
//
// tags[i] is 0 if slots[i] is empty, else the tag of the entry's hash: a key that is new is compared with eight others
// until an empty slot is found, and nearly all can be passed by without a look at the entry, which is far away in memory.
type table[K comparable] struct {
	slots []*entry[K]
	tags  []uint8
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

// tag is taken from the bits of a hash that home hardly regards.
func tag(hash uint32) uint8 { return max(uint8(hash), 1) }

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
	for i := t.home(hash); t.tags[i] != 0; i = t.after(i) {
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
	for t.tags[i] != 0 {
		i = t.after(i)
	}
	t.slots[i], t.tags[i] = e, tag(e.hash)
}

// remove takes out e, which is in the index.
func (x *index[K]) remove(e *entry[K]) {
	t := x.table(e.hash)
	gap := t.home(e.hash)
	for t.slots[gap] != e {
		gap = t.after(gap)
	}
	// What was pushed past the gap by the entry that was there moves into it, or the gap would cut it off.
	for i := t.after(gap); t.tags[i] != 0; i = t.after(i) {
		if t.distance(t.home(t.slots[i].hash), i) >= t.distance(gap, i) {
			t.slots[gap], t.tags[gap] = t.slots[i], t.tags[i]
			gap = i
		}
	}
	t.slots[gap], t.tags[gap] = nil, 0
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
	t.slots, t.tags = make([]*entry[K], slots), make([]uint8, slots)
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
