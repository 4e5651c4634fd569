package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

const (
	// A watch must be answered, if only with headers, within this time.
	answerTimeout = 30 * time.Second
	// The server is asked to end each watch after 5 to 10 minutes, so that watches spread over its replicas again after
	// one of them was replaced. A watch that is silent for longer than it was asked to live, and a little, hangs: the
	// connection is dead and nobody noticed. The server's clock may be a little faster than ours.
	minWatch, watchSlack, clockSkew = 5 * time.Minute, 10 * time.Second, time.Second
	// A streamed list must begin, and go on, within these times; after two that did not, plain lists are used for good.
	streamBegins, streamGoesOn, streamTries = 5 * time.Second, 60 * time.Second, 2
	// No more objects than these, and bytes where they are known, are held back while a list is streamed: see
	// [heldBack].
	maxHeldBack, maxHeldBytes = 4096, 64 << 20
	// No more events than these are taken from a channel at once.
	maxDrained = 32
	// Only a watch that has lived this long is followed by the next one at once.
	longLived = 5 * time.Second
)

// heldBack is what must not come into the store before it is known that a streamed list is not from before the store's
// time: see [reflector.goesBack]. That is known at the end of the list. Until then what the store holds already may
// come, and what is newer than the store; but of the rest there is little, as the store has been told of everything up
// to its newest version.
type heldBack struct {
	arrivals []wire.Event
	bytes    int64            // of the arrivals
	keys     map[Key]struct{} // of the arrivals: what follows of one of these has to wait, too, for the order's sake
}

// errHeldBack is the error of a list with more than that, as after a Rescope. A plain list says first how old it is.
var errHeldBack = fmt.Errorf("more than %d objects, or %d bytes, that may be out of date", maxHeldBack, maxHeldBytes)

func (h *heldBack) add(key Key, a wire.Event) error {
	if h.bytes += a.Size; len(h.arrivals) == maxHeldBack || h.bytes > maxHeldBytes {
		return errHeldBack
	}
	if h.keys == nil {
		h.keys = make(map[Key]struct{})
	}
	h.arrivals, h.keys[key] = append(h.arrivals, a), struct{}{}
	return nil
}

func (h *heldBack) has(key Key) bool {
	_, held := h.keys[key]
	return held
}

// streamedList asks for the list as a watch that begins with it, and stays with that watch once the list is complete.
func (r *reflector[T]) streamedList(ctx context.Context) error {
	r.begin()
	defer func() { r.held = heldBack{} }()
	opts := r.watchOptions()
	sendInitialEvents := true
	opts.SendInitialEvents = &sendInitialEvents
	opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	return r.stream(ctx, opts)
}

// watch resumes where the last list or watch ended.
func (r *reflector[T]) watch(ctx context.Context) error {
	opts := r.watchOptions()
	opts.ResourceVersion = r.resourceVersion
	return r.stream(ctx, opts)
}

func (r *reflector[T]) watchOptions() metav1.ListOptions {
	opts := r.selector
	opts.AllowWatchBookmarks = true
	timeout := int64((minWatch + rand.N(minWatch)).Seconds())
	opts.TimeoutSeconds = &timeout
	return opts
}

