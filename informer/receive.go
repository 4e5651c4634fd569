package informer

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// receive puts one event of a watch into the FIFO. While the state is listing, the event is one of a streamed list.
func (w *watching[T]) receive(e wire.Event) error {
	object, err := w.objectOf(e)
	if err != nil {
		return err
	}
	if w.resourceVersion == "" {
		return w.receiveListed(e, object)
	}
	upTo, repeated, err := w.ordered(e, object)
	if err != nil {
		return err
	}
	if e.Type == watch.Bookmark {
		if time.Since(w.bookmarkAt) < twoBookmarks {
			w.bookmarks = maxHung
		}
		w.bookmarkAt = time.Now()
		w.fifo.advance(upTo)
	} else {
		if f := w.filling; f != nil && w.share.stale(e) {
			f.least = upTo
		} else if f != nil {
			f.told[KeyOf(object)] = struct{}{}
		}
		if err := w.enqueue(e, upTo, repeated); err != nil {
			return err
		}
		if e.Type == watch.Deleted && w.share.stale(e) {
			w.wantList() // the store may have what was created in its place, or what it was
		}
	}
	w.resourceVersion, w.newest = upTo, upTo
	return nil
}

// objectOf returns the object of an event, or why the watch cannot go on after the event.
func (w *watching[T]) objectOf(e wire.Event) (metav1.Object, error) {
	switch {
	case e.Type == watch.Error && e.Err != nil || errors.Is(e.Err, wire.ErrViolation):
		return nil, e.Err
	case e.Type == watch.Error:
		return nil, statusError(e.Object)
	}
	object, err := meta.Accessor(e.Object)
	if err != nil || kube.IsNil(object) {
		return nil, fmt.Errorf("%w: an event %q without an object, holding a %T", wire.ErrViolation,
			kube.Brief(e.Type), e.Object)
	}
	switch {
	case object.GetResourceVersion() != "":
		w.versioned = true
	// It is an object, not a bookmark. The list before this watch was empty, and so did not show whether objects have
	// versions; or its objects had versions that a test has set.
	case (!w.versioned || !w.source.streams()) && w.resourceVersion != "" && object.GetName() != "":
		w.unversioned = true
	}
	if object.GetResourceVersion() == "" && !w.unversioned {
		return nil, fmt.Errorf("%w: an event %q without a resourceVersion, holding a %T", wire.ErrViolation,
			kube.Brief(e.Type), e.Object)
	}
	if e.Err != nil && object.GetName() == "" && e.Type != watch.Bookmark { // of which nothing but the metadata counts
		return nil, fmt.Errorf("%w: an event %q with an object that has no readable name: %w", wire.ErrViolation,
			kube.Brief(e.Type), e.Err)
	}
	return object, nil
}

// ordered compares the version of an object with the version up to which all has come, and returns the one up to which
// it has with the event. For repeated see [delta].
func (w *watching[T]) ordered(e wire.Event, object metav1.Object) (upTo string, repeated bool, err error) {
	version := object.GetResourceVersion()
	switch {
	case version == "": // it has no order
		return w.resourceVersion, false, nil
	case !kube.Older(version, w.resourceVersion):
		return version, false, nil
	}
	switch state := w.stored(KeyOf(object)); {
	case state.held && state.resourceVersion == version:
		return w.resourceVersion, true, nil // the object itself has not gone back
	// A fake client lets a test create objects with any version. From a server the object may be long gone.
	case w.source.streams() || e.Type != watch.Added || state.held:
		return "", false, wentBack(w.resourceVersion, version)
	}
	return w.resourceVersion, false, nil
}

// receiveListed receives one event of a streamed list.
func (w *watching[T]) receiveListed(e wire.Event, object metav1.Object) error {
	key, version := KeyOf(object), object.GetResourceVersion()
	old := w.goesBack(version)
	if e.Type == watch.Bookmark {
		switch {
		case object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true":
			return nil // not the one that ends the list
		case old:
			return wentBack(w.newest, version)
		}
		for _, e := range w.early.events {
			if err := w.enqueue(e, "", false); err != nil {
				return err
			}
		}
		w.early, w.bookmarkAt = earlyEvents{}, time.Now()
		w.complete(version)
		w.health.following(w.completed) // by this very watch
		return nil
	}
	if e.Type == watch.Added && !w.keeps(e) {
		return nil // what the store has of it goes with the end of the list
	}
	if w.early.has(key) || old && !w.mayPrecede(e, key, version) {
		return w.early.add(key, e)
	}
	return w.enqueue(e, "", old) // it may be older than what the FIFO holds of the key
}

