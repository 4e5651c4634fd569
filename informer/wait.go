package informer

import (
	"context"
	"fmt"

	"github.com/thermostat-go/thermostat/internal/kube"
)

// WaitForSync waits until the store holds a complete list. If ctx ends before, the error wraps the cause of ctx and
// the reason why there is no list yet, such as the server's 403; of several namespaces without a list it names one,
// in the worst state. If Run returns before, the error wraps [ErrStopped].
func (inf *SharedIndexInformer[T]) WaitForSync(ctx context.Context) error {
	synced := inf.Synced()
	if closed(synced) {
		return nil
	}
	select {
	case <-synced:
		return nil
	case <-inf.stopped:
		return fmt.Errorf("informer %s: %w before its first list was complete", inf.name, ErrStopped)
	case <-ctx.Done():
	}
	missing := incomplete(inf.followed.Load().listWatches)
	if len(missing) == 0 {
		return nil // at the last moment
	}
	others := ""
	if len(missing) > 1 {
		others = fmt.Sprintf(", and %d more namespaces", len(missing)-1)
	}
	if err := worst(missing).LastError; err != nil {
		return fmt.Errorf("informer %s: no complete list yet (%w): %w%s", inf.name, context.Cause(ctx), err, others)
	}
	return fmt.Errorf("informer %s: no complete list yet: %w%s", inf.name, context.Cause(ctx), others)
}

// WaitForResourceVersion waits until the store has reached a version in a namespace, for instance that of an object
// which has just been written. Inline handlers have been told of it by then; the others are told soon after.
//
// The error wraps [ErrStopped] if Run returns before, [ErrRewound] if the cluster goes back in time meanwhile,
// [ErrOutOfScope] if the informer does not follow the namespace, or the cause of ctx if that ends. A version that is
// no number, as those of some aggregated APIs, is an error at once: such versions have no order.
func (inf *SharedIndexInformer[T]) WaitForResourceVersion(ctx context.Context, namespace,
	resourceVersion string) error {
	fail := func(err error) error {
		return fmt.Errorf("informer %s: waiting for resourceVersion %q, at %q: %w", inf.name, resourceVersion,
			inf.ResourceVersion(namespace), err)
	}
	if _, err := kube.CompareVersions(resourceVersion, resourceVersion); err != nil {
		return fail(err)
	}
	rewinds := make(map[*listWatch[T]]int) // of each list-watch, when it was first looked at
	for {
		listWatches := inf.followed.Load().in(namespace)
		if len(listWatches) == 0 {
			return fail(ErrOutOfScope)
		}
		var moved <-chan struct{} // closed when it is worth another look; nil: no list-watch is behind
		for _, l := range listWatches {
			before, known := rewinds[l]
			if !known {
				before = l.health.get().Rewinds
				rewinds[l] = before
			}
			reached, next := l.reached.getAndMove()
			if l.health.get().Rewinds != before {
				return fail(ErrRewound)
			}
			if reached == "" || kube.Older(reached, resourceVersion) {
				moved = next
				continue
			}
			if _, err := kube.CompareVersions(reached, resourceVersion); err != nil {
				return fail(err)
			}
		}
		if moved == nil {
			return nil
		}
		select {
		case <-moved:
		case <-inf.stopped:
			return fail(ErrStopped)
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		}
	}
}

// WaitUntil waits until the store holds a complete list and shows returns true. It calls shows as soon as the list is
// complete, so that nothing is taken for deleted that has not been listed yet, and again after each change of the
// store, or of what [SharedIndexInformer.Invalid] returns, on the caller's goroutine and without a lock. A test calls
// it between a write of its own and a look at what that has led to: shows reads the cache, by
// [SharedIndexInformer.Get] or an index, and says whether the write is there. That holds for a deletion, and for the
// objects of a fake client, which have no resourceVersion that [SharedIndexInformer.WaitForResourceVersion] could wait
// for.
//
// It returns [ErrStopped] if Run returns before, and if ctx ends, an error that wraps its cause.
func (inf *SharedIndexInformer[T]) WaitUntil(ctx context.Context, shows func() bool) error {
	if err := inf.WaitForSync(ctx); err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("informer %s: waiting for the cache: %w", inf.name, err) }
	changed := make(chan struct{}, 1)
	look := func() {
		select {
		case changed <- struct{}{}:
		default: // shows is going to be called anyway
		}
	}
	l := newListener(func(Event[T]) { look() }, HandlerOptions{Name: "WaitUntil", Inline: true,
		Invalid: func(Key, *InvalidError, *InvalidError) { look() }})
	defer l.remove()
	// Another inline handler may keep the writer for ever: neither the join waits for it here, nor the removal.
	var err error
	switch {
	case inf.writeUnless(ctx, inf.stopped, func(w *writer[T]) { err = w.join(l) }):
	case closed(inf.stopped):
		err = ErrStopped
	case !shows():
		err = context.Cause(ctx)
	default:
		return nil
	}
	if err != nil {
		return fail(err)
	}
	for !shows() {
		select {
		case <-changed:
		case <-inf.stopped:
			return fail(ErrStopped)
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		}
	}
	return nil
}
