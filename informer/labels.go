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
)

// LabelIndex finds objects by label selectors. Make one with [AddLabelIndex].
type LabelIndex[T Object] struct {
	store *indexer[T]
	index *Index[label, T]
	keys  []string
}

type label struct{ key, value string }

// AddLabelIndex indexes the objects of an informer by the values of some labels, before or after Run. A selector that
// asks for values of one of them, with = or in, looks at the objects with these values only; any other looks at all
// objects. So the error says if there is no key, or one that no label can have.
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