// stream reads one watch to its end. It returns nil if another may follow at once.
func (r *reflector[T]) stream(ctx context.Context, opts metav1.ListOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.pulse.does(asking)
	began, replacesLost, answered := time.Now(), r.lost, true
	r.lost = true // until this one is seen to end in time
	unanswered := time.AfterFunc(answerTimeout, cancel)
	w, err := r.source.watch(withPatience(ctx, unanswered, answerTimeout), opts)
	// The request ends before the watch does: a transport may heed the one and not the other.
	stop := func() {
		r.pulse.does(ending)
		cancel()
		w.stop()
	}
	if !unanswered.Stop() && err == nil {
		stop()
		err = context.Canceled
	}
	if errors.Is(err, context.Canceled) {
		err = errSilent // or the end of the caller's ctx: then nobody looks
	}
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer stop()
	if replacesLost && r.resourceVersion != "" {
		if answered, err = r.ask(ctx); err != nil {
			return err
		}
	}

	var (
		lifetime = time.Duration(*opts.TimeoutSeconds)*time.Second + watchSlack
		patience = lifetime
		// proven fires when the watch has lived for long enough to be trusted: the server took it, and did not take it
		// back.
		proven = time.NewTimer(longLived)
	)
	defer proven.Stop()
	if r.resourceVersion == "" {
		patience = streamBegins
		proven.Stop()
	}
	trusted, heard := false, false
	watchdog := time.NewTimer(patience)
	defer watchdog.Stop()
	var some []wire.Event
	received := func(arrived []wire.Event) error {
		listing := r.resourceVersion == ""
		heard = true
		for _, a := range arrived {
			r.pulse.does(receiving)
			if err := r.receive(ctx, a); err != nil {
				return err
			}
		}
		r.health.progressed()
		switch {
		case r.resourceVersion == "":
			patience = streamGoesOn
		case listing:
			patience = lifetime
			proven.Reset(longLived)
			r.streamsLeft = streamTries
		case !trusted:
			r.health.enter(Live, nil)
		}
		watchdog.Reset(patience)
		return nil
	}
	ended := func(err error) error {
		inTime := time.Since(began) >= time.Duration(*opts.TimeoutSeconds)*time.Second-clockSkew
		r.lost = !inTime || !answered
		if r.barren++; heard || trusted {
			r.barren = 0
		}
		return r.ended(err, trusted)
	}
	for {
		asked := r.asked
		if r.resourceVersion == "" {
			asked = nil // a list that is under way is not disturbed
		}
		r.pulse.does(resting)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watchdog.C:
			if r.resourceVersion == "" {
				return fmt.Errorf("watch: %w for %s in a streamed list; a client that cannot stream one, as a fake, "+
					"may need "+
					"Options.DisableWatchList", errSilent, patience)
			}
			return fmt.Errorf("watch: %w for %s", errSilent, patience)
		case <-r.quarantine.due.C:
			r.retry()
		case <-r.again.C:
			if !r.health.is(withheldSweep) {
				continue
			}
			r.askedTo(nil)
			return nil
		case doubt := <-asked:
			r.askedTo(doubt)
			return nil
		case <-proven.C:
			trusted = true
			r.reconnect.Reset()
			r.relist.Reset()
			r.health.enter(Live, nil)
		case event, open := <-w.events:
			if !open {
				return ended(nil)
			}
			some = append(some[:0], wire.Event{Type: event.Type, Object: event.Object})
			// Whatever has come meanwhile goes with it: to wait for one event among six channels takes longer than all
			// the rest that is done with it here.
			for more := true; more && len(some) < maxDrained; {
				select {
				case event, more = <-w.events:
					if more {
						some = append(some, wire.Event{Type: event.Type, Object: event.Object})
					}
				default:
					more = false
				}
			}
			err = received(some)
			clear(some)
		case b, open := <-w.batches:
			if !open {
				_, err := w.reader.End()
				return ended(err)
			}
			r.pulse.does(receiving)
			events, err := b.Events()
			if err == nil {
				err = received(events)
			}
			if err != nil {
				return fmt.Errorf("watch: %w", err)
			}
			w.reader.Recycle(b)
		}
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
}

// ended sorts the end of a watch: what the bytes were, or how long it lived. A connection that breaks, in the midst of
// an event too, is just an end.
func (r *reflector[T]) ended(err error, trusted bool) error {
	switch {
	case errors.Is(err, wire.ErrUndecodable) || errors.Is(err, wire.ErrViolation) || errors.Is(err, ErrTooLarge):
		return fmt.Errorf("watch: %w", err)
	case r.resourceVersion == "":
		return fmt.Errorf("watch: %w", errIncomplete)
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.doubtEvent()
		return errShortLived
	case trusted:
		return nil
	default:
		return errShortLived
	}
}

