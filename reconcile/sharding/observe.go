package sharding

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

// An observer shows a replica the world, by a list and a watch from there, again and again. Only the goroutine observe
// uses its fields.
type observer struct {
	*Shards
	leases map[string]*coordinationv1.Lease
	table  *coordinationv1.Lease // nil: there is none
	// decoded is the table of that Lease's version, or nil if it was edited.
	decoded *table
	at      version
	failing bool
}

const watchFor = 10 * time.Minute // the longest time that one watch is asked to last

var errSilent = errors.New("the watch was silent though the replica has renewed its Lease")

func (o *observer) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := o.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if failing := err != nil; failing != o.failing {
			o.failing = failing
			klog.FromContext(ctx).Info("Watching the Leases of the group", "table", o.String(), "err", err)
		}
		lifecycle.Sleep(ctx, o.pace(1))
	}
}

// follow lists, and watches until the stream ends. A replica renews its own Lease every few seconds, so a stream that
// does not show that is doubted.
func (o *observer) follow(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, o.opts.tryTimeout())
	all, err := o.client.list(try)
	cancel()
	if err != nil {
		return err
	}
	o.leases, o.table = map[string]*coordinationv1.Lease{}, nil
	for i := range all.Items {
		o.take(&all.Items[i], false)
	}
	o.show()

	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	opening := time.AfterFunc(o.opts.tryTimeout(), cancel)
	stream, err := o.client.watch(ctx, all.ResourceVersion, time.Duration(float64(watchFor)*(0.5+0.5*o.opts.random())))
	if inTime := opening.Stop(); err != nil || !inTime {
		if err == nil {
			stream.Stop()
			err = context.DeadlineExceeded
		}
		return err
	}
	defer func() { // the stream's goroutine has ended when its channel is closed
		stream.Stop()
		for range stream.ResultChan() {
		}
	}()
	doubt := time.NewTicker(o.opts.RetryPeriod)
	defer doubt.Stop()
	for {
		select {
		case event, ok := <-stream.ResultChan():
			if !ok {
				return nil
			}
			if err := o.handle(event); err != nil {
				return err
			}
		case <-doubt.C:
			if o.unseen() {
				return errSilent
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *observer) handle(event watch.Event) error {
	switch event.Type {
	case watch.Error:
		return apierrors.FromObject(event.Object)
	case watch.Added, watch.Modified, watch.Deleted:
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok {
			return fmt.Errorf("the watch of leases sent a %T", event.Object)
		}
		o.take(lease, event.Type == watch.Deleted)
		o.show()
	}
	return nil
}

// take notes a state of a Lease.
func (o *observer) take(lease *coordinationv1.Lease, deleted bool) {
	switch {
	case lease.Namespace != o.opts.Namespace || lease.Labels[groupLabel] != o.opts.Name && !deleted:
		// from a server, or a proxy, that ignores the selector
	case lease.Name == o.opts.Name && deleted:
		o.table = nil
	case lease.Name == o.opts.Name:
		o.table = lease
	case deleted:
		delete(o.leases, lease.Name)
	default:
		o.leases[lease.Name] = lease
	}
}

// show lets the replica see what is there.
func (o *observer) show() {
	w := world{known: true, leases: make(map[string]sight, len(o.leases))}
	for name, lease := range o.leases {
		s := sight{version: versionOf(lease)}
		if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
			s.seconds = int(*seconds)
		}
		w.leases[name] = s
	}
	if o.table != nil {
		if at := versionOf(o.table); at != o.at {
			o.at = at
			var err error
			if err = checkTable(o.table); err != nil {
				o.decoded = nil // who holds it would be at work beside us
			} else if o.decoded, err = decodeTable(o.table.Annotations[tableAnnotation]); err != nil {
				klog.Background().Error(err, "The table of the slices is made anew", "table", o.String())
			}
		}
		w.table, w.at = o.decoded, o.at
	}
	o.observed(w, o.table)
}

// observed shows the rules a new state of the world.
func (o *observer) observed(w world, lease *coordinationv1.Lease) {
	s := o.Shards
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = w.after(s.seen, time.Now())
	s.led = noteLed(s.led, s.seen, s.opts.RenewDeadline)
	if s.lease == nil || lease != nil && (lease.UID != s.lease.UID ||
		kube.Older(s.lease.ResourceVersion, lease.ResourceVersion)) {
		s.lease = lease
	}
	if s.r != nil {
		s.r.observe(s.seen, s.now())
		s.settleLocked()
	}
}

// unseen reports that the replica's Lease was renewed two periods ago, and the watch has not shown that.
func (o *observer) unseen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.r == nil || o.r.over != nil || o.r.lease == (version{}) ||
		o.now().Mono.Sub(o.r.sent.Mono) > o.opts.RetryPeriod {
		return false
	}
	seen, ok := o.r.seen.leases[o.r.name]
	return ok && o.now().Mono.Sub(seen.since) > 2*o.opts.RetryPeriod+o.opts.RetryPeriod/2
}
