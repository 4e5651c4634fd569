package informer

import (
	"context"
	"fmt"
	"time"

	"github.com/thermostat-go/thermostat/internal/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

const (
	// A page is one answer, which must have come within this time; where it can be seen to come, it must go on within
	// it.
	pageTimeout = 2 * time.Minute
	// An expired continue token restarts a paged list, until the list is asked for in one piece.
	pagedTries = 3
	// A list of more pages fails, and is tried again; so a server that never ends one is found out.
	maxPages = 100_000
)

// pagedList lists page by page; each object is on its way to the store before the next page is looked at, which is on
// its way here meanwhile.
func (r *reflector[T]) pagedList(ctx context.Context) error {
	// No resourceVersion asks for the most recent state, from the server's cache or from etcd, as the server likes. "0"
	// would be cheaper and would let a server that lags take us back in time (kubernetes/kubernetes#59848).
	opts := r.begin()
	opts.Limit = r.pageSize
	tries, landmark := pagedTries, ""
	next := r.request(ctx, opts, pageTimeout)
	defer func() { next.close() }()
	for pages := 1; ; pages++ {
		r.pulse.does(asking)
		list, ahead, err := r.takePage(ctx, next)
		next.close()
		next = ahead
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
		case apierrors.IsResourceExpired(err) && opts.Continue != "":
			// The token is older than the server's memory of that version. What has come in so far stays, for each
			// object was true when it was listed; but the list begins anew, at another version, and only what is in
			// that one survives the sweep. A server that pages what it was asked for in one piece, and forgets the
			// pages, cannot be listed now.
			if tries--; tries < 0 {
				return fmt.Errorf("list: %w", err)
			}
			next.close()
			next = nil
			if r.pause(ctx, r.relist.After(kube.RetryAfter(err))); ctx.Err() != nil {
				return ctx.Err()
			}
			opts = r.begin()
			opts.Limit = r.pageSize
			if tries == 0 {
				opts.Limit = 0
			}
			pages, landmark = 0, ""
			next = r.request(ctx, opts, pageTimeout)
			continue
		default:
			return fmt.Errorf("list: %w", err)
		}
		r.health.progressed()
		switch token := list.Continue; {
		case token == "" && list.ResourceVersion == "":
			return fmt.Errorf("list: %w: no resourceVersion", wire.ErrViolation)
		case token == "":
			r.lost = false
			r.complete(list.ResourceVersion)
			return nil
		// A server that runs in circles is caught by comparing each token with one from before, which moves on at page
		// 1, 2, 4, 8 ...
		case token == opts.Continue || token == landmark:
			return fmt.Errorf("list: %w: a continue token has come back on page %d", wire.ErrViolation, pages)
		case pages == maxPages:
			return fmt.Errorf("list: %w: %w: %d pages of %d objects and no end; a larger Options.PageSize needs fewer",
				wire.ErrViolation, ErrTooLarge, pages, opts.Limit)
		default:
			opts.Continue = token
			if pages&(pages-1) == 0 {
				landmark = token
			}
			if next == nil {
				next = r.request(ctx, opts, pageTimeout)
			}
		}
	}
}

// takePage takes what is on a page, and asks for the next one as soon as it is known that there is one. That one's
// request is the caller's to close.
//
// Nothing is decoded while an answer is waited for, unless there is more than one: it is a fifth of the time that
// 150,000 pods take.
func (r *reflector[T]) takePage(ctx context.Context, page *pageRequest) (list metav1.ListMeta, next *pageRequest,
	err error) {
	// Objects of a list that is older than the store must not come into it. Where nothing is older, or the version is
	// known, they go right on; else they have to wait for the end of the page.
	var held []wire.Event
	taken := false
	defer func() {
		if !taken { // a method of an object has panicked
			next.close()
		}
	}()
	list, err = page.read(func(list *metav1.ListMeta, arrived []wire.Event) error {
		if list == nil && r.newest != "" {
			held = append(held, arrived...)
			return nil
		}
		if err := r.follows(list); err != nil {
			return err
		}
		if list != nil && list.Continue != "" && next == nil {
			opts := page.opts
			opts.Continue = list.Continue
			next = r.request(ctx, opts, pageTimeout)
		}
		return r.takeListed(ctx, arrived)
	})
	if err == nil {
		err = r.follows(&list)
	}
	if err == nil {
		err = r.takeListed(ctx, held)
	}
	taken = true
	return list, next, err
}

// page asks the source for one page and waits for it.
func (r *reflector[T]) page(ctx context.Context, opts metav1.ListOptions, patience time.Duration,
	visit func(*metav1.ListMeta, []wire.Event) error) (metav1.ListMeta, error) {
	p := r.request(ctx, opts, patience)
	defer p.close()
	return p.read(visit)
}

// follows returns an error if a list, unless its version is not known, is older than the store: see
// [reflector.goesBack].
func (r *reflector[T]) follows(list *metav1.ListMeta) error {
	if list == nil || !r.goesBack(list.ResourceVersion) {
		return nil
	}
	if r.doubts < maxDoubts {
		return wentBack(r.newest, list.ResourceVersion)
	}
	r.rewind(list.ResourceVersion)
	return nil
}

func (r *reflector[T]) takeListed(ctx context.Context, arrived []wire.Event) error {
	for _, a := range arrived {
		r.pulse.does(receiving)
		if object, err := meta.Accessor(a.Object); err == nil && !kube.IsNil(a.Object) && a.Err == nil {
			if object.GetResourceVersion() == "" {
				r.unversioned = true
			} else {
				r.versioned = true
			}
		}
		if err := r.take(a, "", false); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	r.pulse.does(asking)
	return nil
}
