package informer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/backoff"
)

const (
	// A request must be answered, if only with headers, within this time. A page of a plain list is one answer.
	answerTimeout = 30 * time.Second
	pageTimeout   = 2 * time.Minute
	// The server is asked to end each watch after 5 to 10 minutes, so that watches spread over its replicas again after one of them was
	// replaced. A watch that outlives this by the slack hangs: the connection is dead and nobody noticed.
	minWatch, watchSlack = 5 * time.Minute, 10 * time.Second
	// A streamed list must begin, and go on, within these times; after two that did not, plain lists are used for good.
	streamBegins, streamGoesOn, streamTries = 5 * time.Second, 60 * time.Second, 2
	// Only a watch that has lived this long is followed by the next one at once.
	longLived = 5 * time.Second
	// An expired continue token restarts a paged list, until the list is asked for in one piece.
	pagedTries = 3
	// A list of more pages than this has no end.
	maxPages = 100_000
	// With this many doubts a plain list has the last word.
	maxDoubts = 3
)

var (
	errSilent     = errors.New("the server fell silent")
	errIncomplete = errors.New("the stream ended before its list was complete")
	errViolation  = errors.New("the server broke the protocol")
	errShortLived = errors.New("the watch ended soon")
	errWentBack   = fmt.Errorf("%w: its version went back", errViolation)
)

// reflector keeps a DeltaFIFO fed with what happens to one resource. It is in one of two states, each with a wait before it is tried again:
//
//	listing ---- the list is complete ----> watching <--+
//	   ^                                     |  |       |
//	   +--- 410 Gone, protocol violation ----+  +-------+ any other end of the watch: resume at resourceVersion
//
// A streamed list (the WatchList protocol, KEP-3157) is both at once: a watch that begins with the objects that exist and goes on with
// what happens to them. A plain list, paged, is used where the server does not stream.
//
// Every field belongs to the goroutine of run.
type reflector[T any] struct {
	source   source
	selector metav1.ListOptions // only its selectors are set
	pageSize int64
	decode   decoder[T]
	fifo     *deltaFIFO[T]
	health   *health
	log      klog.Logger

	quarantine quarantine
	// resourceVersion is where the watch resumes. Empty is the state listing, else watching.
	resourceVersion string
	// epoch numbers the lists; see deltaFIFO.
	epoch uint64
	// streamsLeft is how many streamed lists may still go wrong before plain lists are used for good.
	streamsLeft int
	// synced is true once a list has been completed.
	synced bool
	// newest is the highest version that the store has been told of. doubts grows while the server seems not to have reached it: see [reflector.goesBack].
	newest string
	doubts int
	// garbledAt is the version after which the watch brought something that could not be decoded.
	garbledAt string
	// unversioned is true once a list held an object without a resourceVersion. No real server does that, but the fake clientset of client-go does:
	// its events have none, either, so they are taken as they come, and a watch that has ended cannot be resumed.
	unversioned bool

	reconnect, relist backoff.Backoff
}

// run returns when ctx has ended.
func (r *reflector[T]) run(ctx context.Context) {
	r.reconnect = backoff.Backoff{Base: 50 * time.Millisecond, Cap: 30 * time.Second}
	r.relist = backoff.Backoff{Base: 800 * time.Millisecond, Cap: 30 * time.Second}
	r.quarantine = newQuarantine()
	for ctx.Err() == nil {
		var err error
		if r.resourceVersion == "" {
			err = r.list(ctx)
		} else {
			err = r.watch(ctx)
			if r.unversioned {
				r.resourceVersion = ""
			}
		}
		if err != nil && ctx.Err() == nil {
			backoff.Sleep(ctx, r.failed(err))
		}
	}
}

// failed decides what an error means for the state and returns how long to wait.
func (r *reflector[T]) failed(err error) time.Duration {
	if errors.Is(err, errShortLived) {
		return r.reconnect.Next() // an ordinary end, only early: the cache is as good as ever
	}
	r.log.V(2).Info("List or watch failed", "err", err, "resourceVersion", r.resourceVersion)
	r.health.failed(err, r.synced)

	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsNotFound(err) || errors.Is(err, errViolation) {
		r.resourceVersion = ""
	}
	switch {
	case errors.Is(err, errUndecodable) && r.resourceVersion != "":
		// A broken connection looks the same. If it is the event itself, it comes again: then a list goes past it.
		if r.garbledAt == r.resourceVersion {
			r.resourceVersion = ""
		}
		r.garbledAt = r.resourceVersion
	case errors.Is(err, errWentBack):
		r.doubts = maxDoubts
	case tooLarge(err):
		r.doubts++
	}
	wait := r.reconnect.Next
	if r.resourceVersion == "" {
		wait = r.relist.Next
	}
	// Retry-After is a minimum: everybody who was refused at once has got the same number, so the jitter comes on top.
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds)*time.Second + wait()
}

