package informer

import (
	"context"
	"errors"
	"fmt"
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
	// After this many doubts a plain list decides: see [reflector.goesBack].
	maxDoubts = 3
	// After more watches in a row than these that have failed or ended soon, the cache is Stale although the latest has
	// only ended soon.
	maxBarren = 3
	// After this many lists in a row that were followed by no watch, the resource cannot be watched.
	maxVain = 3
	// When watches have failed for this long, a plain list is tried, whatever the server has against them.
	patience = 5 * time.Minute
	// After this many failures in a row to learn the server's version, which take about half a minute, the watch goes
	// on without it: see [watching.checkVersion].
	maxUnanswered = 10
)

var (
	errSilent     = errors.New("the server fell silent")
	errSlowStream = fmt.Errorf("%w in a streamed list", errSilent)
	errIncomplete = errors.New("the stream ended before its list was complete")
	errShortLived = errors.New("the watch ended soon")
	errCutOff     = fmt.Errorf("%w, in the middle of an event", errShortLived)
	// errUnversioned is wrapped by the errors of [watching.checkVersion].
	errUnversioned = errors.New("list of one object")
	errWentBack    = fmt.Errorf("%w: its version went back", wire.ErrViolation)
)

// reflector feeds a DeltaFIFO with what happens to one resource. It is in one of two states. After a failure it waits
// before it tries again. [fault] says which failure leads to what.
//
//	listing ---- the list is complete ----> watching <--+
//	   ^                                     |  |       |
//	   +--- 410 Gone, protocol violation ----+  +-------+ most other ends of the watch: resume at resourceVersion
//
// A streamed list (the WatchList protocol, KEP-3157) is both at once: a watch that begins with the objects that exist
// and goes on with what happens to them. A plain list, in pages, is used where the server does not stream.
type reflector[T any] struct {
	enqueuer[T]

	// These are set before run and do not change.
	source   source
	pageSize int64
	stored   func(Key) stored // what the store has of a key; the reflector sees no more of the store
	log      klog.Logger
	purpose  string // of its random numbers

	// These are safe for concurrent use.
	wanted atomic.Pointer[metav1.ListOptions] // the selectors of the next list; nothing else is set
	// relistWanted holds a token while a list is asked for, or is to look whether slices have come: see wantList and
	// wake. listWanted says that it is the former.
	relistWanted chan struct{}
	listWanted   atomic.Bool
	// guide tells of changes of the one object that is followed, by news. Nil: it is watched.
	guide atomic.Pointer[guide[T]]
	news  news

	// The rest belongs to the goroutine of run, and to those that list or watch for it while it waits.

	// resourceVersion is where the watch resumes. Empty is the state listing, else watching.
	resourceVersion string
	selector        metav1.ListOptions // the selectors of the latest list, and so of the watches after it
	completed       uint64             // the epoch of the latest complete list of this run; zero: none
	early           earlyEvents        // empty unless a list is being streamed
	// alive ends with run. growth is that of the share when the latest list began, and filled that up to which the FIFO
	// has everything that is kept. filling brings what has come since; nil: nothing does.
	alive          context.Context
	growth, filled uint64
	filling        *filling
	// While the store keeps objects because of a nameless one, namelessTimer fires when it is time for another list.
	namelessTimer *time.Timer

	// streamsLeft is how many streamed lists may still fail where a plain one succeeds. At zero, all lists are plain.
	streamsLeft int
	// newest is the highest version that the store has been told of. doubts counts the failures which suggest that the
	// server has not reached it: see [reflector.goesBack].
	newest string
	doubts int
	// lost is true unless the latest watch ended when the server was asked to end it. If it is lost, the next watch may
	// reach another server, or the same one after a restore.
	lost bool
	// garbledAt is the version after which the watch brought something that could not be decoded.
	garbledAt string
	// failures counts the watches in a row that have failed or ended soon, and vain the lists that were complete
	// meanwhile. failing says when a list or watch failed first since a list was complete, or a watch brought
	// something or ended in its time; zero: none has.
	failures, vain int
	failing
	listedAt time.Time // when the latest list was complete
	// mutes counts the watches in a row that were answered and then silent for too long, and unanswered the failures in
	// a row of [watching.checkVersion].
	mutes, unanswered int
	// bookmarks is how many more watches are given up if they bring nothing for as long as two bookmarks take.
	bookmarks int
	// versioned is true once an object of a list or watch had a resourceVersion. (The version of a list does not count:
	// the fake clientset of client-go makes one up.) unversioned is true once an object of a list had none, or an
	// object of a watch before anything was versioned. Only a fake sends such objects: the reflector takes its events
	// as they come, and cannot resume its watches.
	versioned, unversioned bool

	reconnect, relist, namelessPace, listPace lifecycle.Backoff
}

