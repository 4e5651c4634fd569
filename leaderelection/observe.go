package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// An observer keeps the view up to date. Only the goroutine observe uses its fields.
type observer struct {
	*candidate
	mayWatch time.Time // when a watch may be tried: a forbidden one is left out for a while
	shown    string    // the resourceVersion up to which the watch has shown every version of the Lease
}

// run observes until ctx ends: one look, then a watch, again and again. While the watch is forbidden it only looks.
func (o *observer) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause, watches := o.pace(), !time.Now().Before(o.mayWatch)
		if o.tenure.Load() == nil || watches { // a leader's renewals are its looks
			lease, err := o.look(ctx)
			if err == nil && watches {
				var lived time.Duration
				if lived, err = o.follow(ctx, lease); lived > o.cfg.RetryPeriod {
					pause /= 10
				}
				if apierrors.IsForbidden(err) {
					o.mayWatch = time.Now().Add(watchAgain)
				}
				o.note(ctx, "watch", err)
			}
		}
		lifecycle.Sleep(ctx, pause)
	}
}

const (
	watchAgain = time.Minute      // how long a forbidden watch is not tried again: the Role may be corrected
	watchFor   = 10 * time.Minute // the longest time that one watch is asked to last
)

var errSilent = errors.New("the watch was silent while the lease changed")

// follow watches the Lease from the state that was just seen. It returns when the stream ends. A holder renews every
// few seconds, so a stream that is silent for longer is doubted: follow returns, too, when a look then shows a change.
func (o *observer) follow(ctx context.Context, from *coordinationv1.Lease) (lived time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	o.shown = ""
	if from != nil {
		o.shown = from.ResourceVersion
	}
	opening := time.AfterFunc(o.tryTimeout, cancel)
	stream, err := o.client.watch(ctx, o.shown, scale(watchFor, 0.5+0.5*o.random()))
	inTime := opening.Stop()
	if err != nil {
		return 0, err
	}
	defer func() { // the stream's goroutine has ended when its channel is closed
		stream.Stop()
		for range stream.ResultChan() {
		}
	}()
	if !inTime {
		return 0, context.DeadlineExceeded
	}
	o.note(ctx, "watch", nil)

	doubt := time.NewTimer(0)
	defer doubt.Stop()
	for {
		doubt.Reset(2 * o.cfg.RetryPeriod)
		select {
		case event, ok := <-stream.ResultChan():
			if !ok {
				return time.Since(start), nil
			}
			if err := o.handle(ctx, event); err != nil {
				return time.Since(start), err
			}
		case <-doubt.C:
			if o.tenure.Load() != nil { // the watch should have shown the leader's own renewals
				return time.Since(start), nil
			}
			before := o.view.get()
			if lease, err := o.look(ctx); err == nil && !sameState(before.lease, lease) {
				return time.Since(start), errSilent
			}
		case <-ctx.Done():
			return time.Since(start), ctx.Err()
		}
	}
}

// handle processes an event of the watch.
func (o *observer) handle(ctx context.Context, event watch.Event) error {
	switch event.Type {
	case watch.Error:
		return apierrors.FromObject(event.Object)
	case watch.Added, watch.Modified, watch.Deleted:
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok {
			return fmt.Errorf("the watch of a lease sent a %T", event.Object)
		}
		if lease.Name != o.cfg.Name || lease.Namespace != o.cfg.Namespace {
			return nil // from a server, or a proxy, that ignores the field selector
		}
		after := o.shown
		o.shown = lease.ResourceVersion
		if event.Type == watch.Deleted {
			lease = nil
		}
		if !o.view.passed(lease) {
			o.see(ctx, lease, after)
		}
	}
	return nil
}
