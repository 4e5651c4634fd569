package informer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
)

var (
	errSilent     = errors.New("the server fell silent")
	errIncomplete = errors.New("the stream ended before its list was complete")
	errViolation  = errors.New("the server broke the watch protocol")
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

	// resourceVersion is where the watch resumes. Empty is the state listing, else watching.
	resourceVersion string
	// epoch numbers the lists; see deltaFIFO.
	epoch uint64
	// streamsLeft is how many streamed lists may still go wrong before plain lists are used for good.
	streamsLeft int
	// synced is true once a list has been completed.
	synced bool

	reconnect, relist backoff.Backoff
}

// run returns when ctx has ended.
func (r *reflector[T]) run(ctx context.Context) {
	r.reconnect = backoff.Backoff{Base: 50 * time.Millisecond, Cap: 30 * time.Second}
	r.relist = backoff.Backoff{Base: 800 * time.Millisecond, Cap: 30 * time.Second}
	r.health.enter(Listing, nil)
	for ctx.Err() == nil {
		var err error
		switch {
		case r.resourceVersion != "":
			err = r.watch(ctx)
		case r.streamsLeft > 0:
			err = r.streamedList(ctx)
		default:
			err = r.pagedList(ctx)
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

	wasWatching := r.resourceVersion != ""
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsNotFound(err) || errors.Is(err, errViolation) {
		r.resourceVersion = ""
	}
	delay := r.reconnect.Next
	if r.resourceVersion == "" {
		delay = r.relist.Next
	}
	wait := delay()
	if r.resourceVersion == "" && !wasWatching && r.streamsLeft > 0 {
		wait = r.streamFailed(err, wait)
	}
	// Retry-After is a minimum: everybody who was refused at once has got the same number, so the jitter comes on top.
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		wait += time.Duration(seconds) * time.Second
	}
	return wait
}

// streamFailed counts a streamed list that went wrong in a way that a plain list might not, and returns how long to wait for the next try.
func (r *reflector[T]) streamFailed(err error, wait time.Duration) time.Duration {
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err):
		r.streamsLeft = 0 // the server does not know the protocol
	case errors.Is(err, errSilent) || errors.Is(err, errIncomplete) || errors.Is(err, errViolation):
		r.streamsLeft--
	default:
		return wait // nothing to do with streaming: unreachable, overloaded, forbidden
	}
	if r.streamsLeft > 0 {
		return wait
	}
	r.log.V(1).Info("The server does not stream lists; using plain ones from now on", "err", err)
	return 0
}

// complete records that everything up to resourceVersion is in the FIFO, and that it was a list.
func (r *reflector[T]) complete(resourceVersion string) {
	r.fifo.reached(resourceVersion, r.epoch)
	r.resourceVersion = resourceVersion
	r.synced = true
	r.relist.Reset()
	r.health.progressed()
	r.health.enter(Live, nil)
}

// pagedList lists page by page; each object is on its way to the store before the next page is asked for.
func (r *reflector[T]) pagedList(ctx context.Context) error {
	r.begin()
	// No resourceVersion asks for the most recent state, from the server's cache or from etcd, as the server likes. "0" would be cheaper and
	// would let a server that lags take us back in time (kubernetes/kubernetes#59848).
	opts := r.selector
	opts.Limit = r.pageSize
	for tries := pagedTries; ; {
		page, err := r.page(ctx, opts)
		switch {
		case err == nil:
		case apierrors.IsResourceExpired(err) && opts.Continue != "":
			// The token is older than the server's memory of that version. What has come in so far stays: each object was true when it was
			// listed, and only a complete list removes anything.
			opts.Continue = ""
			if tries--; tries == 0 {
				opts.Limit = 0
			}
			continue
		default:
			return fmt.Errorf("list: %w", err)
		}
		if err := eachItem(page, func(o runtime.Object) { r.take(o, "") }); err != nil {
			return fmt.Errorf("list: %w: %w", errViolation, err)
		}
		r.health.progressed()
		list, err := meta.ListAccessor(page)
		if err != nil {
			return fmt.Errorf("list: %w: %w", errViolation, err)
		}
		switch token := list.GetContinue(); {
		case token == "" && list.GetResourceVersion() == "":
			return fmt.Errorf("list: %w: no resourceVersion", errViolation)
		case token == "":
			r.complete(list.GetResourceVersion())
			return nil
		case token == opts.Continue:
			return fmt.Errorf("list: %w: the same continue token twice", errViolation)
		default:
			opts.Continue = token
		}
	}
}

