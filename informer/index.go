package informer

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/thermostat-go/thermostat/internal/store"
)

// Index looks objects up by values that a function computes from each: the UID of an owner, a node's name, a label.
// Make one with [AddIndex] or [AddSingleIndex].
type Index[V comparable, T any] struct {
	index *store.Index[V, Key, facts, T]
}

// AddIndex adds an index to an informer, before or after Run; after, the objects that it holds are indexed before
// AddIndex returns.
//
// fn returns the values under which an object is found: none, one or several. It is called on the informer's goroutine
// each time an object changes, so it must be quick, and must not call AddIndex or AddHandler. As with every cached
// object, it must not change it. An object on which fn panics, or for which it returns a value that does not equal
// itself (a NaN) or cannot be compared (a slice in an interface), is invalid: see [SharedIndexInformer.Invalid]. If the
// informer holds the object already, it keeps it, and the index finds it under no value. The error wraps [ErrStopped]
// if Run has returned with a goroutine stuck.
func AddIndex[V comparable, T any](inf *SharedIndexInformer[T], fn func(T) []V) (*Index[V, T], error) {
	if fn == nil {
		return nil, errors.New("informer: AddIndex: the function is nil")
	}
	return addIndex(inf, func(values []V, object T) ([]V, error) { return append(values, fn(object)...), nil })
}

// AddSingleIndex is AddIndex for objects that have at most one value each: fn returns it, or false for none, and does
// not allocate a slice.
func AddSingleIndex[V comparable, T any](inf *SharedIndexInformer[T], fn func(T) (V, bool)) (*Index[V, T], error) {
	if fn == nil {
		return nil, errors.New("informer: AddSingleIndex: the function is nil")
	}
	return addIndex(inf, func(values []V, object T) ([]V, error) {
		if v, ok := fn(object); ok {
			values = append(values, v)
		}
		return values, nil
	})
}

func addIndex[V comparable, T any](inf *SharedIndexInformer[T], fn func([]V, T) ([]V, error)) (*Index[V, T], error) {
	if inf == nil {
		return nil, errors.New("informer: an index needs an informer, which is nil")
	}
	ix := new(Index[V, T])
	err := inf.write(func(w *writer[T]) {
		ix.index = store.AddIndex(w.store.Store, fn, func(key Key, err error) {
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

// LabelIndex finds objects by label selectors. Make one with [AddLabelIndex].
type LabelIndex[T Object] struct {
	store *indexer[T]
	index *Index[label, T]
	keys  []string
}

type label struct{ key, value string }

// AddLabelIndex indexes the objects of an informer by the values of some labels, before or after Run. A selector that
// requires values of one of them, with = or in, looks only at the objects with these values; any other selector looks
// at all objects. It is an error to give no key, or one that no label can have.
func AddLabelIndex[T Object](inf *SharedIndexInformer[T], keys ...string) (*LabelIndex[T], error) {
	if len(keys) == 0 {
		return nil, errors.New("informer: AddLabelIndex: no label key is given; without one every Select would look " +
			"at all objects")
	}
	for _, key := range keys {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return nil, fmt.Errorf("informer: AddLabelIndex: %q cannot be the key of a label: %s", key,
				strings.Join(wrong, ", "))
		}
	}
	ix, err := AddIndex(inf, func(o T) []label {
		var found []label
		for _, key := range keys {
			if value, ok := o.GetLabels()[key]; ok {
				found = append(found, label{key, value})
			}
		}
		return found
	})
	if err != nil {
		return nil, err
	}
	return &LabelIndex[T]{store: inf.store, index: ix, keys: slices.Clone(keys)}, nil
}

// Select returns the objects whose labels the selector matches: one consistent snapshot, taken when the loop starts, in
// no particular order. They are the informer's own objects, so copy one before you change it.
func (ix *LabelIndex[T]) Select(selector labels.Selector) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, o := range ix.candidates(selector) {
			if selector.Matches(labels.Set(o.GetLabels())) && !yield(o) {
				return
			}
		}
	}
}

// candidates returns all objects that the selector might match, and as few others as the index allows. The selector is
// the user's code, so it is asked before the store is locked.
func (ix *LabelIndex[T]) candidates(selector labels.Selector) []T {
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nil
	}
	var choices [][]label
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
		default:
			continue
		}
		if slices.Contains(ix.keys, r.Key()) {
			var choice []label
			for value := range r.Values() {
				choice = append(choice, label{r.Key(), value})
			}
			choices = append(choices, choice)
		}
	}
	if len(choices) == 0 {
		return ix.store.Values()
	} // Each choice alone contains every match.
	return ix.index.index.GetFewest(choices)
}
