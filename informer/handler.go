package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// EventType says how the store changed.
type EventType uint8

const (
	// Added: the key is new in the store, or taken by another object (a new UID) than before. New is set.
	Added EventType = iota + 1
	// Updated: the object has another resourceVersion, or Event.Resync says that it has not. Old and New are set, and
	// have the same UID.
	Updated
	// Deleted: the object is no longer in the store. Old is its last known state.
	Deleted
)

func (t EventType) String() string {
	switch t {
	case Added:
		return "Added"
	case Updated:
		return "Updated"
	case Deleted:
		return "Deleted"
	}
	return fmt.Sprintf("EventType(%d)", uint8(t))
}

// Event is one change of the store. Handlers are told of it after the store has changed: a handler that calls Get sees
// this state of the key, or a later one.
//
// A handler sees, for each key, a subsequence of the object's true states, in order: Added Updated* Deleted, then Added
// again, and so on. What lies between two states that it sees may have been merged, and the Old of an Updated is the
// state that this handler saw last. One round from Added to Deleted is about one UID: an object that was deleted and
// created again is Deleted and Added, never Updated.
type Event[T any] struct {
	Type            EventType
	Key             Key
	UID             types.UID
	ResourceVersion string
	Old, New        T
	// Initial marks an Added that comes from the first list, or from what the store held when the handler joined. After
	// a Rescope it is once more the first list of its namespace.
	Initial bool
	// FinalStateUnknown marks a Deleted that the server did not report: the object was missing from a list, replaced
	// under its key, or taken out of scope. Old is then the last state that the store held, not necessarily the
	// object's last.
	FinalStateUnknown bool
	// Left marks a Deleted that says nothing of the object itself: Options.Shard leaves it to another replica from now
	// on, and it may exist as before. FinalStateUnknown is set, too.
	Left bool
	// Resync marks an Updated that tells no change: Old and New are the same state, which the handler was told before.
	// See HandlerOptions.Resync and HandlerOptions.Every.
	Resync bool
	// Listed marks a change that no watch has sent: a list has shown it. The store reaches no version by it; it reaches
	// that of the list, once the list is complete.
	Listed bool
}

// Handler is told of every change of the store that it is fast enough to see. It must not change the objects of the
// event: they are the store's own.
//
// A panic is recovered and logged, and the handler is called again with the event after 1 s, 2 s, 4 s ... 5 min. Later
// events of its key wait until then and are merged with it, so that Old is the state that the handler last returned
// from; if the handler never returned from the Added of an object that has been deleted since, it is not called again
// for it. A Deleted is given up after ten more tries. A handler that ends its goroutine (runtime.Goexit, and so
// t.FailNow) is treated as if it had panicked. With HandlerOptions.CrashOnPanic a panic ends the process instead.
type Handler[T any] func(Event[T])

// HandlerOptions may be left zero.
type HandlerOptions struct {
	// Name is the handler's name in logs and errors. Empty: "handler".
	Name string
	// Inline calls the handler right after the change and without a buffer, so that it sees every change of the
	// store. While it runs, the informer and its other handlers wait: it must be quick, and must not call AddHandler,
	// AddIndex or Rescope, nor wait in the Remove of an inline handler of the same informer, be it its own: that
	// takes a context that has ended. If it panics on an event, or calls runtime.Goexit, it is not called again with
	// that event. Package reconcile uses inline handlers to turn objects into keys.
	Inline bool
	// Reached is called on the informer's own goroutine each time the store has reached a resourceVersion in a
	// namespace (NamespaceAll if the informer does not follow several), after everything up to it has been applied; see
	// [SharedIndexInformer.ResourceVersion]. An empty version says that the namespace has been taken out of scope. The
	// rules of an inline handler hold for it, and it must not call runtime.Goexit. Nil: it is not called.
	Reached func(namespace, resourceVersion string)
	// Invalid is called on the informer's own goroutine each time the answer of [SharedIndexInformer.Invalid] for a key
	// has changed: when the object cannot be taken any more (before is nil), when a further state of it cannot
	// be taken, and when one can, or the object is gone (now is nil). The handler itself is told of such an object
	// only what has become of its last good state in the store. When a handler is added, Invalid is called for each
	// object that cannot be taken then. The rules of Reached hold for it. Nil: it is not called.
	Invalid func(key Key, before, now *InvalidError)
	// Resync tells the handler of each object once in this time, changed or not, as an Updated with Event.Resync set.
	// The objects take turns, by a hash of their keys, so that they do not come all at once. It is for a handler that
	// compares the objects with something outside of the cluster, which sends no events; other handlers do not need it.
	// It costs the memory for a second list of the keys. Zero: never. The least value is a second.
	Resync time.Duration
	// Every tells the handler of each change that the server sends. Nothing is merged, neither on the way to the
	// store nor in front of the handler, except behind an event on which the handler panicked: so if the store or the
	// handler is slow, what waits grows WITHOUT BOUND. Other handlers are told more changes than without it, too;
	// what waits for them is merged as always. The handler is also told, as an Updated with Event.Resync set, when a
	// list or watch repeats a state that the store holds. It is for code that counts on each change, as client-go's
	// informers allow.
	Every bool
	// CrashOnPanic lets a panic of the handler, or of Reached, end the process, as any other panic does: a restart is
	// safer than a program that goes on with what the panic has left behind. If such a handler ends its goroutine on an
	// event, it is not called again with that event.
	CrashOnPanic bool
}

