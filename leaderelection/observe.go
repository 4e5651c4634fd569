package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// observe keeps the view up to date until ctx ends: one look, then a watch, again and again. While the watch is
// forbidden it only looks.
func (e *Elector) observe(ctx context.Context) {
	var mayWatch time.Time
	for ctx.Err() == nil {
		pause, watches := e.pace(), !time.Now().Before(mayWatch)
		if e.tenure.Load() == nil || watches { // a leader's renewals are its looks
			lease, err := e.look(ctx)
			if err == nil && watches {
				var lived time.Duration
				if lived, err = e.follow(ctx, lease); lived > e.cfg.RetryPeriod {
					pause /= 10
				}
				if apierrors.IsForbidden(err) {
					mayWatch = time.Now().Add(watchAgain)
				}
				e.note(ctx, "watch", err)
			}
		}
		lifecycle.Sleep(ctx, pause)
	}
}

const (
	watchAgain = time.Minute      // how long a forbidden watch is not tried again: the Role may be corrected
	watchFor   = 10 * time.Minute // the longest time that one watch is asked to last
)

// pace is the time between two tries of a candidate.
func (e *Elector) pace() time.Duration { return scale(e.cfg.RetryPeriod, 1+0.2*e.random()) }

// look reads the Lease once. It returns nil and no error if the Lease does not exist.
func (e *Elector) look(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, e.tryTimeout)
	defer cancel()
	lease, err := e.client.get(ctx)
	e.note(ctx, "look", err)
	if err == nil {
		e.see(ctx, lease, "")
	}
	return lease, err
}

var errSilent = errors.New("the watch was silent while the lease changed")

// follow watches the Lease from the state that was just seen. It returns when the stream ends. A holder renews every
// few seconds, so a stream that is silent for longer is doubted: follow returns, too, when a look then shows a change.
func (e *Elector) follow(ctx context.Context, from *coordinationv1.Lease) (lived time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start, resourceVersion := time.Now(), ""
	if from != nil {
		resourceVersion = from.ResourceVersion
	}
	opening := time.AfterFunc(e.tryTimeout, cancel)
	stream, err := e.client.watch(ctx, resourceVersion, scale(watchFor, 0.5+0.5*e.random()))
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
	e.note(ctx, "watch", nil)

	doubt := time.NewTimer(0)
	defer doubt.Stop()
	for {
		doubt.Reset(2 * e.cfg.RetryPeriod)
		select {
		case event, ok := <-stream.ResultChan():
			if !ok {
				return time.Since(start), nil
			}
			if resourceVersion, err = e.handle(ctx, event, resourceVersion); err != nil {
				return time.Since(start), err
			}
		case <-doubt.C:
			if e.tenure.Load() != nil { // the watch should have shown the leader's own renewals
				return time.Since(start), nil
			}
			before := e.view.get()
			if lease, err := e.look(ctx); err == nil && !sameState(before.lease, lease) {
				return time.Since(start), errSilent
			}
		case <-ctx.Done():
			return time.Since(start), ctx.Err()
		}
	}
}

// handle processes an event of a watch that has shown all versions up to after, and returns up to which one it has now.
func (e *Elector) handle(ctx context.Context, event watch.Event, after string) (upTo string, err error) {
	switch event.Type {
	case watch.Error:
		return after, apierrors.FromObject(event.Object)
	case watch.Added, watch.Modified, watch.Deleted:
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok {
			return after, fmt.Errorf("the watch of a lease sent a %T", event.Object)
		}
		if lease.Name != e.cfg.Name || lease.Namespace != e.cfg.Namespace {
			return after, nil // from a server, or a proxy, that ignores the field selector
		}
		upTo = lease.ResourceVersion
		if event.Type == watch.Deleted {
			lease = nil
		}
		if !e.view.passed(lease) {
			e.see(ctx, lease, after)
		}
		return upTo, nil
	}
	return after, nil
}

// see updates the view; for after see [view.see]. A leader that sees another tenure's Lease does not believe it, since
// the event may be out of date: it renews at once, and the answer decides.
func (e *Elector) see(ctx context.Context, lease *coordinationv1.Lease, after string) {
	before := e.view.get()
	if !e.view.see(lease, after, e.random()) {
		return
	}
	logger := klog.FromContext(ctx)
	if lease != nil && value(lease.Spec.HolderIdentity) != "" {
		if holder := value(lease.Spec.HolderIdentity); before.lease == nil ||
			value(before.lease.Spec.HolderIdentity) != holder {
			logger.Info("The lease has a new holder", "lease", e.String(), "holder", kube.Brief(holder), "transitions",
				value(lease.Spec.LeaseTransitions))
		}
		if d := durationOf(lease); d <= 0 || d > e.cfg.MaxLeaseDuration {
			e.stats.count(func(s *Stats) { s.OddDurations++ })
			logger.Info("The lease records a duration that is zero or above MaxLeaseDuration; not obeying it", "lease",
				e.String(), "duration", d)
		}
	}
	if t := e.tenure.Load(); t != nil && !t.token.names(lease) {
		select {
		case t.renewNow <- struct{}{}:
		default: // the renewal is due already
		}
	}
}
