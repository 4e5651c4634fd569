package sharding

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// actor does what the rules of one tenure say next, one request at a time.
type actor struct {
	*Shards
	r *replica
	// What all replicas want the later ones in the table do later, so that most find it done. duty is what that is, and
	// since when it is to be done.
	duty  string
	since time.Time
	races int  // writes in a row that came too late
	other bool // Options.By is not that of the group
}

func (a *actor) run(ctx context.Context) {
	r := a.r
	for ctx.Err() == nil {
		a.mu.Lock()
		next, changed := r.next(a.now(), a.newLife()), a.changed
		if r.over != nil && a.tenure.Err() == nil {
			a.settleLocked()
		}
		rank := a.rankLocked()
		other := r.seen.table != nil && r.number != 0 && r.seen.table.By != r.by
		a.mu.Unlock()
		if other && !a.other {
			klog.FromContext(ctx).Error(a.Ready(), "This replica gets no slices")
		}
		a.other = other
		if wait := a.wait(next, rank); wait > 0 {
			idle := time.NewTimer(wait)
			select {
			case <-changed:
			case <-idle.C:
			case <-ctx.Done():
			}
			idle.Stop()
			continue
		}
		a.do(ctx, next, changed)
	}
}

// wait returns how long to do nothing before a step, or before looking for one again: some become due by time alone.
func (a *actor) wait(next step, rank time.Duration) time.Duration {
	if next.kind == nothing {
		a.duty = ""
		return a.opts.RetryPeriod / 4
	}
	if !next.shared {
		return 0
	}
	duty := next.name
	if next.kind == writeTable {
		duty = "table"
	}
	if duty != a.duty {
		a.duty, a.since = duty, time.Now()
	}
	return rank - time.Since(a.since)
}

// rankLocked is how much later than the first member this one does what all want.
func (a *actor) rankLocked() time.Duration {
	step := a.opts.RetryPeriod / 20
	if t := a.seen.table; t != nil {
		alive := 0
		for _, m := range t.Members {
			if m.Name == a.r.name {
				return time.Duration(alive) * step
			}
			if !a.r.stopped[m.Name] {
				alive++
			}
		}
	}
	return time.Duration(a.opts.random() * float64(a.opts.RetryPeriod) / 4)
}

// newLife names a table that is made anew: after who makes it, and when.
func (a *actor) newLife() string {
	return a.r.name + "." + time.Now().UTC().Format("20060102T150405.000000")
}

// do does a step. A write that came too late waits for what was written in its place.
func (a *actor) do(ctx context.Context, next step, changed <-chan struct{}) {
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.opts.tryTimeout())
	defer cancel()
	var err error
	switch next.kind {
	case writeTable:
		err = a.write(try, next)
		a.noteRefusal(ctx, err)
	case readLease:
		err = a.read(try, next.name)
	case removeLease:
		if err = a.client.remove(try, next.name, next.at); err == nil {
			klog.FromContext(ctx).Info("A replica's Lease has run out", "table", a.String(), "replica", next.name)
			a.change(func() { a.r.removed(next.name) })
		}
	}
	switch {
	case err == nil:
		a.races = 0
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		a.races++
		a.mu.Lock()
		a.stats.LostRaces++
		a.mu.Unlock()
		late := time.NewTimer(a.opts.RetryPeriod)
		defer late.Stop()
		select {
		case <-changed:
		case <-late.C:
		case <-ctx.Done():
		}
		spread := min(a.opts.RetryPeriod/4, time.Duration(a.races)*a.opts.RetryPeriod/100)
		lifecycle.Sleep(ctx, time.Duration(a.opts.random()*float64(spread)))
	default:
		klog.FromContext(ctx).V(1).Info("A step failed", "table", a.String(), "step", next.String(), "err", err)
		lifecycle.Sleep(ctx, a.pace(0.5))
	}
}

// noteRefusal notes whether a Lease that is not ours has the table's name: Ready says so, and the log once.
func (a *actor) noteRefusal(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, errOther) {
		return
	}
	a.mu.Lock()
	before := a.refusal
	a.refusal = err
	a.mu.Unlock()
	if err != nil && before == nil {
		klog.FromContext(ctx).Error(err, "There can be no table", "table", a.String())
	}
}

// write writes a table.
func (a *actor) write(ctx context.Context, next step) error {
	a.mu.Lock()
	base, leave, me := a.lease, a.leave, a.r.number
	var ours []int // of the slices that are given away: those whose work has begun here
	if next.from != nil {
		ours = tells(a.r, next.from, next.table)
	}
	a.mu.Unlock()
	if next.from != nil {
		text := ""
		if leave != nil && len(ours) > 0 {
			text = leave(ours)
		}
		next.table.leave(next.from, me, ours, text)
	}
	var lease *coordinationv1.Lease
	var err error
	if next.at == (version{}) {
		lease, err = a.create(ctx, next)
	} else {
		if err := checkTable(base); err != nil {
			return err
		}
		base = tableLease(base, a.opts, next.table, a.r.name)
		base.UID, base.ResourceVersion = types.UID(next.at.uid), next.at.resourceVersion
		lease, err = a.client.update(ctx, base)
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lease = lease
	seen := a.r.seen
	seen.table, seen.at = next.table, versionOf(lease)
	a.r.observe(seen, a.now())
	a.seen = a.r.seen
	a.led = noteLed(a.led, a.seen, a.opts.RenewDeadline)
	a.settleLocked()
	return nil
}

// create creates the table's Lease. If there is one that has lost its label, so that no list shows it, this one takes
// its place.
func (a *actor) create(ctx context.Context, next step) (*coordinationv1.Lease, error) {
	lease, err := a.client.create(ctx, tableLease(nil, a.opts, next.table, a.r.name))
	if !apierrors.IsAlreadyExists(err) {
		return lease, err
	}
	current, failed := a.client.get(ctx, a.opts.Name)
	if failed != nil || current == nil || current.Labels[groupLabel] == a.opts.Name {
		return nil, err
	}
	if err := checkTable(current); err != nil {
		return nil, err
	}
	return a.client.update(ctx, tableLease(current, a.opts, next.table, a.r.name))
}

// read looks whether a replica's Lease is really gone. One that has lost its label gets it again, so that all see it.
func (a *actor) read(ctx context.Context, name string) error {
	lease, err := a.client.get(ctx, name)
	if err != nil {
		return err
	}
	if lease == nil {
		a.change(func() { a.r.notFound(name, a.now()) })
		return nil
	}
	if lease.Labels[groupLabel] != a.opts.Name {
		lease = lease.DeepCopy()
		if lease.Labels == nil {
			lease.Labels = map[string]string{}
		}
		lease.Labels[groupLabel] = a.opts.Name
		if _, err := a.client.update(ctx, lease); err != nil {
			return err
		}
	}
	lifecycle.Sleep(ctx, a.opts.RetryPeriod/2) // the watch is about to show it
	return nil
}