// stored is what the store has of a key.
type stored struct {
	held            bool
	resourceVersion string // of the object that is held
	rejected        bool   // its present state could not be taken
}

// run begins with a list, and returns when ctx has ended. It may be called again then.
func (r *reflector[T]) run(ctx context.Context) {
	r.resourceVersion, r.completed = "", 0
	r.failures, r.vain, r.failing = 0, 0, failing{}
	r.health.begins()
	r.reconnect = lifecycle.Backoff{Base: 50 * time.Millisecond, Cap: 30 * time.Second, Purpose: r.purpose}
	r.relist = lifecycle.Backoff{Base: 800 * time.Millisecond, Cap: 30 * time.Second, Costly: true, Purpose: r.purpose}
	r.namelessPace = lifecycle.Backoff{Base: 10 * time.Second, Cap: lastRetry, Purpose: r.purpose}
	r.listPace = lifecycle.Backoff{Base: 2 * time.Second, Cap: lastRetry, Costly: true, Purpose: r.purpose}
	r.namelessTimer = time.NewTimer(0)
	defer r.namelessTimer.Stop()
	r.namelessTimer.Stop()
	defer r.pulse.does(resting)
	r.alive = ctx // without the pulse, which is of this goroutine only
	ctx = context.WithValue(ctx, pulseKey{}, &r.pulse)
	defer func() { r.filling.stop() }()
	r.quarantine = quarantine{make(map[Key]*patient), newAlarm()}
	defer func() {
		r.quarantine.due.Stop()
		r.quarantine = quarantine{} // or it would keep the objects alive
	}()
	for ctx.Err() == nil {
		r.pulse.does(asking)
		// The methods of the client and of its objects are user code. No lock is held while they run.
		if err := r.listOrWatch(ctx); err != nil && ctx.Err() == nil {
			r.pause(ctx, r.failed(err))
		}
	}
}

// pause waits before the next try. Relist ends the wait once its minimum is over.
func (r *reflector[T]) pause(ctx context.Context, wait lifecycle.Delay) {
	r.pulse.does(resting)
	if _, woken := lifecycle.Pause(ctx, wait, r.relistWanted); woken && r.listWanted.Load() {
		r.resourceVersion = ""
	}
	r.pulse.does(asking)
}

func (r *reflector[T]) listOrWatch(ctx context.Context) error {
	if r.resourceVersion == "" {
		return r.list(ctx)
	}
	var err error
	if g := r.guide.Load(); g != nil {
		err = g.lead(ctx, r)
	} else {
		err = r.watch(ctx)
	}
	if r.unversioned {
		r.resourceVersion = ""
	}
	return err
}

// list brings the store to the state of the server and, if the server streams the list, goes on watching.
//
// A server that cannot stream a list may answer with any error, or not at all. So after a streamed list has failed, a
// plain list follows, unless it would meet the same error: at once if the server has answered, after a second try if it
// has not. If the plain list succeeds, the streaming was at fault. A server that is slow to begin is no failure yet: it
// may have much to do. A streamed list is a watch, so while no watch is to be had, lists are plain.
func (r *reflector[T]) list(ctx context.Context) error {
	if g := r.guide.Load(); g != nil {
		return g.list(ctx, r)
	}
	// Of slices that have come the store holds nothing, so a streamed list would be held back: see earlyEvents.
	came := r.newest != "" && r.share.growth() > r.filled
	if r.streamsLeft == 0 || r.doubts >= maxDoubts || r.vain > 0 || came || r.impatient() {
		return r.pagedList(ctx)
	}
	err := r.streamedList(ctx)
	if r.completed == r.epoch || ctx.Err() != nil || hitsPlainLists(err) {
		return err // of the watch after the list, if the list is complete
	}
	noAnswer := errors.Is(err, errSilent) || errors.Is(err, errIncomplete) || errors.Is(err, wire.ErrViolation)
	if noAnswer && r.streamsLeft > 1 {
		r.streamsLeft--
		if !errors.Is(err, errSlowStream) {
			return err
		}
		r.log.V(1).Info("A streamed list is asked for once more", "err", err)
		r.pause(ctx, r.relist.After(0))
		return nil // run asks
	}
	plain := r.pagedList(ctx)
	if plain == nil && !errors.Is(err, errManyEarly) {
		r.cannotStream(err)
	}
	return plain
}