// AddHandler lets h be told of every change. You may call it before Run and while the informer runs; then h is first
// told of everything that the store holds, as Added with Initial set, and of each change after that. An inline handler
// is told of what the store holds before AddHandler returns. The error wraps [ErrStopped] once Run's
// context has ended.
func (inf *SharedIndexInformer[T]) AddHandler(h Handler[T], opts HandlerOptions) (*Registration, error) {
	fail := func(err error) (*Registration, error) {
		return nil, fmt.Errorf("informer %s: AddHandler: %w", inf.name, err)
	}
	switch {
	case h == nil:
		return fail(errors.New("the handler is nil"))
	case opts.Resync != 0 && opts.Resync < minResync:
		return fail(fmt.Errorf("HandlerOptions.Resync is %s; it is at least %s, or zero for never", opts.Resync,
			minResync))
	}
	l := newListener(h, opts)
	var err error
	if stopped := inf.write(func(w *writer[T]) { err = w.join(l) }); stopped != nil {
		err = stopped
	}
	if err != nil {
		return fail(err)
	}
	remove := func(ctx context.Context) error {
		l.remove()
		if l.inline { // once the writer is to be had, the handler has returned; the next tell forgets it
			if !inf.writeUnless(ctx, nil, func(*writer[T]) {}) {
				return ctx.Err()
			}
			return nil
		}
		select {
		case <-l.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return &Registration{synced: l.synced, pending: l.pending, merged: l.mergedAway, done: l.ended, remove: remove}, nil
}

// Registration is a handler that has been added to an informer.
type Registration struct {
	synced  <-chan struct{}
	pending func() int
	merged  func() int
	done    <-chan struct{}
	remove  func(context.Context) error
}

// Synced is closed once the handler has returned from every event, or panicked on it, of the initial state: the first
// list, or what the store held when the handler joined.
func (r *Registration) Synced() <-chan struct{} { return r.synced }

// Pending returns how many events are waiting for the handler, including one for each key on which it panicked.
func (r *Registration) Pending() int { return r.pending() }

// Merged returns how many events the handler has not been called with because they were merged with later ones of
// their key. That happens when more than 1024 are waiting, and more than two for each object of the store. A number
// that grows means that the handler is too slow. It stays 0 with HandlerOptions.Every.
func (r *Registration) Merged() int { return r.merged() }

// Done is closed once the handler has been removed, or Run's context has ended, and the handler has returned for the
// last time. For an inline handler, which Remove waits for, it says only that it has been removed.
func (r *Registration) Done() <-chan struct{} { return r.done }

// Remove removes the handler and waits until it has returned for the last time: events that are waiting for it are
// dropped. If ctx ends before, Remove returns the error of ctx, and a call may be under way, which may even begin then;
// there is no other after it. A handler that removes itself would wait for itself, so it passes a context that has
// ended.
func (r *Registration) Remove(ctx context.Context) error { return r.remove(ctx) }