// list brings the store to the state of the server, and, if the server streams the list, goes on watching.
func (r *reflector[T]) list(ctx context.Context) error {
	if r.streamsLeft > 0 && r.doubts < maxDoubts {
		err := r.streamedList(ctx)
		if r.resourceVersion != "" {
			return err // the list went well; it is the watch after it that has ended
		}
		switch {
		case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err):
			r.streamsLeft = 0 // the server does not know the protocol
		case errors.Is(err, errSilent) || errors.Is(err, errIncomplete) || errors.Is(err, errViolation) && !errors.Is(err, errWentBack):
			r.streamsLeft--
		default:
			return err // nothing to do with streaming: unreachable, overloaded, forbidden
		}
		if r.streamsLeft > 0 || ctx.Err() != nil {
			return err
		}
		r.log.V(1).Info("The server does not stream lists; using plain ones from now on", "err", err)
	}
	return r.pagedList(ctx)
}

// complete records that everything up to resourceVersion is in the FIFO, and that it was a list.
func (r *reflector[T]) complete(resourceVersion string) {
	r.fifo.reached(resourceVersion, r.epoch)
	r.resourceVersion, r.newest = resourceVersion, resourceVersion
	r.synced, r.doubts = true, 0
	r.quarantine.sweep(r.epoch)
	r.health.progressed()
	r.health.enter(Live, nil)
}

// goesBack reports whether a version is older than one that the store has had. The store never follows there lightly: what a controller has seen
// deleted would exist again, and it would act on that.
//
// Each list asks for the most recent state, which no server can answer from a cache that lags. So if one is older nonetheless, it is refused, and a
// plain list decides. If that is older, too, the cluster itself has gone back, restored from a backup, and the store goes with it: [reflector.rewind].
func (r *reflector[T]) goesBack(resourceVersion string) bool { return older(resourceVersion, r.newest) }

// older compares two versions of one resource. Those that are no numbers, as some aggregated APIs have them, cannot be compared: they are not older.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// tooLarge reports whether the server has not reached the version that was asked for, or that it asked its own storage for.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// rewind lets the store follow a cluster that has gone back: what comes in from now on is compared with nothing that came before.
func (r *reflector[T]) rewind(resourceVersion string) {
	r.log.Error(nil, "The cluster has gone back to an older state, as after a restore; the cache follows it", "from", r.newest, "to", resourceVersion)
	r.health.rewound()
	r.fifo.rewind(r.epoch)
	r.newest = ""
}

// pagedList lists page by page; each object is on its way to the store before the next page is asked for.
func (r *reflector[T]) pagedList(ctx context.Context) error {
	r.begin()
	// No resourceVersion asks for the most recent state, from the server's cache or from etcd, as the server likes. "0" would be cheaper and
	// would let a server that lags take us back in time (kubernetes/kubernetes#59848).
	opts := r.selector
	opts.Limit = r.pageSize
	tries, landmark := pagedTries, ""
	for pages := 1; ; pages++ {
		page, err := r.page(ctx, opts)
		switch {
		case err == nil:
		case apierrors.IsResourceExpired(err) && opts.Continue != "":
			// The token is older than the server's memory of that version. What has come in so far stays, for each object was true when it was
			// listed; but the list begins anew, at another version, and only what is in that one survives the sweep.
			r.begin()
			opts.Continue = ""
			if tries--; tries == 0 {
				opts.Limit = 0
			}
			pages, landmark = 0, ""
			continue
		default:
			return fmt.Errorf("list: %w", err)
		}
		list, err := meta.ListAccessor(page)
		if err != nil || isNil(page) {
			return fmt.Errorf("list: %w: a %T is no list", errViolation, page)
		}
		if r.goesBack(list.GetResourceVersion()) {
			if r.doubts < maxDoubts {
				return fmt.Errorf("list: %w from %s to %s", errWentBack, r.newest, list.GetResourceVersion())
			}
			r.rewind(list.GetResourceVersion())
		}
		err = eachItem(page, func(o runtime.Object) error {
			if object, err := meta.Accessor(o); err == nil && !isNil(o) && object.GetResourceVersion() == "" {
				r.unversioned = true
			}
			r.take(o, "")
			return ctx.Err()
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("list: %w: %w", errViolation, err)
		}
		r.health.progressed()
		switch token := list.GetContinue(); {
		case token == "" && list.GetResourceVersion() == "":
			return fmt.Errorf("list: %w: no resourceVersion", errViolation)
		case token == "":
			r.complete(list.GetResourceVersion())
			return nil
		// A server that runs in circles is caught by comparing each token with one from before, which moves on at page 1, 2, 4, 8 ...
		case token == opts.Continue || token == landmark:
			return fmt.Errorf("list: %w: a continue token has come back on page %d", errViolation, pages)
		case pages == maxPages:
			return fmt.Errorf("list: %w: %d pages of %d objects and no end; a larger Options.PageSize needs fewer", errViolation, pages, opts.Limit)
		default:
			opts.Continue = token
			if pages&(pages-1) == 0 {
				landmark = token
			}
		}
	}
}

func (r *reflector[T]) page(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pageTimeout, errSilent)
	defer cancel()
	page, err := r.source.list(ctx, opts)
	if err != nil && context.Cause(ctx) == errSilent {
		return nil, fmt.Errorf("%w for %s", errSilent, pageTimeout)
	}
	return page, err
}

