package informer

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// InvalidError says why the present state of an object cannot be taken into the store: a [Resource] could not decode
// it, or Options.Transform, the function of [Project] or an index function failed on it. [SharedIndexInformer.Invalid]
// returns one.
//
// The text of an object that could not be decoded names the field and the Go type of the field, if the object is JSON.
// It never quotes a value of the object, so it may be logged, and written into a condition or an Event. The text of
// Transform's error is Transform's own.
type InvalidError struct {
	// Object is the metadata of the state, to be read only: finalizers, deletionTimestamp, labels and owner references
	// are there, and managedFields is empty. It has the kind if the client is a [Resource] for a Go type. After
	// Transform has failed it is what Transform has left of the metadata. If not even the metadata could be decoded, or
	// if an index function has failed on what Project had made of the object, only name, namespace, UID and
	// resourceVersion are set.
	Object *metav1.PartialObjectMetadata
	// Err is the reason.
	Err error
}

func (e *InvalidError) Error() string { return e.Err.Error() }
func (e *InvalidError) Unwrap() error { return e.Err }

// Invalid returns why the object's present state on the server could not be taken into the store, or nil. The error
// wraps an [InvalidError], which has the metadata of that state. Such an object exists: no handler is told that it was
// deleted, and Get returns its last good state, if there was one since Run began. So an object that Get does not find
// is gone only if Invalid returns nil, too. HandlerOptions.Invalid tells when the answer changes.
func (inf *SharedIndexInformer[T]) Invalid(key Key) error {
	if r := inf.store.rejected(key); r.InvalidError != nil {
		return r.InvalidError
	}
	return nil
}

// rejection is the present state of an object that could not be taken, and the number of the list which, or the watch
// after which, has seen that state last.
type rejection struct {
	*InvalidError
	epoch uint64
	// unindexed: the store holds the very state. An index that was added later cannot take it.
	unindexed bool
	slice     uint16 // see item
}

// newInvalidError makes an InvalidError for an object as it came. Transform may be called with the object again, so
// nothing of it is kept but a copy of its metadata.
func newInvalidError(e wire.Event, err error) *InvalidError {
	if o, ok := e.Object.(*metav1.PartialObjectMetadata); ok && e.Err != nil {
		return &InvalidError{o, err} // the decoder has made it for this
	}
	o, _ := meta.Accessor(e.Object) // as receive has done
	kept := metav1.ObjectMeta{
		Name: o.GetName(), GenerateName: o.GetGenerateName(), Namespace: o.GetNamespace(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(),
		CreationTimestamp: o.GetCreationTimestamp(), DeletionTimestamp: o.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: o.GetDeletionGracePeriodSeconds(), Labels: o.GetLabels(),
		Annotations: o.GetAnnotations(), OwnerReferences: o.GetOwnerReferences(), Finalizers: o.GetFinalizers(),
	}
	state := &metav1.PartialObjectMetadata{ObjectMeta: *kept.DeepCopy()}
	state.SetGroupVersionKind(e.Object.GetObjectKind().GroupVersionKind())
	return &InvalidError{state, err}
}

// invalid makes an InvalidError for a state that arrived well and cannot be held.
func (it item[T]) invalid(err error) *InvalidError {
	if o, ok := any(it.value).(Object); ok && !kube.IsNil(o) {
		return newInvalidError(wire.Event{Object: o}, err)
	}
	return &InvalidError{&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: it.key.Name,
		Namespace: it.key.Namespace, UID: it.uid, ResourceVersion: it.resourceVersion}}, err}
}

// invalidChange is a change of what Invalid returns for a key. A nil error stands for a state that could be taken, or,
// with gone, for none.
type invalidChange struct {
	key         Key
	before, now *InvalidError
	gone        bool
}

// rejectLocked notes that the state of an object cannot be taken. A list that repeats the state is no news.
func (x *indexer[T]) rejectLocked(d *delta[T]) {
	before := x.invalid[d.key]
	if before.InvalidError != nil && d.resourceVersion != "" && !d.changed &&
		before.Object.UID == d.uid && before.Object.ResourceVersion == d.resourceVersion {
		before.epoch = d.epoch
		x.invalid[d.key] = before
		return
	}
	x.putRejectionLocked(d.key, rejection{InvalidError: d.invalid, epoch: d.epoch, slice: d.slice})
}

// rejectHeld notes that an index that is being added cannot take the state that the store holds of a key. The state
// stays: whoever has read it counts on it. A later state that could not be taken is the one to tell of.
func (x *indexer[T]) rejectHeld(key Key, err error) {
	x.Lock()
	defer x.Unlock()
	if _, later := x.invalid[key]; later {
		return
	}
	row, _ := x.Find(key)
	f := x.Facts(row)
	x.putRejectionLocked(key, rejection{x.item(row).invalid(err), uint64(f.epoch), true, f.slice})
}

func (x *indexer[T]) putRejectionLocked(key Key, r rejection) {
	x.untold = append(x.untold, invalidChange{key: key, before: x.invalid[key].InvalidError, now: r.InvalidError})
	x.invalid[key] = r
	x.rejections.Store(int64(len(x.invalid)))
}

// seenLocked notes that the state that the store holds of a key is still that of the server.
func (x *indexer[T]) seenLocked(key Key, epoch uint64) {
	r := x.invalid[key]
	if !r.unindexed {
		x.clearInvalidLocked(key, false)
		return
	}
	r.epoch = epoch
	x.invalid[key] = r
}

// clearInvalidLocked notes that the key has no state any more that cannot be taken.
func (x *indexer[T]) clearInvalidLocked(key Key, gone bool) {
	before, was := x.invalid[key]
	if !was {
		return
	}
	delete(x.invalid, key)
	x.rejections.Store(int64(len(x.invalid)))
	x.untold = append(x.untold, invalidChange{key: key, before: before.InvalidError, gone: gone})
}

// tellInvalidChanges logs which objects cannot be taken, and which can again, and tells every listener what has
// changed.
func (w *writer[T]) tellInvalidChanges() {
	changes := w.store.untold
	w.store.untold = nil // it is rare that there are any
	for _, v := range changes {
		if v.now == nil {
			w.health.goodObject(v.key, v.gone)
		} else {
			w.health.badObject(v.now)
		}
		for _, l := range w.listeners {
			w.pulse.does(storing)
			l.tellInvalid(w.log, v)
		}
	}
}

// tellInvalid tells a listener a change of what Invalid returns. The writer calls it.
func (l *listener[T]) tellInvalid(log klog.Logger, v invalidChange) {
	if l.invalid == nil || l.isRemoved() {
		return
	}
	l.callBack(log, "HandlerOptions.Invalid", func() { l.invalid(v.key, v.before, v.now) })
}
