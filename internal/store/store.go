// Package store is the memory of an informer: values by key, and indexes over them. It asks nothing of keys and values,
// so that a cache of API objects, of projections, or of things that are no API objects, is the same code.
//
// A store is a table. Its rows are numbered from zero, without a gap; its columns are plain arrays: keys, what the
// owner wants to know beside the values (its facts), values, and, in each index, the bucket that the row belongs to and
// its place there.
//
//	            keys        facts   values       an Index: slots           its buckets: members
//	row 0       ns/web      ...     *Pod         "node-1", place 0         "node-1": 0, 2
//	row 1       ns/db       ...     *Pod         "node-2", place 0         "node-2": 1
//	row 2       ns/cache    ...     *Pod         "node-1", place 1
//
// What refers to a row, here and in a bucket, is its number: four bytes, not the sixteen of a string or the eight of a
// pointer, and nothing that the garbage collector has to follow. A snapshot of everything is the values column, copied;
// a lookup goes from the bucket to the values and meets no map on the way. In exchange, a removal moves the last row
// into the gap.
//
// # Reading order
//
//	store.go   the table
//	finder.go  which row a key is in
//	index.go   which rows a value is found under
//	column.go  an array that grows without being copied
package store

import (
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Row numbers the rows of a store. It is valid until the next removal.
type Row = uint32

// Store holds a value of type V, and facts of type F about it, for each of its keys. Make one with [New].
//
// Readers come at any time. There is one writer at a time, by an arrangement of the owner's: only so can it look at the
// table, and run the users' index functions, without the lock, and then take the lock for the change alone.
type Store[K comparable, F, V any] struct {
	// RWMutex guards the table against readers while the writer, who holds it, changes it. The owner may guard what is
	// its own with it, too.
	sync.RWMutex

	// Guarded by RWMutex; written with it held by the one writer, which may therefore read without it.
	//
	//	keys, facts and values, and the slots of each index, have the same length: the number of rows
	//	finder finds each row under the hash of its key
	//	the rest of the invariant: see Index
	keys    column[K]
	facts   column[F]
	values  column[V]
	finder  finder
	indexes []index[V]

	seed maphash.Seed
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

// What follows is for whoever holds the lock, for reading at least, and for the writer.

// Find returns the row of a key.
func (s *Store[K, F, V]) Find(key K) (Row, bool) { return s.find(key, s.hash(key)) }

// Rows returns the number of rows.
func (s *Store[K, F, V]) Rows() int { return s.values.len }

// Key, Facts and Value return what stands in a row. The writer may change the facts, with the lock held.
func (s *Store[K, F, V]) Key(row Row) K    { return *s.keys.at(row) }
func (s *Store[K, F, V]) Facts(row Row) *F { return s.facts.at(row) }
func (s *Store[K, F, V]) Value(row Row) V  { return *s.values.at(row) }

// What follows is for the writer alone.

// Plan runs the index functions on a value that Put will store, after those that were planned before it, and tells
// complain about each that failed. They are the user's code: the lock is not held.
func (s *Store[K, F, V]) Plan(key K, value V, complain func(error)) {
	s.plan(0, key, value, complain)
}

// plan runs the index functions from the ith on. If one ends the goroutine those behind it are run before it ends.
func (s *Store[K, F, V]) plan(i int, key K, value V, complain func(error)) {
	defer func() {
		if i < len(s.indexes) {
			complain(s.failed(s.indexes[i], key, lifecycle.ErrExited))
			s.plan(i+1, key, value, complain)
		}
	}()
	for ; i < len(s.indexes); i++ {
		if err := s.indexes[i].plan(value); err != nil {
			complain(s.failed(s.indexes[i], key, err))
		}
	}
}

// failed remembers that an index function has failed. The lock is not held.
func (s *Store[K, F, V]) failed(ix index[V], key K, err error) error {
	s.Lock()
	defer s.Unlock()
	err = fmt.Errorf("the index function, for %v: %w", key, err)
	ix.failed(err)
	return err
}

// Put stores a planned value. The lock is held.
func (s *Store[K, F, V]) Put(key K, facts F, value V) {
	hash := s.hash(key)
	row, held := s.find(key, hash)
	if held {
		*s.facts.at(row), *s.values.at(row) = facts, value
	} else {
		row = Row(s.values.len)
		s.keys.push(key)
		s.facts.push(facts)
		s.values.push(value)
		s.finder.push()
	}
	for _, ix := range s.indexes {
		ix.commit(row)
	}
}

// Remove takes a row out of the table and moves the last one, if that is another, into the gap. The lock is held.
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
	return 0, false
}
