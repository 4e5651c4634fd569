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
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// receive puts one event of a watch into the FIFO. While the state is listing, the event is one of a streamed list.
func (r *reflector[T]) receive(e wire.Event) error {
	object, err := r.checked(e)
	if err != nil {
		return err
	}
	if r.resourceVersion == "" {
		return r.receiveListed(e, object)
	}
	reached, repeated, err := r.ordered(e, object)
	if err != nil {
		return err
	}
	if e.Type == watch.Bookmark {
		r.fifo.reached(reached)
	} else if err := r.enqueue(e, reached, repeated); err != nil {
		return err
	}
	r.resourceVersion, r.newest = reached, reached
	return nil
}

// checked returns the object of an event, or why the watch cannot go on after the event.
func (r *reflector[T]) checked(e wire.Event) (metav1.Object, error) {
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
		r.versioned = true
	// It is an object, not a bookmark. The list before this watch was empty, and so did not show whether objects have
	// versions; or its objects had versions that a test has set.
	case (!r.versioned || !r.source.streams()) && r.resourceVersion != "" && object.GetName() != "":
		r.unversioned = true
	}
	if object.GetResourceVersion() == "" && !r.unversioned {
		return nil, fmt.Errorf("%w: an event %q without a resourceVersion, holding a %T", wire.ErrViolation,
			kube.Brief(e.Type), e.Object)
	}
	if e.Err != nil && object.GetName() == "" {
		return nil, fmt.Errorf("%w: an event %q with an object that has no readable name: %w", wire.ErrViolation,
			kube.Brief(e.Type), e.Err)
	}
	return object, nil
}

// ordered compares the version of an object with the version that the watch has reached, and returns the version that
// it reaches with the event. For repeated see [delta].
func (r *reflector[T]) ordered(e wire.Event, object metav1.Object) (reached string, repeated bool, err error) {
	version := object.GetResourceVersion()
	switch {
	case version == "": // it has no order
		return r.resourceVersion, false, nil
	case !kube.Older(version, r.resourceVersion):
		return version, false, nil
	}
	switch state := r.stored(KeyOf(object)); {
	case state.held && state.resourceVersion == version:
		return r.resourceVersion, true, nil // the object itself has not gone back
	// A fake client lets a test create objects with any version. From a server the object may be long gone.
	case r.source.streams() || e.Type != watch.Added || state.held:
		return "", false, wentBack(r.resourceVersion, version)
	}
	return r.resourceVersion, false, nil
}

// receiveListed receives one event of a streamed list.
func (r *reflector[T]) receiveListed(e wire.Event, object metav1.Object) error {
	key, version := KeyOf(object), object.GetResourceVersion()
	old := r.goesBack(version)
	if e.Type == watch.Bookmark {
		switch {
		case object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true":
			return nil // not the one that ends the list
		case old:
			return wentBack(r.newest, version)
		}
		for _, e := range r.held.events {
			if err := r.enqueue(e, "", false); err != nil {
				return err
			}
		}
		r.held = heldBack{}
		r.complete(version)
		return nil
	}
	if r.held.has(key) || old && !r.mayPrecede(e, key, version) {
		return r.held.add(key, e)
	}
	return r.enqueue(e, "", old) // it may be older than what the FIFO holds of the key
}

// mayPrecede reports whether an event of a streamed list, with a version older than the store, may come into the store
// before the list has shown its version. It may if the store holds exactly this state. That is not known before the
// first list is complete: after a Rescope the store may be about to drop what it holds, for a list of another
// selection.
func (r *reflector[T]) mayPrecede(e wire.Event, key Key, version string) bool {
	if !r.synced || e.Type == watch.Deleted || r.quarantine.has(key) {
		return false
	}
	state := r.stored(key)
	return state.held && state.resourceVersion == version && !state.rejected
}

// No more objects than these, and bytes where they are known, are held back while a list is streamed.
const maxHeldBack, maxHeldBytes = 4096, 64 << 20

// heldBack keeps the events of a streamed list that must not come into the store before the list has shown, at its end,
// that it is not older than the store: see [reflector.goesBack]. Events that are newer than the store need not wait,
// nor those whose state the store holds already. The rest is little, since the store has been told of everything up to
// its newest version.
type heldBack struct {
	events []wire.Event
	bytes  int64            // of the events
	keys   map[Key]struct{} // of the events: a later event of such a key is held back, too, to keep the order
}

// errHeldBack is the error of a list with more than that, as after a Rescope. A plain list shows its version first.
var errHeldBack = fmt.Errorf("more than %d objects, or %d bytes, that may be out of date", maxHeldBack, maxHeldBytes)

func (h *heldBack) add(key Key, e wire.Event) error {
	if h.bytes += e.Size; len(h.events) == maxHeldBack || h.bytes > maxHeldBytes {
		return errHeldBack
	}
	if h.keys == nil {
		h.keys = make(map[Key]struct{})
	}
	h.events, h.keys[key] = append(h.events, e), struct{}{}
	return nil
}

func (h *heldBack) has(key Key) bool {
	_, held := h.keys[key]
	return held
}

// enqueue puts an event about an object into the FIFO. With reached, the FIFO then has everything up to that version.
// For repeated see [delta].
func (r *reflector[T]) enqueue(e wire.Event, reached string, repeated bool) error {
	switch e.Type {
	case watch.Added, watch.Modified:
		return r.enqueueState(e, reached, repeated)
	case watch.Deleted:
		r.enqueueDeletion(e, reached)
		return nil
	default:
		return fmt.Errorf("%w: an event of the unknown type %q", wire.ErrViolation, kube.Brief(e.Type))
	}
}

