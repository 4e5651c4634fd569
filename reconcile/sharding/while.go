package sharding

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// While calls f where the slice of a key is owned, until ctx ends. It is for what one process of all has to do, such
// as a periodic check of the whole cluster. ManagerOptions.Beside has it in this form, under a key of its own choice.
// Other keys may be owned by other replicas.
//
//	Beside: map[string]func(context.Context) error{"sweep": func(ctx context.Context) error {
//		return shards.While(ctx, types.NamespacedName{Name: "sweep"}, sweep)
//	}}
//
// The context of f ends when ctx does, when the slice is lost, and at once when others have asked for the slice: the
// keys of the slice wait until f has returned, which it has to within DrainTimeout + StopGrace. It is that of work on
// the slice for [Shards.Fence] and [Shards.Epoch]. When the slice comes back f is called again. While returns nil when
// ctx has ended, and what f has returned by itself; an error of f after it was told to end is logged.
//
// If some of f's work goes on when it returns, it returns an error that wraps [ErrStuck], and so does While: the slice
// is not given away, its keys run nowhere, [Shards.Check] fails once others have asked for the slice, and the process
// should exit.
//
// What f writes is in no word to the next owner of the slice, whose caches may not show it yet: f reads from the server
// what it has to know of that.
func (s *Shards) While(ctx context.Context, key types.NamespacedName, f func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		working, leave, err := s.Enter(ctx, key)
		if err != nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		w := working.Value(workKey{s}).(*work)
		over, err := w.call(working, leave, f)
		if over == nil || errors.Is(err, ErrStuck) {
			return err
		}
		if err != nil && !lifecycle.IsOnly(err, over, context.Canceled, ErrNotOwned) {
			klog.FromContext(ctx).Error(err, "A function of While failed while it was to end", "table", s.String(),
				"key", key)
		}
	}
	return nil
}

// call calls f once, as work with that context. over is why it was told to end, nil if it was not. The work does not
// end with the call if f says that some of it goes on.
func (w *work) call(working context.Context, leave func(), f func(context.Context) error) (over, err error) {
	defer func() {
		if !errors.Is(err, ErrStuck) {
			leave()
		}
	}()
	ctx, cancel := context.WithCancelCause(working)
	defer cancel(nil)
	defer context.AfterFunc(w.kept, func() { cancel(context.Cause(w.kept)) })()
	err = f(ctx)
	return context.Cause(ctx), err
}
