package informer

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// A page is one answer, which must have come within this time.
	pageTimeout = 2 * time.Minute
	// An expired continue token restarts a paged list, until the list is asked for in one piece.
	pagedTries = 3
	// A list of more pages than this has no end.
	maxPages = 100_000
)

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
