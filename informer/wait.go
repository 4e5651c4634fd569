package informer

import (
	"context"
	"fmt"
)

// WaitUntil waits until shows returns true. It calls shows at once, and again after each change of the store, on the
// caller's goroutine and without a lock. A test calls it between a write of its own and a look at what that has led to:
// shows reads the cache, by [SharedIndexInformer.Get] or an index, and says whether the write is there. That holds for
// a deletion, and for the objects of a fake client, which have no resourceVersion that
// [SharedIndexInformer.WaitForResourceVersion] could wait for.
//
// It returns [ErrStopped] if Run returns before, and if ctx ends, an error that wraps its cause.
func (inf *SharedIndexInformer[T]) WaitUntil(ctx context.Context, shows func() bool) error {
	fail := func(err error) error { return fmt.Errorf("informer %s: waiting for the cache: %w", inf.name, err) }
	changed := make(chan struct{}, 1)
	waiting, err := inf.AddHandler(func(Event[T]) {
		select {
		case changed <- struct{}{}:
		default: // shows is going to be called anyway
		}
	}, HandlerOptions{Name: "WaitUntil", Inline: true})
	if err != nil {
		return fail(err)
	}
	defer waiting.Remove(ctx)
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