// streamedList asks for the list as a watch that begins with it, and stays with that watch once the list is complete.
func (r *reflector[T]) streamedList(ctx context.Context) error {
	r.begin()
	opts := r.watchOptions()
	sendInitialEvents := true
	opts.SendInitialEvents = &sendInitialEvents
	opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	return r.stream(ctx, opts)
}

func (r *reflector[T]) begin() {
	r.epoch++
	r.health.listing()
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
	unanswered := time.AfterFunc(answerTimeout, cancel)
	w, err := r.source.watch(ctx, opts)
	if !unanswered.Stop() && err == nil {
		w.Stop()
		err = context.Canceled
	}
	if errors.Is(err, context.Canceled) {
		err = errSilent // or the end of the caller's ctx: then nobody looks
	}
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()

	var (
		lifetime = time.Duration(*opts.TimeoutSeconds)*time.Second + watchSlack
		patience = lifetime
		// proven fires when the watch has lived for long enough to be trusted: the server took it, and did not take it back.
		proven = time.NewTimer(longLived)
	)
	defer proven.Stop()
	if r.resourceVersion == "" {
		patience = streamBegins
		proven.Stop()
	}
	trusted := false
	watchdog := time.NewTimer(patience)
	defer watchdog.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watchdog.C:
			return fmt.Errorf("watch: %w for %s", errSilent, patience)
		case <-r.quarantine.due.C:
			r.retry()
		case <-proven.C:
			trusted = true
			r.reconnect.Reset()
			r.relist.Reset()
			r.health.enter(Live, nil)
		case event, open := <-w.ResultChan():
			listing := r.resourceVersion == ""
			switch {
			case open:
			case listing:
				return fmt.Errorf("watch: %w", errIncomplete)
			case trusted:
				return nil
			default:
				return errShortLived
			}
			if err := r.receive(event); err != nil {
				return fmt.Errorf("watch: %w", err)
			}
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
		}
	}
}

// receive takes one event of a watch. While the state is listing, the events are those of a streamed list.
func (r *reflector[T]) receive(event watch.Event) error {
	if event.Type == watch.Error {
		err := apierrors.FromObject(event.Object)
		if odd := (*apierrors.UnexpectedObjectError)(nil); errors.As(err, &odd) {
			err = fmt.Errorf("%w: an ERROR event that holds a %T", errViolation, event.Object) // the error itself would show the object
		}
		return discreet(err)
	}
	object, err := meta.Accessor(event.Object)
	if err != nil || isNil(object) || object.GetResourceVersion() == "" && !r.unversioned {
		return fmt.Errorf("%w: an event %q without a resourceVersion, holding a %T", errViolation, event.Type, event.Object)
	}
	version := object.GetResourceVersion()
	reached := ""
	if r.resourceVersion != "" {
		reached = version
		if older(reached, r.resourceVersion) {
			return fmt.Errorf("%w from %s to %s", errWentBack, r.resourceVersion, reached)
		}
	}
	r.health.progressed()
	switch event.Type {
	case watch.Added, watch.Modified:
		r.take(event.Object, reached)
	case watch.Deleted:
		r.takeDeletion(event.Object, reached)
	case watch.Bookmark:
		switch {
		case reached != "":
			r.fifo.reached(reached, 0)
		case object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true":
		case r.goesBack(version):
			return fmt.Errorf("%w from %s to %s", errWentBack, r.newest, version)
		default:
			r.complete(version)
		}
	default:
		return fmt.Errorf("%w: an event of the unknown type %q", errViolation, event.Type)
	}
	if reached != "" {
		r.resourceVersion, r.newest = reached, reached
	}
	return nil
}

// isNil reports whether an event or list holds a nil pointer in place of an object.
func isNil(o any) bool {
	v := reflect.ValueOf(o)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
