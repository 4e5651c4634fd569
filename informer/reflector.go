package informer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

const (
	// With this many doubts a plain list has the last word: see [reflector.goesBack].
	maxDoubts = 3
	// With this many watches in a row that ended soon, and brought nothing, the cache follows nobody.
	maxBarren = 3
	// So often in a row, which takes about half a minute, a server that fails when it is asked for its version is asked
	// before each watch: see [reflector.ask].
	maxUnanswered = 10
)

var (
	errSilent     = errors.New("the server fell silent")
	errIncomplete = errors.New("the stream ended before its list was complete")
	errShortLived = errors.New("the watch ended soon")
	errWentBack   = fmt.Errorf("%w: its version went back", wire.ErrViolation)
)

// reflector keeps a DeltaFIFO fed with what happens to one resource. It is in one of two states, each with a wait
// before it is tried again:
//
//	listing ---- the list is complete ----> watching <--+
//	   ^                                     |  |       |
//	   +--- 410 Gone, protocol violation ----+  +-------+ any other end of the watch: resume at resourceVersion
//
// A streamed list (the WatchList protocol, KEP-3157) is both at once: a watch that begins with the objects that exist
// and goes on with what happens to them. A plain list, paged, is used where the server does not stream.
//
// Every field that changes belongs to the goroutine of run, or to the one that lists or watches for it, which user code
// may end.
type reflector[T any] struct {
	source    source
	namespace string // of all its objects; NamespaceAll: they may be of any, or of none
	pageSize  int64
	decode    decoder[T]
	fifo      *deltaFIFO[T]
	store     *indexer[T]
	exits     *lifecycle.Exits
	health    *listWatchHealth
	pulse     pulse
	log       klog.Logger

	// wanted is what the next list will ask for, and selector what the latest asked for, as do the watches after it.
	// Only their selectors are set.
	wanted   atomic.Pointer[metav1.ListOptions]
	selector metav1.ListOptions

	quarantine quarantine
	// resourceVersion is where the watch resumes. Empty is the state listing, else watching.
	resourceVersion string
	// epoch numbers the lists; see deltaFIFO. completed is that of the latest one that was complete.
	epoch, completed uint64
	// streamsLeft is how many streamed lists may still fail where a plain one does not, before plain ones are used for
	// good.
	streamsLeft int
	// synced is true once a list has been completed.
	synced bool
	// newest is the highest version that the store has been told of. doubts grows while the server seems not to have
	// reached it: see [reflector.goesBack].
	newest string
	doubts int
	// held is empty unless a list is being streamed.
	held heldBack
	// garbledAt is the version after which the watch brought something that could not be decoded.
	garbledAt string
	// lost is true unless the latest watch ended when it was asked to: what answers the next one may be another server,
	// or the same one after a restore.
	lost bool
	// barren counts the watches in a row that ended soon, and brought nothing.
	barren int
	// unanswered counts how often in a row the server has failed when it was asked for its version.
	unanswered int
	// unversioned is true once a list held an object without a resourceVersion, or an event did before anything was
	// versioned. No real server does that, but the fake clientset of client-go does: its events have none, either, so
	// they are taken as they come, and a watch that has ended cannot be resumed.
	unversioned bool
	// versioned is true once anything that a list held or a watch brought had a resourceVersion, which tells a real
	// server from a fake one. The version of a list itself does not: the fake clientset makes one up.
	versioned bool
	// nameless is true once the present list had an object whose name could not be read: any of those that the store
	// holds may be meant. Then again fires when it is time for another list, if the store keeps objects for that
	// reason.
	nameless bool
	again    *time.Timer

	reconnect, relist, unread lifecycle.Backoff

	// asked holds a token, and a doubt or nil, while somebody wants a list: see [SharedIndexInformer.Relist].
	asked chan error
}

// run begins with a list, and returns when ctx has ended. It may be called again then.
func (r *reflector[T]) run(ctx context.Context) {
	r.resourceVersion, r.synced = "", false
	r.health.enter(Listing, nil)
	r.reconnect = lifecycle.Backoff{Base: 50 * time.Millisecond, Cap: 30 * time.Second}
	r.relist = lifecycle.Backoff{Base: 800 * time.Millisecond, Cap: 30 * time.Second, Costly: true}
	r.unread = lifecycle.Backoff{Base: 10 * time.Second, Cap: lastRetry}
	r.again = time.NewTimer(0)
	defer r.again.Stop()
	r.again.Stop()
	defer r.pulse.does(resting)
	ctx = context.WithValue(ctx, pulseKey{}, &r.pulse)
	r.quarantine = newQuarantine()
	defer r.quarantine.due.Stop()
	for ctx.Err() == nil {
		r.pulse.does(asking)
		var err error
		// The methods of the client and of its objects are user code. No lock is held where they are called.
		panicked := lifecycle.Apart(func() { err = r.listOrWatch(ctx) })
		if panicked != nil {
			err = fmt.Errorf("a method of the client or of an object, or Options.Transform: %w", panicked)
		}
		if errors.Is(panicked, lifecycle.ErrExited) {
			r.exits.Note()
		}
		if err != nil && ctx.Err() == nil {
			r.pause(ctx, r.failed(err))
		}
	}
}

