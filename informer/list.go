package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

const (
	// The response to a list request must begin within this time. A response that arrives piece by piece must go on
	// within it; any other must be complete within it.
	listTimeout = 2 * time.Minute
	// A paged list starts again this often when its continue token expires. The last time it asks for one page.
	pagedTries = 3
	// A list of more pages fails and is tried again: the server may never end it.
	maxPages = 100_000
)

// pagedList lists page by page. It requests each page while it receives the one before, and hands objects on to the
// store while their page arrives.
func (r *reflector[T]) pagedList(ctx context.Context) error {
	tries := pagedTries
	for {
		opts := r.begin()
		// An empty resourceVersion asks for the most recent state, from the server's cache or from etcd. "0" would be
		// cheaper, but then a server that lags may answer with an older state (kubernetes/kubernetes#59848).
		opts.Limit = r.pageSize
		if tries == 0 {
			opts.Limit = 0
		}
		expired, err := r.listPages(ctx, opts)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			return nil
		case !expired || tries == 0:
			return fmt.Errorf("list: %w", err)
		}
		// The server has forgotten the version of this list. The objects received so far stay, since each was true when
		// it was listed. But only the objects of the next list, which has another version, survive the sweep. A server
		// that ignores the limit and forgets the continue token each time cannot be listed.
		tries--
		if r.pause(ctx, r.relist.After(kube.RetryAfter(err))); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// listPages receives the pages of one list. With an error, expired says that the continue token has expired.
func (r *reflector[T]) listPages(ctx context.Context, opts metav1.ListOptions) (expired bool, err error) {
	// A server that sends continue tokens in a circle is found by comparing each token with an earlier one, which is
	// replaced at page 1, 2, 4, 8 ...
	earlier := ""
	next := send(ctx, r.source, opts, listTimeout)
	defer func() { next.close() }()
	for page := 1; ; page++ {
		r.pulse.does(asking)
		list, ahead, err := r.receivePage(ctx, next)
		next.close()
		next = ahead
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			return apierrors.IsResourceExpired(err) && opts.Continue != "", err
		}
		switch token := list.Continue; {
		case token == "" && list.ResourceVersion == "":
			return false, fmt.Errorf("%w: no resourceVersion", wire.ErrViolation)
		case token == "":
			r.lost = false
			r.complete(list.ResourceVersion)
			return false, nil
		case token == opts.Continue || token == earlier:
			return false, fmt.Errorf("%w: a continue token has come back on page %d", wire.ErrViolation, page)
		case page == maxPages:
			return false, fmt.Errorf("%w: %w: %d pages of %d objects and no end; a larger Options.PageSize needs fewer",
				wire.ErrViolation, ErrTooLarge, page, opts.Limit)
		default:
			opts.Continue = token
			if page&(page-1) == 0 {
				earlier = token
			}
			if next == nil {
				next = send(ctx, r.source, opts, listTimeout)
			}
		}
	}
}

// receivePage receives the objects of a page. It requests the next page as soon as the response shows that there is
// one; the caller closes that request. The requests overlap because decoding is a fifth of the time that a list of
// 150,000 pods takes.
func (r *reflector[T]) receivePage(ctx context.Context, page *listRequest) (list metav1.ListMeta, next *listRequest,
	err error) {
	// Objects of a list that is older than the store must not come into it. While a list that may be older has not
	// shown its version, its objects are kept here.
	var unproven []wire.Event
	list, err = page.read(func(list *metav1.ListMeta, events []wire.Event) error {
		if list == nil && r.newest != "" {
			for _, e := range events {
				if !r.keeps(e) {
					continue
				}
				// It needs no proof if it is newer than all that the store has been told of, or what the store holds.
				object, err := meta.Accessor(e.Object)
				if err != nil || !kube.Older(r.newest, object.GetResourceVersion()) &&
					!r.mayPrecede(e, KeyOf(object), object.GetResourceVersion()) {
					unproven = append(unproven, e)
				} else if err := r.receiveItem(e); err != nil {
					return err
				}
			}
			return ctx.Err()
		}
		if err := r.notOlder(list); err != nil {
			return err
		}
		if list != nil && list.Continue != "" && next == nil {
			opts := page.opts
			opts.Continue = list.Continue
			next = send(ctx, r.source, opts, listTimeout)
		}
		return r.receiveItems(ctx, events)
	})
	if err == nil {
		err = r.notOlder(&list)
	}
	if err == nil {
		err = r.receiveItems(ctx, unproven)
	}
	return list, next, err
}

