// Package store is the memory of an informer: values by key, and indexes over them. It requires nothing of keys and
// values, so it holds API objects and projections alike.
//
// A store is a table. Its rows are numbered from zero, without a gap. Its columns are plain arrays: keys, facts (what
// the owner wants to know beside the values), values, and, in each index, the bucket that the row belongs to and its
// place there.
//
//	            keys        facts   values       an Index: slots           its buckets: members
//	row 0       ns/web      ...     *Pod         "node-1", place 0         "node-1": 0, 2
//	row 1       ns/db       ...     *Pod         "node-2", place 0         "node-2": 1
//	row 2       ns/cache    ...     *Pod         "node-1", place 1
//
// The table and the buckets refer to a row by its number. That takes four bytes, not the sixteen of a string or the
// eight of a pointer, and the garbage collector does not follow it. A snapshot of everything is a copy of the values
// column. A lookup goes from the bucket to the values, and through no map. In exchange, a removal moves the last row
// into the gap.
//
// # Reading order
//
//	store.go   the table: Store
//	finder.go  the hash table: which row a key is in
//	index.go   Index: the rows under each index value
//	shards.go  which bucket an index value has
//	column.go  an array that grows without being copied; sparse.go, one with gaps
//	bytes.go   how much memory all of that takes
package store

import (
	"fmt"
	"hash/maphash"
	"sync"
)

// Row numbers the rows of a store. It is valid until the next removal.
type Row = uint32

// Store holds a value of type V, and facts of type F about it, for each of its keys. Make one with [New].
//
// Readers may come at any time. The owner makes sure that there is one writer at a time. So the writer can read the
// table, and run the users' index functions, without the lock, and take the lock for the change alone.
type Store[K comparable, F, V any] struct {
	seed maphash.Seed // never changed

	// RWMutex guards the fields below, and what else the owner guards with it. The writer changes them with the lock
	// held; as there is no other writer, it may read them without.
	//
	//	keys, facts and values, and the slots of each index, have the same length: the number of rows
	//	finder finds each row under the hash of its key
	//	the rest of the invariant: see Index
	sync.RWMutex
	keys    column[K]
	facts   column[F]
	values  column[V]
	finder  finder
	indexes []index[V]
}

// New makes an empty store.
func New[K comparable, F, V any]() *Store[K, F, V] {
	s := &Store[K, F, V]{seed: maphash.MakeSeed()}
	s.finder.hash = func(row Row) uint32 { return s.hash(*s.keys.at(row)) }
	return s
}

// Get returns the value of a key.
func (s *Store[K, F, V]) Get(key K) (value V, ok bool) {
	hash := s.hash(key)
	s.RLock()
	defer s.RUnlock()
	row, ok := s.find(key, hash)
	if !ok {
		return value, false
	}
	return *s.values.at(row), true
}

// Len returns the number of keys.
func (s *Store[K, F, V]) Len() int {
	s.RLock()
	defer s.RUnlock()
	return s.values.len
}

// Values copies all values, one consistent snapshot, in no particular order.
func (s *Store[K, F, V]) Values() []V {
	s.RLock()
	defer s.RUnlock()
	return s.values.snapshot()
}

// Keys copies all keys, in no particular order.
func (s *Store[K, F, V]) Keys() []K {
	s.RLock()
	defer s.RUnlock()
	return s.keys.snapshot()
}

// The methods below are for callers that hold the lock, at least for reading, and for the writer.

// Find returns the row of a key or, if it is not held, the row that PutAt would add for it.
func (s *Store[K, F, V]) Find(key K) (Row, bool) { return s.find(key, s.hash(key)) }

// Rows returns the number of rows.
func (s *Store[K, F, V]) Rows() int { return s.values.len }

// Key, Facts and Value return the columns of a row. The writer may change the facts, with the lock held.
func (s *Store[K, F, V]) Key(row Row) K    { return *s.keys.at(row) }
func (s *Store[K, F, V]) Facts(row Row) *F { return s.facts.at(row) }
func (s *Store[K, F, V]) Value(row Row) V  { return *s.values.at(row) }

// The methods below are for the writer. Put, PutAt and Remove are called with the lock held, Plan without it, as it
// runs user code.

// Plan runs the index functions on a value that Put will store, after those that were planned before it. It calls
// complain for each that failed.
func (s *Store[K, F, V]) Plan(key K, value V, complain func(error)) {
	for _, ix := range s.indexes {
		if err := ix.plan(value); err != nil {
			complain(s.failed(ix, key, err))
		}
	}
}

// Unplan takes back the latest Plan: its value will not be stored.
func (s *Store[K, F, V]) Unplan() {
	for _, ix := range s.indexes {
		ix.unplan()
	}
}

// failed records that an index function has failed. It takes the lock.
func (s *Store[K, F, V]) failed(ix index[V], key K, err error) error {
	s.Lock()
	defer s.Unlock()
	err = fmt.Errorf("the index function, for %v: %w", key, err)
	ix.failed(err)
	return err
}

// Put stores the value that was planned first of those not stored yet.
func (s *Store[K, F, V]) Put(key K, facts F, value V) {
	row, _ := s.Find(key)
	s.PutAt(row, key, facts, value)
}

// PutAt is Put for a caller that has called Find after the last change of the store.
func (s *Store[K, F, V]) PutAt(row Row, key K, facts F, value V) {
	if int(row) < s.values.len {
		*s.facts.at(row), *s.values.at(row) = facts, value
	} else {
		s.keys.push(key)
		s.facts.push(facts)
		s.values.push(value)
		s.finder.push()
	}
	for _, ix := range s.indexes {
		ix.commit(row)
	}
}

// Remove removes a row, and moves the last one, if that is another, into the gap.
func (s *Store[K, F, V]) Remove(row Row) {
	for _, ix := range s.indexes {
		ix.remove(row)
	}
	s.finder.remove(row)
	s.keys.remove(row)
	s.facts.remove(row)
	s.values.remove(row)
}

func (s *Store[K, F, V]) hash(key K) uint32 { return uint32(maphash.Comparable(s.seed, key)) }

func (s *Store[K, F, V]) find(key K, hash uint32) (Row, bool) {
	for ref := s.finder.first(hash); ref != none; ref = *s.finder.rest.at(ref.row()) {
		if row := ref.row(); ref.suits(hash) && *s.keys.at(row) == key {
			return row, true
		}
	}
	return Row(s.values.len), false
}