// pause waits before the next try. A list that is asked for meanwhile ends the wait, once its minimum is over.
func (r *reflector[T]) pause(ctx context.Context, wait lifecycle.Delay) {
	r.pulse.does(resting)
	if doubt, woken := lifecycle.Pause(ctx, wait, r.asked); woken {
		r.askedTo(doubt)
	}
	r.pulse.does(asking)
}

func (r *reflector[T]) listOrWatch(ctx context.Context) error {
	if r.resourceVersion == "" {
		return r.list(ctx)
	}
	err := r.watch(ctx)
	if r.unversioned {
		r.resourceVersion = ""
	}
	return err
}

// failed decides what an error means for the state and returns how long to wait.
func (r *reflector[T]) failed(err error) lifecycle.Delay {
	if errors.Is(err, errShortLived) {
		// An ordinary end, only early: the cache is as good as ever. But client-go makes the same of a server that
		// hangs up on everybody.
		if r.barren >= maxBarren {
			r.health.failed(fmt.Errorf("%w, %d times in a row, before anything had come", err, r.barren), r.synced)
		}
		return r.reconnect.After(kube.RetryAfter(err))
	}
	r.log.V(2).Info("List or watch failed", "err", err, "resourceVersion", r.resourceVersion)
	r.health.failed(err, r.synced)

	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsNotFound(err) ||
		errors.Is(err, wire.ErrViolation) || errors.Is(err, ErrTooLarge) {
		r.resourceVersion = ""
	}
	switch {
	case errors.Is(err, wire.ErrUndecodable) && r.resourceVersion != "":
		r.doubtEvent()
	case errors.Is(err, errWentBack):
		r.doubts = maxDoubts
	case tooLarge(err):
		r.doubts++
	}
	pace := &r.reconnect
	if r.resourceVersion == "" {
		pace = &r.relist
	}
	return pace.After(kube.RetryAfter(err))
}

// doubtEvent notes that what follows the present version could not be read. A broken connection looks the same; if it
// is the event itself, it comes again: then a list goes past it.
func (r *reflector[T]) doubtEvent() {
	if r.garbledAt == r.resourceVersion {
		r.resourceVersion = ""
	}
	r.garbledAt = r.resourceVersion
}

// list brings the store to the state of the server, and, if the server streams the list, goes on watching.
//
// A server that cannot stream a list may say so in any words, or fall silent. So whatever comes of a streamed list,
// unless a plain one would fare no better, is followed by a plain one: at once if it is an answer, and after a second
// try if it is not. If the plain list succeeds, the fault lay in the streaming.
func (r *reflector[T]) list(ctx context.Context) error {
	if r.streamsLeft == 0 || r.doubts >= maxDoubts {
		return r.pagedList(ctx)
	}
	err := r.streamedList(ctx)
	if r.completed == r.epoch || ctx.Err() != nil || hitsPlainLists(err) {
		return err // if the list is complete, it is the watch after it that has ended
	}
	noAnswer := errors.Is(err, errSilent) || errors.Is(err, errIncomplete) || errors.Is(err, wire.ErrViolation)
	if noAnswer && r.streamsLeft > 1 {
		r.streamsLeft--
		return err
	}
	plain := r.pagedList(ctx)
	if plain == nil && !errors.Is(err, errHeldBack) {
		r.cannotStream(err)
	}
	return plain
}

// hitsPlainLists reports whether the error of a streamed list is one that a plain list would meet as well: the server
// cannot be reached, refuses, knows no such resource, or wants to be asked later.
func hitsPlainLists(err error) bool {
	if errors.Is(err, errWentBack) {
		return true
	}
	var network net.Error // that of a request which was not answered is one
	if errors.As(err, &network) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	_, later := apierrors.SuggestsClientDelay(err)
	return later || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// cannotStream notes that a streamed list has failed with err where a plain one did not. A server that does not know
// the protocol is believed at once; anything else may have been an accident, once.
func (r *reflector[T]) cannotStream(err error) {
	if r.streamsLeft--; apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) {
		r.streamsLeft = 0
	}
	if r.streamsLeft == 0 {
		r.log.V(1).Info("The server does not stream lists; using plain ones from now on", "err", err)
		r.health.plain.Store(true)
	}
}

// begin opens a list, and returns what it is to ask for: what the store holds from an older epoch when the list is
// complete is gone.
func (r *reflector[T]) begin() metav1.ListOptions {
	select {
	case doubt := <-r.asked: // this is the list that was asked for
		r.doubted(doubt)
	default:
	}
	r.epoch = r.health.listing()
	r.selector = *r.wanted.Load() // after it has its number: see listWatch.ask
	r.nameless = false
	return r.selector
}

