package reconcile

import (
	"maps"
	"slices"

	"github.com/thermostat-go/thermostat/informer"
)

// Condition says whether an update of an object is worth a look: old is the state that the source saw before, and new
// the present one. [For], [Owns], [ClusterOwns] and [Watches] take conditions. Of several, one that holds is enough:
//
//	reconcile.For(c, backups, reconcile.GenerationChanged, reconcile.LabelsChanged)
//
// names a backup whose generation has changed or whose labels have. For conditions that must hold together write a
// function that asks them all. A condition is asked about updates only. An object that is new, deleted, invalid or
// valid again is always named, and so is each object in its turn of Options.ResyncEvery. What Reconcile has written is
// waited for as without conditions (see [TrackWrites]).
//
// A condition must not change the objects, and depends on nothing but these. It runs in the informer's goroutine, so it
// must be quick and wait for nothing. An object on which it panics is invalid until it changes and the condition
// returns: its keys are named, and Options.Invalid is called in place of Reconcile if they are its own. See [Watches].
//
// A Condition saves runs that would find nothing to do. It must not hide a change that Reconcile acts on: no other
// event would bring the key back. A Reconcile that removes a finalizer, for instance, must hear of deletions.
type Condition[T any] func(old, new T) bool

// GenerationChanged is a [Condition]: the spec has changed, or the object has begun to be deleted. The server raises
// metadata.generation with each change of the spec, and for a custom resource with a status subresource not with one of
// the status. Changes of metadata alone, such as labels, annotations and finalizers, do not raise it.
//
// Some built-in resources have no generation, such as ConfigMaps, Secrets, Services and Nodes. Of these each update
// counts.
func GenerationChanged[T informer.Object](old, new T) bool {
	return new.GetGeneration() == 0 || old.GetGeneration() != new.GetGeneration() ||
		(old.GetDeletionTimestamp() == nil) != (new.GetDeletionTimestamp() == nil)
}

// LabelsChanged is a [Condition]: a label was added, removed or changed.
func LabelsChanged[T informer.Object](old, new T) bool {
	return !maps.Equal(old.GetLabels(), new.GetLabels())
}

// AnnotationsChanged is a [Condition]: an annotation was added, removed or changed.
func AnnotationsChanged[T informer.Object](old, new T) bool {
	return !maps.Equal(old.GetAnnotations(), new.GetAnnotations())
}

// anyOf returns a function that reports whether one of the conditions holds, or nil if there are none.
func anyOf[T any](conditions []Condition[T]) func(old, new T) bool {
	if len(conditions) == 0 {
		return nil
	}
	return func(old, new T) bool {
		return slices.ContainsFunc(conditions, func(holds Condition[T]) bool { return holds(old, new) })
	}
}
