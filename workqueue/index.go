package workqueue

import "hash/maphash"

// index finds the entry of a key. It does what a map[K]*entry[K] would, with a third of the memory, since it does not
// keep a second copy of each key, and it gives memory back when the keys are gone, which a map does not.
//
// It is 64 hash tables with linear probing, of which a key's hash selects one. They grow one by one, so that no add
// has to wait until a million entries have moved: it is a 64th of them at most.
type index[K comparable] struct {
	seed   maphash.Seed
	n      int
	tables [64]table[K]
}

// table is a power of two of slots, at most three quarters of them in use, or none at all. From the slot that the hash
// of an entry selects to the one where the entry is, going up and around, no slot is empty.
type table[K comparable] struct {
	slots []*entry[K]
	n     int
}

const minSlots = 8

// locate returns the table for key, and the slot where the entry of key is or would be put. The table has slots.
func (x *index[K]) locate(key K) (t *table[K], i uint64) {
	h := maphash.Comparable(x.seed, key)
	t = &x.tables[h>>58]
	if t.slots == nil {
		t.slots = make([]*entry[K], minSlots)
	}
	mask := uint64(len(t.slots) - 1)
	for i = h & mask; t.slots[i] != nil && t.slots[i].key != key; i = (i + 1) & mask {
	}
	return t, i
}

// get returns the entry of key, or nil.
func (x *index[K]) get(key K) *entry[K] {
	t, i := x.locate(key)
	return t.slots[i]
}

// put stores e in slot i of t, where locate found that it belongs.
func (x *index[K]) put(t *table[K], i uint64, e *entry[K]) {
	t.slots[i] = e
	t.n++
	x.n++
	if t.n > len(t.slots)/4*3 {
		x.resize(t, 2*len(t.slots))
	}
}

// remove takes out the entry of key, which is there.
func (x *index[K]) remove(key K) {
	t, i := x.locate(key)
	mask := uint64(len(t.slots) - 1)
	// Entries further up that were pushed beyond i by what was there move down, so that no gap cuts them off.
	for j := (i + 1) & mask; t.slots[j] != nil; j = (j + 1) & mask {
		if home := maphash.Comparable(x.seed, t.slots[j].key); (j-home)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = nil
	t.n--
	x.n--
	if len(t.slots) > minSlots && t.n < len(t.slots)/8 {
		x.resize(t, len(t.slots)/2)
	}
}

func (x *index[K]) resize(t *table[K], slots int) {
	old := t.slots
	t.slots = make([]*entry[K], slots)
	mask := uint64(slots - 1)
	for _, e := range old {
		if e != nil {
			i := maphash.Comparable(x.seed, e.key) & mask
			for t.slots[i] != nil {
				i = (i + 1) & mask
			}
			t.slots[i] = e
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