// complete records that a list has come to its end, at resourceVersion, and that everything up to there is in the FIFO.
func (r *reflector[T]) complete(resourceVersion string) {
	r.again.Stop()
	if r.nameless {
		// What is kept for that reason may have been deleted: see SharedIndexInformer.withheld.
		r.again.Reset(r.unread.Base + r.unread.Next())
	} else {
		r.unread.Reset()
		r.quarantine.sweep(r.epoch)
		r.fifo.swept(r.epoch)
	}
	r.health.progressed()
	r.fifo.listed(r.epoch, resourceVersion)
	r.newest = resourceVersion
	r.synced, r.doubts = true, 0
	r.resourceVersion, r.completed = resourceVersion, r.epoch
	r.health.enter(Live, nil)
}

// goesBack reports whether a version is older than one that the store has had. The store never follows there lightly:
// what a controller has seen deleted would exist again, and it would act on that.
//
// Each list asks for the most recent state, which no server can answer from a cache that lags. So if one is older
// nonetheless, it is refused, and a plain list decides. If that is older, too, the cluster itself has gone back,
// restored from a backup, and the store goes with it: [reflector.rewind].
func (r *reflector[T]) goesBack(resourceVersion string) bool {
	return r.newest != "" && kube.Older(resourceVersion, r.newest)
}

func wentBack(from, to string) error {
	return fmt.Errorf("%w from %s to %s", errWentBack, kube.Brief(from), kube.Brief(to))
}

// ask finds out, once a lost connection has been replaced, whether the server has what the cache has seen. One that was
// restored from a backup has not: it accepts a watch that begins in its future, and says nothing, bookmarks included,
// until it gets there.
//
// It is asked for one object, for the sake of the list's version. The most recent one, since a server that lags would
// make the others wait, and client-go ask ten times over; and not "0", for then API servers take no notice of the
// limit. Most answer from memory, and ask etcd for its version only. It is any object: to find one that is selected a
// server may have to look at all of them, which is much to ask of one that reads them from etcd, as it does those it
// has no cache of, such as Events, and all of them until that cache is complete. Only where the right to list depends
// on the selectors, or any object is one that cannot be read, they are said.
//
// There is one such request for each connection that was replaced, behind the watch: a server that takes no watches is
// not asked, and all the informers of a cluster, when their server has gone, come back spread out by their backoff, or
// the [Gate].
//
// Without an answer there is no watch: the connection may have led to the past. But where a list cannot be had at all,
// because of one object that nobody can read, the watch goes on, and the question is put again to the next one:
// answered is false.
func (r *reflector[T]) ask(ctx context.Context) (answered bool, err error) {
	opts := metav1.ListOptions{Limit: 1}
	first := func() (metav1.ListMeta, error) {
		return r.page(ctx, opts, answerTimeout, func(*metav1.ListMeta, []wire.Event) error { return nil })
	}
	unreadable := func(err error) bool { return errors.Is(err, wire.ErrUndecodable) || apierrors.IsInternalError(err) }
	list, err := first()
	selected, unselected := r.selector, err
	// What cannot be read may be the trouble of the server or of a connection, which passes, and is not to be added to;
	// so that is asked a few times.
	if selected != (metav1.ListOptions{}) &&
		(apierrors.IsForbidden(err) || unreadable(err) && r.unanswered >= maxUnanswered-1) {
		opts.LabelSelector, opts.FieldSelector = selected.LabelSelector, selected.FieldSelector
		list, err = first()
	}
	switch {
	case unreadable(err):
		if r.unanswered++; r.unanswered >= maxUnanswered {
			return false, nil
		}
		if errors.Is(err, wire.ErrUndecodable) {
			err = errors.New(err.Error()) // for it is not the watch that has brought it
		}
	case err == nil || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsBadRequest(err):
		if !unreadable(unselected) {
			r.unanswered = 0
		}
		if err != nil || !r.goesBack(list.ResourceVersion) {
			return true, nil // who may watch, and not list, has to do without
		}
		err = wentBack(r.newest, list.ResourceVersion)
	}
	return false, fmt.Errorf("list of one object: %w", err)
}

// tooLarge reports whether the server has not reached the version that was asked for, or that it asked its own storage
// for.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// rewind lets the store follow a cluster that has gone back: what comes in from now on is compared with nothing that
// came before.
func (r *reflector[T]) rewind(resourceVersion string) {
	r.log.Error(nil, "The cluster has gone back to an older state, as after a restore; the cache follows it", "from",
		r.newest, "to", resourceVersion)
	r.health.rewound()
	r.fifo.rewind(r.epoch)
	r.newest = ""
}