// notOlder returns an error if a list, whose version may be unknown, is older than the store: see [reflector.goesBack].
func (r *reflector[T]) notOlder(list *metav1.ListMeta) error {
	if list == nil || !r.goesBack(list.ResourceVersion) {
		return nil
	}
	if r.doubts < maxDoubts {
		return wentBack(r.newest, list.ResourceVersion)
	}
	r.rewind(list.ResourceVersion)
	return nil
}

func (r *reflector[T]) receiveItems(ctx context.Context, items []wire.Event) error {
	for _, e := range items {
		if err := r.receiveItem(e); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	r.pulse.does(asking)
	return nil
}

func (r *reflector[T]) receiveItem(e wire.Event) error {
	r.pulse.does(receiving)
	if errors.Is(e.Err, wire.ErrViolation) {
		return e.Err // it is no object of this resource, so neither are the others
	}
	if object, err := meta.Accessor(e.Object); err == nil && !kube.IsNil(e.Object) && e.Err == nil {
		if object.GetResourceVersion() == "" {
			r.unversioned = true
		} else {
			r.versioned = true
		}
	}
	return r.enqueueState(e, "", false)
}

// listRequest is one list request. The response may arrive while its receiver does something else: the time in which
// nothing reads it does not count as the server's silence. The request has a goroutine, which ends with close.
type listRequest struct {
	opts     metav1.ListOptions
	timeout  time.Duration // see listTimeout
	watchdog *time.Timer   // cancels ctx after the timeout
	ctx      context.Context
	cancel   context.CancelCauseFunc
	sender   lifecycle.Group
	answered chan struct{} // closed once response or err is set
	response response
	err      error
}

// send sends a list request to the source, and does not wait for the response.
func send(ctx context.Context, from source, opts metav1.ListOptions, timeout time.Duration) *listRequest {
	q := &listRequest{opts: opts, timeout: timeout, answered: make(chan struct{})}
	q.ctx, q.cancel = context.WithCancelCause(ctx)
	q.watchdog = time.AfterFunc(timeout, func() { q.cancel(errSilent) })
	q.sender.Go("list request", func() {
		q.response, q.err = from.list(withAnswerTimer(q.ctx, q.watchdog, timeout), opts)
		q.watchdog.Stop()
		close(q.answered)
	})
	return q
}

// fetch sends a list request and reads the response.
func fetch(ctx context.Context, from source, opts metav1.ListOptions, timeout time.Duration,
	visit func(*metav1.ListMeta, []wire.Event) error) (metav1.ListMeta, error) {
	q := send(ctx, from, opts, timeout)
	defer q.close()
	return q.read(visit)
}

// read waits for the response and visits its objects: see [response].
func (q *listRequest) read(visit func(*metav1.ListMeta, []wire.Event) error) (list metav1.ListMeta, err error) {
	if <-q.answered; q.err != nil {
		return list, q.failure(q.err)
	}
	q.watchdog.Reset(q.timeout)
	list, err = q.response.each(func(list *metav1.ListMeta, events []wire.Event) error {
		q.watchdog.Stop()
		defer q.watchdog.Reset(q.timeout)
		return visit(list, events)
	})
	return list, q.failure(err)
}

func (q *listRequest) failure(err error) error {
	if err != nil && context.Cause(q.ctx) == errSilent {
		return fmt.Errorf("%w for %s", errSilent, q.timeout)
	}
	return err
}

// close ends the request and waits for its goroutine. On a nil request it does nothing.
func (q *listRequest) close() {
	if q == nil {
		return
	}
	q.cancel(nil)
	q.watchdog.Stop()
	if <-q.answered; q.err == nil {
		q.response.stop()
	}
}

// Relist asks for a list of a namespace that begins after this call, and returns its number. Once [Health].Listed has
// reached that number, the store holds everything that the server had there when Relist was called, and inline handlers
// have been called for it. Relist does not wait. A list that is under way is completed first; all calls before the next
// list begins share that one. Relist ends the wait after a failure, unless the server asked for that wait. A namespace
// out of scope is not listed.
//
// doubt, if not nil, says why the cache may be wrong: from now on, until the store has the list, the cache is Stale for
// that reason, unless it has never been complete, or its state is worse than Stale. Of several doubts the last one
// counts.
func (inf *SharedIndexInformer[T]) Relist(namespace string, doubt error) (list int) {
	list = int(inf.health.lists.Load()) + 1
	for _, l := range inf.followed.Load().in(namespace) {
		if doubt != nil {
			l.health.doubted(doubt, list)
		}
		l.reflector.wantList()
	}
	return list
}
