package store

import (
	"errors"
	"runtime/debug"
	"slices"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Index finds the values of a store by what a function computes from each of them. Make one with [AddIndex].
type Index[X, K comparable, F, V any] struct {
	// Never changed.
	store *Store[K, F, V]
	fn    func([]X, V) ([]X, error)

	// Guarded by the store's lock, like the table itself. For every row r:
	//
	//	its slots are slots[r], unless that is empty, and more[r], if there are any; each is of another bucket
	//	buckets[s.bucket].members[s.place] == r for each slot s of r; a bucket has no other members
	//	byValue finds b under buckets[b].value, and nothing else; no bucket is empty
	//
	// The memory of all of it is bounded by what the store holds now, not by what it once held.
	slots   column[slot]
	more    sparse[[]slot]
	buckets bag[bucket[X]]
	byValue shards[X]
	err     error // the last failure of fn

	// Belongs to the writer: what fn returned for the values that it is about to store, in order, all in one array, and
	// where the part of each value ends.
	planned []X
	ends    []int
	next    int
	scratch []slot
}

// slot is one membership of a row: which bucket, and where in it. Few rows of an index have more than one.
type slot struct{ bucket, place uint32 }

var empty = slot{bucket: ^uint32(0)}

type bucket[X any] struct {
	value   X
	members []Row
}

// index is an Index whose value type has been forgotten.
type index[V any] interface {
	// plan computes the index values of a value, without the lock. If it fails, the value will be found under none.
	// unplan takes back the latest plan.
	plan(V) error
	unplan()

	// The methods below are called with the store's lock held.
	failed(err error) // records a failure of plan
	commit(Row)       // puts the row into exactly the buckets planned for it
	remove(Row)       // removes it from its buckets, and gives its number to the last one
	bytes() int       // see Store.Bytes
}

// AddIndex adds an index to a store; the writer calls it. fn appends the index values of a value: none, one or several.
// AddIndex calls complain if fn returns an error, panics, or returns a value that is not equal to itself: then the
// value of that key is found under no index value.
func AddIndex[X, K comparable, F, V any](s *Store[K, F, V], fn func([]X, V) ([]X, error),
	complain func(K, error)) *Index[X, K, F, V] {
	ix := &Index[X, K, F, V]{store: s, fn: fn}
	ix.byValue.seed = s.seed
	// Only the writer moves rows, and no reader has the index yet.
	for row := range Row(s.Rows()) {
		if err := ix.plan(s.Value(row)); err != nil {
			complain(s.Key(row), s.failed(ix, s.Key(row), err))
		}
		ix.commit(row)
	}
	s.Lock()
	defer s.Unlock()
	s.indexes = append(s.indexes, ix)
	return ix
}

// Get returns the values found under x, one consistent snapshot, in no particular order.
func (ix *Index[X, K, F, V]) Get(x X) []V {
	ix.store.RLock()
	defer ix.store.RUnlock()
	return pick(&ix.store.values, ix.members(x))
}

// GetAny returns the values found under at least one of xs, each once.
func (ix *Index[X, K, F, V]) GetAny(xs []X) []V {
	ix.store.RLock()
	defer ix.store.RUnlock()
	return pick(&ix.store.values, ix.union(xs))
}

// Keys returns the keys of the values found under x, in no particular order.
func (ix *Index[X, K, F, V]) Keys(x X) []K {
	ix.store.RLock()
	defer ix.store.RUnlock()
	return pick(&ix.store.keys, ix.members(x))
}

// Has reports whether a value is found under x.
func (ix *Index[X, K, F, V]) Has(x X) bool {
	ix.store.RLock()
	defer ix.store.RUnlock()
	return len(ix.members(x)) > 0
}

// Values returns the index values under which at least one value is found, in no particular order.
func (ix *Index[X, K, F, V]) Values() []X {
	ix.store.RLock()
	defer ix.store.RUnlock()
	return ix.byValue.values()
}

// Err returns the latest failure of the index function, or nil.
func (ix *Index[X, K, F, V]) Err() error {
	ix.store.RLock()
	defer ix.store.RUnlock()
	return ix.err
}

func (ix *Index[X, K, F, V]) members(x X) []Row {
	if b, ok := ix.byValue.find(x); ok {
		return ix.buckets.at(b).members
	}
	return nil
}

func (ix *Index[X, K, F, V]) union(xs []X) []Row {
	if len(xs) == 1 {
		return ix.members(xs[0])
	}
	var rows []Row
	for _, x := range xs {
		rows = append(rows, ix.members(x)...)
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

func pick[T any](from *column[T], rows []Row) []T {
	picked := make([]T, len(rows))
	for i, row := range rows {
		picked[i] = *from.at(row)
	}
	return picked
}

var errOddValue = errors.New("it returned a value that is not equal to itself")

func (ix *Index[X, K, F, V]) plan(value V) (err error) {
	begin, returned := len(ix.planned), false
	defer func() {
		if !returned {
			err = &lifecycle.PanicError{Value: recover(), Stack: debug.Stack()}
		}
		if err != nil {
			ix.planned = ix.planned[:begin]
		}
		ix.ends = append(ix.ends, len(ix.planned))
	}()
	ix.planned, err = ix.fn(ix.planned, value)
	for _, x := range ix.planned[begin:] {
		// A value that is not equal to itself would never be found again in a map; one that cannot be compared panics,
		// here and not there.
		if x != x {
			err = errOddValue
		}
	}
	returned = true
	return err
}

func (ix *Index[X, K, F, V]) unplan() {
	ix.ends = ix.ends[:len(ix.ends)-1]
	begin := 0
	if len(ix.ends) > 0 {
		begin = ix.ends[len(ix.ends)-1]
	}
	ix.planned = ix.planned[:begin]
}

func (ix *Index[X, K, F, V]) failed(err error) { ix.err = err }

// nextPlanned returns the index values of the value that was planned next.
func (ix *Index[X, K, F, V]) nextPlanned() []X {
	begin := 0
	if ix.next > 0 {
		begin = ix.ends[ix.next-1]
	}
	xs := ix.planned[begin:ix.ends[ix.next]]
	ix.next++
	if ix.next == len(ix.ends) {
		ix.planned, ix.ends, ix.next = ix.planned[:0], ix.ends[:0], 0
	}
	return xs
}

func (ix *Index[X, K, F, V]) commit(row Row) {
	xs := ix.nextPlanned()
	if int(row) == ix.slots.len {
		ix.slots.push(empty)
	}
	// Most updates change no index value, and most rows have one.
	if first := *ix.slots.at(row); len(xs) == 1 && first != empty && ix.buckets.at(first.bucket).value == xs[0] &&
		ix.more.find(uint32(row)) == nil {
		return
	}
	slots := ix.slotsOf(row)
	kept := slots[:0]
	for _, s := range slots {
		if slices.Contains(xs, ix.buckets.at(s.bucket).value) {
			kept = append(kept, s)
		} else {
			ix.leave(row, s)
		}
	}
	for _, x := range xs {
		b, ok := ix.byValue.find(x)
		if !ok {
			b = ix.newBucket(x)
		}
		if !slices.ContainsFunc(kept, func(s slot) bool { return s.bucket == b }) {
			members := &ix.buckets.at(b).members
			kept = append(kept, slot{bucket: b, place: uint32(len(*members))})
			*members = append(*members, row)
		}
	}
	ix.setSlots(row, kept)
}

func (ix *Index[X, K, F, V]) remove(row Row) {
	for _, s := range ix.slotsOf(row) {
		ix.leave(row, s)
	}
	ix.setSlots(row, nil)
	if last := Row(ix.slots.len - 1); row != last {
		slots := ix.slotsOf(last)
		for _, s := range slots {
			ix.buckets.at(s.bucket).members[s.place] = row
		}
		ix.setSlots(row, slots)
		ix.setSlots(last, nil)
	}
	ix.slots.pop()
}

// slotsOf copies the slots of a row. The copy is valid until the next call.
func (ix *Index[X, K, F, V]) slotsOf(row Row) []slot {
	ix.scratch = ix.scratch[:0]
	if first := *ix.slots.at(row); first != empty {
		ix.scratch = append(ix.scratch, first)
		if more := ix.more.find(uint32(row)); more != nil {
			ix.scratch = append(ix.scratch, *more...)
		}
	}
	return ix.scratch
}

func (ix *Index[X, K, F, V]) setSlots(row Row, slots []slot) {
	first := empty
	if len(slots) > 0 {
		first = slots[0]
	}
	*ix.slots.at(row) = first
	switch more := ix.more.find(uint32(row)); {
	case len(slots) <= 1:
		ix.more.drop(uint32(row))
	case more == nil:
		ix.more.put(uint32(row), slices.Clone(slots[1:]))
	default:
		*more = append((*more)[:0], slots[1:]...)
	}
}

// leave removes a row from a bucket. The last member moves into the gap.
func (ix *Index[X, K, F, V]) leave(row Row, s slot) {
	b := ix.buckets.at(s.bucket)
	last := len(b.members) - 1
	if moved := b.members[last]; moved != row {
		b.members[s.place] = moved
		ix.slotIn(moved, s.bucket).place = s.place
	}
	b.members = b.members[:last]
	switch {
	case last == 0:
		ix.byValue.drop(b.value)
		ix.buckets.drop(s.bucket)
	case cap(b.members) >= 32 && last < cap(b.members)/4: // most of it has gone, and so does its memory
		b.members = append(make([]Row, 0, 2*last), b.members...)
	}
}

// slotIn returns the slot of a row in a bucket that it belongs to.
func (ix *Index[X, K, F, V]) slotIn(row Row, bucket uint32) *slot {
	if first := ix.slots.at(row); first.bucket == bucket {
		return first
	}
	more := *ix.more.find(uint32(row))
	return &more[slices.IndexFunc(more, func(s slot) bool { return s.bucket == bucket })]
}

func (ix *Index[X, K, F, V]) newBucket(x X) uint32 {
	b := ix.buckets.add(bucket[X]{value: x})
	ix.byValue.add(x, b)
	return b
}