// cannotStream records that a streamed list has failed with err and a plain one has not. An error which says that the
// server does not know the protocol is believed at once; any other may have been an accident, once.
func (r *reflector[T]) cannotStream(err error) {
	r.streamsLeft--
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) {
		r.streamsLeft = 0
	}
	if r.streamsLeft == 0 {
		r.log.V(1).Info("The server does not stream lists; using plain ones from now on", "err", err)
		r.health.plain.Store(true)
	}
}

// wantList asks for a list that begins from now on.
func (r *reflector[T]) wantList() {
	r.listWanted.Store(true)
	wake(r)
}

// wake lets the reflector look whether a list is wanted, or slices have come.
func wake[T any](r *reflector[T]) {
	select {
	case r.relistWanted <- struct{}{}:
	default: // one look serves both calls
	}
}

// begin begins a list, and returns its selectors. When the list is complete, the store drops the objects of an older
// epoch.
func (r *reflector[T]) begin() metav1.ListOptions {
	select {
	case <-r.relistWanted: // this list serves the request
	default:
	}
	r.listWanted.Store(false)
	r.filling.stop()
	r.filling, r.growth = nil, r.share.growth()
	r.epoch = r.health.listing()
	r.selector = *r.wanted.Load() // after the list has its number: see listWatch.listAnew
	r.nameless = false
	return r.selector
}

// complete records that a list is complete, at resourceVersion, and that the FIFO has all of it.
func (r *reflector[T]) complete(resourceVersion string) {
	r.namelessTimer.Stop()
	if r.nameless {
		// The store keeps what may have been deleted: see writer.withheld.
		r.namelessTimer.Reset(r.namelessPace.Base + r.namelessPace.Next())
	} else {
		r.namelessPace.Reset()
		r.quarantine.sweep(r.epoch)
	}
	r.fifo.arrived(time.Now())
	if r.filled = r.growth; r.share != nil {
		r.fifo.fill(r.filled)
	}
	r.fifo.listed(r.epoch, resourceVersion, !r.nameless)
	r.resourceVersion, r.newest = resourceVersion, resourceVersion
	r.completed, r.doubts, r.mutes, r.failing = r.epoch, 0, 0, failing{}
	r.listedAt = time.Now()
	if r.failures > 0 {
		r.vain++
	}
	if r.failures <= 1 { // else what there is may be no more than this list
		r.health.following(r.epoch)
	}
}

// listsForNameless lets a list follow if the store keeps objects because of a nameless one, and reports whether.
func (r *reflector[T]) listsForNameless() bool {
	switch {
	case r.health.is(withheldSweep):
		r.resourceVersion = ""
		return true
	case uint64(r.health.get().Listed) < r.completed: // the store does not know yet whether it keeps anything
		r.namelessTimer.Reset(r.namelessPace.Base)
	}
	return false
}

// failing is since when lists or watches have failed; zero: they have not.
type failing struct{ since time.Time }

// fails records that a list or watch has failed, or that a watch has ended before its time.
func (f *failing) fails() {
	if f.since.IsZero() {
		f.since = time.Now()
	}
}

// impatient reports whether lists or watches have failed for long.
func (f *failing) impatient() bool { return !f.since.IsZero() && time.Since(f.since) >= patience }

// goesBack reports whether a version is older than one that the store has had. The store does not follow there easily:
// objects that a controller has seen deleted would exist again, and it would act on them.
//
// Each list asks for the most recent state, which no server may answer from a cache that lags. If a list is older
// nonetheless, it is refused, and a plain list decides. If that is older, too, the cluster itself has gone back,
// restored from a backup, and the store follows it: see [reflector.rewind].
func (r *reflector[T]) goesBack(resourceVersion string) bool {
	return r.newest != "" && kube.Older(resourceVersion, r.newest)
}

func wentBack(from, to string) error {
	return fmt.Errorf("%w from %s to %s", errWentBack, kube.Brief(from), kube.Brief(to))
}

// rewind lets the store follow a cluster that has gone back: the store does not compare versions of this list, and of
// what comes after it, with earlier ones.
func (r *reflector[T]) rewind(resourceVersion string) {
	r.log.Error(nil, "The cluster has gone back to an older state, as after a restore; the cache follows it",
		"from", r.newest, "to", resourceVersion)
	r.health.rewound()
	r.fifo.rewind(r.epoch)
	r.newest = ""
}