// enqueueState puts the state of an object that exists into the FIFO. If it cannot be decoded, or Options.Transform
// fails on it, the FIFO gets the reason instead. The error is that of belongs.
func (r *reflector[T]) enqueueState(e wire.Event, reached string, repeated bool) error {
	it, err := r.itemOf(e)
	if wrong := r.belongs(it.key); wrong != nil {
		return wrong
	}
	switch {
	case err == nil:
		r.quarantine.release(it.key)
	case it.key.Name == "": // without a name the FIFO cannot hold it
		r.health.badObject(err)
		r.nameless = r.nameless || e.Err != nil
		if reached != "" {
			r.fifo.reached(reached)
		}
		return nil
	case e.Err != nil: // the same bytes would fail again
		r.health.badObject(err)
		r.quarantine.release(it.key)
	default:
		r.health.badObject(err)
		r.quarantine.admit(it.key, e, r.epoch)
	}
	r.fifo.add(delta[T]{item: it, invalid: err, changed: reached != "", repeated: repeated, epoch: r.epoch}, reached)
	return nil
}

// enqueueDeletion puts a deletion into the FIFO. If the last state of the object cannot be decoded, the handlers are
// told the last state that the store has.
func (r *reflector[T]) enqueueDeletion(e wire.Event, reached string) {
	it, err := r.itemOf(e)
	if r.belongs(it.key) != nil {
		return
	}
	r.quarantine.release(it.key)
	r.fifo.add(delta[T]{item: it, deleted: true, unseen: err != nil, epoch: r.epoch}, reached)
}

// belongs returns an error if an object, unless its key is unknown, belongs to another list-watch: two list-watches
// that write one key would undo each other.
func (r *reflector[T]) belongs(key Key) error {
	if r.namespace == "" || key.Namespace == r.namespace || key.Name == "" {
		return nil
	}
	return fmt.Errorf("%w: an object of namespace %q in the list or watch of namespace %q", wire.ErrViolation,
		kube.Brief(key.Namespace), r.namespace)
}

// itemOf makes an item of an event. With an error the item has what is known of the object.
func (r *reflector[T]) itemOf(e wire.Event) (it item[T], err error) {
	if e.Err != nil {
		object, _ := meta.Accessor(e.Object)
		return item[T]{key: KeyOf(object), uid: object.GetUID(), resourceVersion: object.GetResourceVersion()}, e.Err
	}
	if r.exits.Seen() {
		it, err = r.decodeApart(e.Object)
	} else {
		it, err = r.decode(e.Object)
	}
	it.size = e.Size
	return it, err
}

// decodeApart is decode for user code that may end its goroutine.
func (r *reflector[T]) decodeApart(raw runtime.Object) (it item[T], err error) {
	if exited := lifecycle.Apart(func() { it, err = r.decode(raw) }); exited != nil {
		object, lost := meta.Accessor(raw)
		if lost != nil || kube.IsNil(object) {
			return item[T]{}, exited
		}
		it = item[T]{key: KeyOf(object), uid: object.GetUID(), resourceVersion: object.GetResourceVersion()}
		return it, fmt.Errorf("Options.Transform or projection of %s: %w", briefKey(it.key), exited)
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
	due      *time.Timer // fires at dueAt, when a patient is due
	dueAt    time.Time   // zero: the timer is not running
}

type patient struct {
	object runtime.Object
	size   int64
	epoch  uint64 // of the list, or the watch that followed it, which saw the object last
	tries  int
	next   time.Time
}

// What failed is tried again after 1 s, 2 s, 4 s ... 5 min.
const firstRetry, lastRetry = time.Second, 5 * time.Minute

// retryDelay is how long to wait after that many failures before.
func retryDelay(failures int) time.Duration {
	return lifecycle.Doubled(firstRetry, failures, lastRetry)
}

func newQuarantine() quarantine {
	due := time.NewTimer(0)
	due.Stop()
	return quarantine{patients: make(map[Key]*patient), due: due}
}

func (q *quarantine) admit(key Key, e wire.Event, epoch uint64) {
	now, p := time.Now(), &patient{object: e.Object, size: e.Size, epoch: epoch}
	q.patients[key] = p
	p.postpone(now)
	q.wake(now, p.next)
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

func (p *patient) postpone(now time.Time) {
	p.next = now.Add(retryDelay(p.tries))
	p.tries++
}

// wake lets due fire at that time, if not before.
func (q *quarantine) wake(now, at time.Time) {
	if q.dueAt.IsZero() || at.Before(q.dueAt) {
		q.dueAt = at
		q.due.Reset(at.Sub(now))
	}
}

// retry decodes again all patients that are due within a second. It looks at every patient, so it runs at most once a
// second.
func (r *reflector[T]) retry() {
	q := &r.quarantine
	q.dueAt = time.Time{}
	now := time.Now()
	for key, p := range q.patients {
		if p.next.Sub(now) < firstRetry {
			it, err := r.itemOf(wire.Event{Object: p.object, Size: p.size})
			if err == nil {
				q.release(key)
				r.fifo.add(delta[T]{item: it, epoch: p.epoch}, "")
				continue
			}
			p.postpone(now)
		}
		q.wake(now, p.next)
	}
}
