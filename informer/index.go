package informer

import (
	"errors"
	"fmt"
	"iter"

	"github.com/thermostat-go/thermostat/internal/store"
)

// Index looks objects up by values that a function computes from each: the UID of an owner, a node's name, a label.
// Make one with [AddIndex].
type Index[V comparable, T any] struct {
	index *store.Index[V, Key, facts, T]
}

// AddIndex adds an index to an informer, before or after Run; after, the objects that it holds are indexed before
// AddIndex returns.
//
// fn calls add with each value under which an object is found: none, one or several. It is called on the informer's
// goroutine each time an object changes, so it must be quick, and must not call AddIndex or AddHandler, nor add when it
// has returned. As with every cached object, it must not change it. An object on which fn panics, or for which it adds
// a value that does not equal itself (a NaN) or cannot be compared (a slice in an interface), is invalid: see
// [SharedIndexInformer.Invalid]. If the informer holds the object already, it keeps it, and the index finds it under no
// value. The error wraps [ErrStopped] if Run has returned with a goroutine stuck.
func AddIndex[V comparable, T any](inf *SharedIndexInformer[T], fn func(object T, add func(V))) (*Index[V, T], error) {
	if fn == nil {
		return nil, errors.New("informer: AddIndex: the function is nil")
	}
	if inf == nil {
		return nil, errors.New("informer: an index needs an informer, which is nil")
	}
	ix := new(Index[V, T])
	// Only the writer calls values. One add for all calls, as each would be an allocation.
	var list []V
	add := func(v V) { list = append(list, v) }
	values := func(before []V, object T) ([]V, error) {
		list = before
		fn(object, add)
		return list, nil
	}
	err := inf.write(func(w *writer[T]) {
		ix.index = store.AddIndex(w.store.Store, values, func(key Key, err error) {
			w.store.rejectHeld(key, err)
		})
		w.tell()
	})
	if err != nil {
		return nil, fmt.Errorf("informer %s: AddIndex: %w", inf.name, err)
	}
	return ix, nil
}

// Get returns the objects found under v: one consistent snapshot, taken when the loop starts, in no particular order.
// They are the informer's own objects, so copy one before you change it.
func (ix *Index[V, T]) Get(v V) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, object := range ix.index.Get(v) {
			if !yield(object) {
				return
			}
		}
	}
}

// Keys returns the keys of the objects found under v, in no particular order.
func (ix *Index[V, T]) Keys(v V) []Key { return ix.index.Keys(v) }

// Has reports whether an object is found under v.
func (ix *Index[V, T]) Has(v V) bool { return ix.index.Has(v) }

// Values returns the values under which at least one object is found, in no particular order.
func (ix *Index[V, T]) Values() []V { return ix.index.Values() }

// Err returns the latest failure of the index function, or nil if it has never failed.
func (ix *Index[V, T]) Err() error { return ix.index.Err() }