// receive takes one event of a watch. While the state is listing, the events are those of a streamed list.
func (r *reflector[T]) receive(ctx context.Context, a wire.Event) error {
	if a.Type == watch.Error {
		if a.Err != nil {
			return a.Err
		}
		return statusError(a.Object)
	}
	if errors.Is(a.Err, wire.ErrViolation) {
		return a.Err
	}
	object, err := meta.Accessor(a.Object)
	if err == nil && !kube.IsNil(object) {
		switch {
		case object.GetResourceVersion() != "":
			r.versioned = true
		// It is an object, not a bookmark. The list before this watch was empty, and so could not tell; or it had
		// versions that somebody set by hand.
		case (!r.versioned || !r.source.streams()) && r.resourceVersion != "" && object.GetName() != "":
			r.unversioned = true
		}
	}
	if err != nil || kube.IsNil(object) || object.GetResourceVersion() == "" && !r.unversioned {
		return fmt.Errorf("%w: an event %q without a resourceVersion, holding a %T", wire.ErrViolation, kube.Brief(a.Type),
			a.Object)
	}
	if a.Err != nil && object.GetName() == "" {
		return fmt.Errorf("%w: an event %q about nobody knows what: %w", wire.ErrViolation, kube.Brief(a.Type), a.Err)
	}
	if r.resourceVersion == "" {
		return r.receiveListed(ctx, a, object)
	}
	version := object.GetResourceVersion()
	reached, repeated := version, false
	switch {
	case version == "": // it is neither before nor after anything
		reached = r.resourceVersion
	case kube.Older(version, r.resourceVersion):
		switch key := KeyOf(object); {
		case r.store.holds(key, version):
			repeated = true // the object's own version has not gone back: see delta.repeated
		// A fake lets objects be created with versions that were set by hand. From a server it may be one that is long
		// gone.
		case r.source.streams() || a.Type != watch.Added || r.store.has(key):
			return wentBack(r.resourceVersion, version)
		}
		reached = r.resourceVersion
	}
	if a.Type == watch.Bookmark {
		r.fifo.reached(reached)
	} else if err := r.put(a, reached, repeated); err != nil {
		return err
	}
	r.resourceVersion, r.newest = reached, reached
	return nil
}

// receiveListed takes one event of a streamed list.
func (r *reflector[T]) receiveListed(ctx context.Context, a wire.Event, object metav1.Object) error {
	key, version := KeyOf(object), object.GetResourceVersion()
	old := r.goesBack(version)
	switch {
	case a.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true":
		return nil
	case a.Type == watch.Bookmark && old:
		return wentBack(r.newest, version)
	case a.Type == watch.Bookmark:
		for _, a := range r.held.arrivals {
			if err := r.put(a, "", false); err != nil {
				return err
			}
		}
		r.held = heldBack{}
		r.complete(version)
		return nil
	// After a Rescope the store may yet let go of what it holds: the end of a list of another selection may be on its
	// way there.
	case r.held.has(key) || old && (!r.synced || a.Type == watch.Deleted || !r.store.holds(key, version) ||
		r.store.rejected(key) != nil || r.quarantine.has(key)):
		return r.held.add(key, a)
	}
	return r.put(a, "", old) // what is old and held may be older than what waits for the store
}

// put puts an event about an object into the FIFO; reached and repeated are as for take.
func (r *reflector[T]) put(a wire.Event, reached string, repeated bool) error {
	switch a.Type {
	case watch.Added, watch.Modified:
		return r.take(a, reached, repeated)
	case watch.Deleted:
		r.takeDeletion(a, reached)
		return nil
	default:
		return fmt.Errorf("%w: an event of the unknown type %q", wire.ErrViolation, kube.Brief(a.Type))
	}
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
