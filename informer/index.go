package informer

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Index looks objects up by something that a function computes from each: the UID of an owner, a node's name, a label. It is a handle,
// made by [AddIndex]: there is no name to mistype and no type to assert.
type Index[V comparable, T any] struct {
	store   *indexer[Key, T]
	fn      func(T) []V
	buckets map[V]*bucket[Key, T] // guarded by store.mu, see indexer

	// planned holds, for the values that the writer is about to store, what fn said of them, in order. Only the writer touches it.
	planned [][]V
	next    int
	err     error // the last failure of fn, guarded by store.mu
}

// index is an Index whose value type has been forgotten.
type index[K comparable, V any] interface {
	plan(K, V) error      // compute the index values of an object; no lock is held. An error: it is found under none
	commit(*entry[K, V])  // let the entry belong to exactly the buckets planned for it; the store's lock is held
	drop(b *bucket[K, V]) // forget a bucket that became empty; the store's lock is held
}

// AddIndex adds an index to an informer, before or after Run; after, the objects that it holds are indexed before AddIndex returns.
//
// fn returns the values under which an object is to be found: none, one or several. It runs on the informer's goroutine each time an
// object changes, so it must be quick, must not call AddIndex or AddHandler, and, as ever with a cached object, must not change it. An
// object on which fn panics, or for which it returns a value that equals nothing (a NaN, a slice in an interface), is found under no value of
// this index; Err and [Health] then say so. After Run has returned with a goroutine stuck, AddIndex returns [ErrStopped].
func AddIndex[V comparable, T any](inf *SharedIndexInformer[T], fn func(T) []V) (*Index[V, T], error) {
	if inf == nil || fn == nil {
		return nil, errors.New("informer: AddIndex needs an informer and a function, one of them is nil")
	}
	ix := &Index[V, T]{store: inf.store, fn: fn, buckets: make(map[V]*bucket[Key, T])}
	if err := inf.becomeWriter(); err != nil {
		return nil, fmt.Errorf("informer %s: AddIndex: %w", inf.name, err)
	}
	defer inf.unlockWriter()

	// This goroutine is the writer now, so the entries stand still while fn looks at them.
	s := inf.store
	entries := make([]*entry[Key, T], 0, len(s.entries))
	for _, e := range s.entries {
		entries = append(entries, e)
		if err := ix.plan(e.key, e.value); err != nil {
			inf.health.badObject(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		ix.commit(e)
	}
	s.indexes = append(s.indexes, ix)
	return ix, nil
}

// Get returns the objects found under v: one consistent snapshot, taken when the loop starts, in no particular order. They are the
// informer's own objects, so copy one before you change it.
func (ix *Index[V, T]) Get(v V) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, value := range ix.snapshot(v) {
			if !yield(value) {
				return
			}
		}
	}
}

func (ix *Index[V, T]) snapshot(v V) []T {
	ix.store.mu.RLock()
	defer ix.store.mu.RUnlock()
	b, ok := ix.buckets[v]
	if !ok {
		return nil
	}
	values := make([]T, len(b.members))
	for i, e := range b.members {
		values[i] = e.value
	}
	return values
}

// Values returns the values under which at least one object is found, in no particular order.
func (ix *Index[V, T]) Values() []V {
	ix.store.mu.RLock()
	defer ix.store.mu.RUnlock()
	values := make([]V, 0, len(ix.buckets))
	for v := range ix.buckets {
		values = append(values, v)
	}
	return values
}

// Err returns the latest failure of the index function, or nil if it has never failed.
func (ix *Index[V, T]) Err() error {
	ix.store.mu.RLock()
	defer ix.store.mu.RUnlock()
	return ix.err
}

func (ix *Index[V, T]) plan(key Key, value T) error {
	var values []V
	odd := false
	err := lifecycle.Try(func() {
		values = ix.fn(value)
		// A value that is not equal to itself would never be found again in a map; one that cannot be compared panics, here and not there.
		odd = slices.ContainsFunc(values, func(v V) bool { return v != v })
	})
	if odd {
		err = errOddValue
	}
	if err != nil {
		values, err = nil, fmt.Errorf("the index function, for %s: %w", key, err)
		ix.store.mu.Lock()
		ix.err = err
		ix.store.mu.Unlock()
	}
	ix.planned = append(ix.planned, values)
	return err
}

var errOddValue = errors.New("it returned a value that is not equal to itself")

func (ix *Index[V, T]) commit(e *entry[Key, T]) {
	values := ix.planned[ix.next]
	ix.planned[ix.next] = nil
	ix.next++
	if ix.next == len(ix.planned) {
		ix.planned, ix.next = ix.planned[:0], 0
	}

	// Leave the buckets that are no longer wanted. Most updates change no index value and end up writing nothing at all.
	for i := len(e.slots) - 1; i >= 0; i-- {
		b := e.slots[i].bucket
		if b.owner == index[Key, T](ix) && !slices.Contains(values, ix.valueOf(b)) {
			e.leave(i)
		}
	}
	for _, v := range values {
		b, ok := ix.buckets[v]
		if !ok {
			b = &bucket[Key, T]{owner: ix, id: v}
			ix.buckets[v] = b
		}
		if !slices.ContainsFunc(e.slots, func(s slot[Key, T]) bool { return s.bucket == b }) {
			e.join(b)
		}
	}
}

func (ix *Index[V, T]) drop(b *bucket[Key, T]) { delete(ix.buckets, ix.valueOf(b)) }

// valueOf returns the value that b stands for. If V is an interface, the id may be nil: then it is the zero V.
func (ix *Index[V, T]) valueOf(b *bucket[Key, T]) V {
	v, _ := b.id.(V)
	return v
}