// mayPrecede reports whether an event of a streamed list, with a version older than the store, may come into the store
// before the list has shown its version. It may if the store holds exactly this state. That is not known before the
// first list is complete: after a Rescope the store may be about to drop what it holds, for a list of another
// selection.
func (r *reflector[T]) mayPrecede(e wire.Event, key Key, version string) bool {
	if r.completed == 0 || e.Type == watch.Deleted || r.quarantine.has(key) {
		return false
	}
	state := r.stored(key)
	return state.held && state.resourceVersion == version && !state.rejected
}

// No more objects than these, and bytes where they are known, are held back while a list is streamed.
const maxEarly, maxEarlyBytes = 4096, 64 << 20

// earlyEvents keeps the events of a streamed list that must not come into the store before the list has shown, at its
// end, that it is not older than the store: see [reflector.goesBack]. Events that are newer than the store need not
// wait, nor those whose state the store holds already. The rest is little, since the store has been told of everything
// up to its newest version.
type earlyEvents struct {
	events []wire.Event
	bytes  int64            // of the events
	keys   map[Key]struct{} // of the events: a later event of such a key is held back, too, to keep the order
}

// errManyEarly is the error of a list with more than that, as after a Rescope. A plain list shows its version first.
var errManyEarly = fmt.Errorf("more than %d objects, or %d bytes, that may be out of date", maxEarly, maxEarlyBytes)

func (h *earlyEvents) add(key Key, e wire.Event) error {
	if h.bytes += e.Size; len(h.events) == maxEarly || h.bytes > maxEarlyBytes {
		return errManyEarly
	}
	if h.keys == nil {
		h.keys = make(map[Key]struct{})
	}
	h.events, h.keys[key] = append(h.events, e), struct{}{}
	return nil
}

func (h *earlyEvents) has(key Key) bool {
	_, ok := h.keys[key]
	return ok
}

// enqueuer makes items of the objects that arrive, and puts them into the FIFO.
type enqueuer[T any] struct {
	// These are set before run and do not change. health is safe for concurrent use.
	part   part // that all its objects belong to
	decode decoder[T]
	fifo   *deltaFIFO[T]
	health *listWatchHealth
	share  *share // safe for concurrent use

	pulse pulse // safe for concurrent use

	// The rest belongs to the goroutine of the reflector.

	epoch      uint64 // the number of the latest list, see deltaFIFO
	quarantine quarantine
	// nameless is true once the present list had an object without a readable name, which may be any object of the
	// store.
	nameless bool
}

// enqueue puts an event about an object into the FIFO. With upTo, the FIFO then has everything up to that version.
// For repeated see [delta].
func (q *enqueuer[T]) enqueue(e wire.Event, upTo string, repeated bool) error {
	switch e.Type {
	case watch.Added, watch.Modified:
		return q.enqueueState(e, upTo, repeated)
	case watch.Deleted:
		q.enqueueDeletion(e, upTo)
		return nil
	default:
		return fmt.Errorf("%w: an event of the unknown type %q", wire.ErrViolation, kube.Brief(e.Type))
	}
}

// enqueueState puts the state of an object that exists into the FIFO. If it cannot be decoded, or Options.Transform
// fails on it, the FIFO gets the reason instead. The error is that of belongs.
func (q *enqueuer[T]) enqueueState(e wire.Event, upTo string, repeated bool) error {
	slice, keeps := q.share.judgeEvent(e)
	if !keeps {
		return q.enqueueLeft(e, slice, upTo)
	}
	it, err := q.itemOf(e)
	it.slice = slice
	if wrong := q.belongs(it.key); wrong != nil {
		return wrong
	}
	switch {
	case err != nil && it.key.Name == "": // without a name the FIFO cannot hold it
		q.health.badObject(err)
		q.nameless = q.nameless || e.Err != nil
		if upTo != "" {
			q.fifo.advance(upTo)
		}
		return nil
	case err == nil || e.Err != nil: // the same bytes would fail again
		q.quarantine.release(it.key)
	default:
		q.quarantine.admit(it.key, e, slice, q.epoch)
	}
	var invalid *InvalidError
	if err != nil {
		invalid = newInvalidError(e, err)
	}
	q.fifo.add(delta[T]{item: it, invalid: invalid, changed: upTo != "", repeated: repeated, epoch: q.epoch},
		upTo)
	return nil
}

// enqueueDeletion puts a deletion into the FIFO. If the last state of the object cannot be decoded, the handlers are
// told the last state that the store has.
func (q *enqueuer[T]) enqueueDeletion(e wire.Event, upTo string) {
	if slice, keeps := q.share.judgeEvent(e); !keeps {
		_ = q.enqueueLeft(e, slice, upTo)
		return
	}
	it, err := q.itemOf(e)
	if q.belongs(it.key) != nil {
		return
	}
	q.quarantine.release(it.key)
	q.fifo.add(delta[T]{item: it, deleted: true, unseen: err != nil, changed: upTo != "", epoch: q.epoch}, upTo)
}