func (r *reflector[T]) page(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pageTimeout, errSilent)
	defer cancel()
	return r.source.list(ctx, opts)
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

var errShortLived = errors.New("the watch ended soon")

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

	lifetime := time.Duration(*opts.TimeoutSeconds)*time.Second + watchSlack
	began, patience := time.Now(), lifetime
	if r.resourceVersion == "" {
		patience = streamBegins
	} else {
		r.health.enter(Live, nil)
	}
	watchdog := time.NewTimer(patience)
	defer watchdog.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watchdog.C:
			return fmt.Errorf("watch: %w for %s", errSilent, patience)
		case event, open := <-w.ResultChan():
			switch {
			case open:
			case r.resourceVersion == "":
				return fmt.Errorf("watch: %w", errIncomplete)
			case time.Since(began) < longLived:
				return errShortLived
			default:
				r.reconnect.Reset()
				return nil
			}
			listing := r.resourceVersion == ""
			if err := r.receive(event); err != nil {
				return fmt.Errorf("watch: %w", err)
			}
			switch {
			case listing && r.resourceVersion == "":
				patience = streamGoesOn
				watchdog.Reset(patience)
			case listing:
				patience = lifetime
				watchdog.Reset(patience)
			}
		}
	}
}

// receive takes one event of a watch. While the state is listing, the events are those of a streamed list.
func (r *reflector[T]) receive(event watch.Event) error {
	switch event.Type {
	case watch.Error:
		return apierrors.FromObject(event.Object)
	case watch.Bookmark:
		return r.bookmark(event.Object)
	case watch.Added, watch.Modified, watch.Deleted:
	default:
		return fmt.Errorf("%w: an event of the unknown type %q", errViolation, event.Type)
	}
	object, err := meta.Accessor(event.Object)
	if err != nil || object.GetResourceVersion() == "" {
		return fmt.Errorf("%w: an event %s without a resourceVersion", errViolation, event.Type)
	}
	r.health.progressed()
	reached := ""
	if r.resourceVersion != "" {
		reached = object.GetResourceVersion()
		r.resourceVersion = reached
	}
	if event.Type == watch.Deleted {
		r.takeDeletion(event.Object, reached)
	} else {
		r.take(event.Object, reached)
	}
	return nil
}

func (r *reflector[T]) bookmark(o runtime.Object) error {
	object, err := meta.Accessor(o)
	if err != nil || object.GetResourceVersion() == "" {
		return fmt.Errorf("%w: a bookmark without a resourceVersion", errViolation)
	}
	switch {
	case r.resourceVersion != "":
		r.resourceVersion = object.GetResourceVersion()
		r.fifo.reached(r.resourceVersion, 0)
		r.health.progressed()
	case object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
		r.complete(object.GetResourceVersion())
	}
	return nil
}

// take puts an object that exists into the FIFO; with reached, everything up to that version then is.
func (r *reflector[T]) take(o runtime.Object, reached string) {
	it, err := r.decode(o)
	if err != nil {
		r.health.rejected(err)
		return
	}
	r.fifo.add(delta[T]{item: it, epoch: r.epoch}, reached)
}

func (r *reflector[T]) takeDeletion(o runtime.Object, reached string) {
	it, err := r.decode(o)
	if err != nil {
		// The value cannot be had, but the object is gone all the same: the store tells its last one.
		object, _ := meta.Accessor(o)
		it = item[T]{key: KeyOf(object), resourceVersion: object.GetResourceVersion()}
	}
	r.fifo.add(delta[T]{item: it, deleted: true, unseen: err != nil, epoch: r.epoch}, reached)
}
