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

// Event is one change of the store, told after the store has changed: a handler that calls Get sees this state of the
// key, or a later one.
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
	// Resync marks an Updated that is no news: Old and New are the same state, and the handler knows it. See
	// HandlerOptions.Resync and HandlerOptions.Every.
	Resync bool
}

// Handler is told of every change of the store that it is fast enough to see. It must not change the objects of the
// event: they are the store's own.
//
// A panic is recovered and logged, and the event is delivered again after 1 s, 2 s, 4 s ... 5 min. Later events of its
// key wait until then and are merged with it, so that Old is what the handler has last returned from; an object that is
// gone by then is not mentioned any more if the handler has never returned from its Added. A Deleted is given up after
// ten more tries. A handler that ends its goroutine (runtime.Goexit, and so t.FailNow) is treated as if it had
// panicked. HandlerOptions.CrashOnPanic is the other choice.
type Handler[T any] func(Event[T])

// HandlerOptions may be left zero.
type HandlerOptions struct {
	// Name stands for the handler in logs and errors. Empty: "handler".
	Name string
	// Inline calls the handler on the informer's own goroutine, right after the change and with no buffer in between,
	// so that it sees every change of the store. It then holds up the informer and its other handlers: it must be
	// quick, and must not call AddHandler, AddIndex or Rescope. An event on which it panics, or calls runtime.Goexit,
	// is lost on it. This is what package reconcile uses to turn objects into keys.
	Inline bool
	// Reached is called on the informer's own goroutine each time the store has reached a resourceVersion in a
	// namespace, NamespaceAll if there are not several, after everything up to it has been applied; see
	// [SharedIndexInformer.ResourceVersion]. An empty version says that the namespace has been taken out of scope. It
	// is under the same rules as an inline handler. Nil: nobody wants to know.
	Reached func(namespace, resourceVersion string)
	// Resync tells the handler of each object once in this time, news or not, as an Updated with Event.Resync set. The
	// objects take turns, by a hash of their keys, so that no moment has to bear them all. A controller that follows
	// the rules has no use for it: it is for a handler that compares the objects with something outside of the cluster,
	// which changes without a word. While it is on, the informer keeps a second list of the keys. Zero: never.
	// Otherwise at least a second.
	Resync time.Duration
	// Every lets the handler have each change that the server tells of. Nothing is merged, neither on the way to the
	// store, which goes through each state, nor in front of the handler, but for what follows an event that it panicked
	// on: so if the store or the handler is slow, what waits grows WITHOUT BOUND. Other handlers are told more than
	// without it, too; what waits for them is merged as always. The handler is also told, as an Updated with
	// Event.Resync set, when a list or watch repeats a state that the store holds. For code that counts on that, as
	// client-go's informers let it; what a state is made of is known without.
	Every bool
	// CrashOnPanic lets a panic of the handler, or of Reached, end the process, as any other panic does. For those who
	// would rather be restarted than run with whatever the panic has left behind. An event on which such a handler ends
	// its goroutine is lost on it.
	CrashOnPanic bool
}

// AddHandler lets h be told of every change. It may be called before Run and while it runs; then h is first told of
// everything that the store holds, as Added with Initial set, and misses nothing that follows. An inline handler is
// told so before AddHandler returns, by this goroutine. Once Run ends, the error is [ErrStopped].
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
			if !inf.writeUnless(ctx.Done(), func(*writer[T]) {}) {
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

// Pending returns how many events are waiting for the handler, one for each key on which it panicked included: how far
// it lags behind.
func (r *Registration) Pending() int { return r.pending() }

// Merged returns how many events the handler has not been called with because it was too far behind: more than 1024
// were waiting, and more than two for each object of the store. They were merged with others of their key, so that what
// it is told is still true, only less of it. A number that grows means that the handler is too slow for what happens.
// It stays 0 with HandlerOptions.Every.
func (r *Registration) Merged() int { return r.merged() }

// Done is closed once the handler has been removed, or Run's context has ended, and the handler has returned for the
// last time. For an inline handler, which Remove waits for, it says only that it has been removed.
func (r *Registration) Done() <-chan struct{} { return r.done }

// Remove takes the handler away and waits until it has returned for the last time, or until ctx ends, whose error it
// then returns. The handler is deaf at once: events that are waiting for it are dropped. One that removes itself would
// wait for itself, so it passes a context that has ended.
func (r *Registration) Remove(ctx context.Context) error { return r.remove(ctx) }

// Filter wraps a handler that wants to be told of some objects only. An object becomes wanted when keep returns true:
// then h is told Added, Updated as long as the object stays wanted, and Deleted when keep returns false or the object
// is deleted. So h sees the rounds that [Event] promises, of fewer objects.
//
// keep must depend on the object alone and must not change it. The Handler remembers which keys h knows of, so use it
// for one AddHandler. The error says which of the two arguments is nil.
func Filter[T any](keep func(T) bool, h Handler[T]) (Handler[T], error) {
	switch {
	case keep == nil:
		return nil, errors.New("informer: Filter: the function that says which objects to keep is nil")
	case h == nil:
		return nil, errors.New("informer: Filter: the handler is nil")
	}
	// The last state of a deleted object does not tell whether an earlier one was wanted, so that has to be remembered.
	// A handler is never called twice at once, hence no lock. A panic of h leaves known as it was, because the event
	// will come again.
	known := make(map[Key]struct{})
	return func(e Event[T]) {
		_, knew := known[e.Key]
		wants := e.Type != Deleted && keep(e.New)
		var none T
		switch {
		case !knew && !wants:
			return
		case !knew:
			e.Type, e.Old = Added, none
		case !wants && e.Type == Updated:
			e.Type, e.New = Deleted, none
		}
		h(e)
		if wants {
			known[e.Key] = struct{}{}
		} else {
			delete(known, e.Key)
		}
	}, nil
}