// keeps reports whether Options.Shard keeps the object of an event.
func (q *enqueuer[T]) keeps(e wire.Event) bool {
	_, keeps := q.share.judgeEvent(e)
	return keeps
}

// enqueueLeft is enqueueState for an object that Options.Shard does not keep. If an earlier state of it was kept, the
// object leaves the store, as one does that a selector no longer selects. In a list there is nothing to do: the store
// drops what the list does not bring. The error is that of belongs.
func (q *enqueuer[T]) enqueueLeft(e wire.Event, slice uint16, upTo string) error {
	o, err := meta.Accessor(e.Object)
	if err != nil {
		return err
	}
	key := KeyOf(o)
	if wrong := q.belongs(key); wrong != nil || upTo == "" && e.Type == watch.Added {
		return wrong
	}
	if e.Type != watch.Deleted && q.share.stale(e) {
		if upTo != "" {
			q.fifo.advance(upTo)
		}
		return nil
	}
	q.quarantine.release(key)
	q.fifo.leave(delta[T]{item: item[T]{key: key, uid: o.GetUID(), resourceVersion: o.GetResourceVersion(),
		slice: slice}, deleted: true, unseen: true, changed: upTo != "", epoch: q.epoch}, upTo)
	return nil
}

// belongs returns an error if an object, unless its key is unknown, belongs to another list-watch: two list-watches
// that write one key would undo each other.
func (q *enqueuer[T]) belongs(key Key) error {
	if q.part.has(key) || key.Name == "" {
		return nil
	}
	return fmt.Errorf("%w: object %s in the list or watch of %s", wire.ErrViolation, briefKey(key), q.part)
}

// itemOf makes an item of an event. With an error the item has what is known of the object.
func (q *enqueuer[T]) itemOf(e wire.Event) (it item[T], err error) {
	if e.Err != nil {
		object, _ := meta.Accessor(e.Object)
		return item[T]{key: KeyOf(object), uid: object.GetUID(), resourceVersion: object.GetResourceVersion()}, e.Err
	}
	if it, err = q.decode(e.Object); err == nil {
		e.Settle()
	}
	return it, err
}

// statusError is the error that an ERROR event stands for.
func statusError(o runtime.Object) error {
	err := apierrors.FromObject(o)
	if odd := (*apierrors.UnexpectedObjectError)(nil); errors.As(err, &odd) {
		// the error itself would show the object
		err = fmt.Errorf("%w: an ERROR event that holds a %T", wire.ErrViolation, o)
	}
	return discreet(err)
}

// quarantine holds the objects that exist on the server in a state that Options.Transform failed on, or that is of the
// wrong type. They are decoded again, less and less often, and at once when the server sends a new state. Bytes that
// could not be decoded are not kept, since they would fail again.
//
// It belongs to the reflector's goroutine. What the store, and so the user, knows of it is indexer.invalid.
type quarantine struct {
	patients map[Key]*patient
	alarm    // fires when a patient is due
}

type patient struct {
	object runtime.Object
	slice  uint16 // see item
	epoch  uint64 // of the list, or the watch that followed it, which saw the object last
	tries  int
	next   time.Time
}

func (q *quarantine) admit(key Key, e wire.Event, slice uint16, epoch uint64) {
	p := &patient{object: e.Object, slice: slice, epoch: epoch}
	q.patients[key] = p
	q.postpone(p)
}

func (q *quarantine) has(key Key) bool {
	_, ok := q.patients[key]
	return ok
}

func (q *quarantine) release(key Key) { delete(q.patients, key) }

// sweep releases the objects that a complete list of that epoch did not contain.
func (q *quarantine) sweep(epoch uint64) {
	for key, p := range q.patients {
		if p.epoch < epoch {
			q.release(key)
		}
	}
}

func (q *quarantine) postpone(p *patient) {
	p.next = time.Now().Add(retryDelay(p.tries))
	p.tries++
	q.wake(p.next)
}

// retry decodes again all patients that are due within a second. It looks at every patient, so it runs at most once a
// second.
func (e *enqueuer[T]) retry() {
	q := &e.quarantine
	q.alarm.at = time.Time{}
	now := time.Now()
	for key, p := range q.patients {
		if p.next.Sub(now) >= firstRetry {
			q.wake(p.next)
			continue
		}
		e.pulse.does(receiving)
		if it, err := e.itemOf(wire.Event{Object: p.object}); err != nil {
			q.postpone(p)
		} else {
			q.release(key)
			it.slice = p.slice
			e.fifo.add(delta[T]{item: it, epoch: p.epoch}, "")
		}
	}
}
