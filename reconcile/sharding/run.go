package sharding

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Run takes part in the group for one tenure: it makes a Lease and renews it, joins the table, takes its share of the
// slices, and gives slices to others that have asked for them. When there is a Lease it calls lead, which works on keys
// between [Shards.Enter] and leave, and has [Shards.Inherit] open the slices that come. When ctx ends, the others are
// told, and prepare for the slices, whose work goes on until they have asked for them, or for the time that
// Options.DrainTimeout has for that. The context of lead ends
//
//   - after that. Work that was entered has the rest of DrainTimeout to end.
//   - when the tenure is lost. Then lead, and all work that was entered, have StopGrace to end.
//
// When lead has returned, no more work may be entered, the slices whose work has ended are given to the other replicas,
// and Run returns when everything that it has started has ended:
//
//   - what lead returned; an error that says only that the context was canceled becomes nil.
//   - an error that wraps [ErrLost] when the tenure was lost. Call Run again to take part again.
//   - an error that wraps [ErrStuck] when lead or work did not end in time, or lead returned such an error. The process
//     should exit: every further Run is refused.
//   - nil when ctx ended before there was a Lease.
//   - [ErrRunning] at once if another call of Run has not returned.
func (s *Shards) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer s.running.Store(false)
	if lead == nil {
		return errors.New("sharding: Run: lead is nil")
	}
	s.mu.Lock()
	stuck, again := s.stuck, s.last != nil
	if s.led == nil {
		s.led = slices.Repeat([]led{{until: time.Now()}}, s.countLocked())
	}
	s.mu.Unlock()
	if stuck {
		return fmt.Errorf("sharding: %s: work of an earlier Run %w", s, ErrStuck)
	}
	under, stop := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	background.Go(func() { (&observer{Shards: s}).run(under) })
	defer func() {
		stop()
		background.Wait()
		s.client.transport.Close()
	}()
	if again {
		lifecycle.Sleep(ctx, s.pace(0.25))
	}
	return term{s}.live(ctx, lead)
}

// A term has the parts of one tenure.
type term struct{ *Shards }

// live is one tenure, under a name of its own.
func (s term) live(ctx context.Context, lead func(context.Context) error) error {
	prepares := s.opts.Prepare != nil || s.caches.any()
	s.mu.Lock()
	r := newReplica(s.opts.Name+"-"+strings.ToLower(rand.Text()[:10]), s.opts.Identity, s.opts.Slices,
		timing{s.opts.LeaseDuration, s.opts.RenewDeadline}, prepares)
	r.by = s.by
	if s.last != nil {
		remember(r, s.last)
	}
	s.mu.Unlock()
	lease := s.makeLease(ctx, r)
	if lease == nil {
		return nil
	}
	log := klog.FromContext(ctx)
	log.Info("Taking part", "table", s.String(), "replica", r.name, "identity", r.seat)
	under, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	s.r, s.stats.Tenures = r, s.stats.Tenures+1
	s.tenure, s.end = context.WithCancelCause(under)
	if s.seen.known {
		r.observe(s.seen, s.now())
	}
	s.settleLocked()
	tenure := s.tenure
	s.mu.Unlock()
	var parts sync.WaitGroup
	parts.Go(func() { s.renew(under, r, lease) })
	parts.Go(func() { (&actor{Shards: s.Shards, r: r}).run(under) })
	parts.Go(func() { s.prepare(under, r) })
	l := &leading{}
	l.start(tenure, lead)
	err := s.await(ctx, r, l)
	stop()
	parts.Wait()
	stuck := errors.Is(err, ErrStuck)
	over := s.conclude(r, stuck)
	log.Info("No longer taking part", "table", s.String(), "replica", r.name, "reason", over, "err", err)
	if stuck {
		return err
	}
	s.removeOwn(ctx, r.name, lease)
	switch {
	case ctx.Err() == nil && over != nil && !errors.Is(over, errLeft):
		return fmt.Errorf("%w: %s: %w", ErrLost, s, over)
	case lifecycle.IsOnly(err, context.Canceled):
		return nil
	}
	return err
}

// conclude ends a tenure, and returns why it was over before. If work is stuck, the others wait until the Lease has
// expired.
func (s term) conclude(r *replica, stuck bool) (over error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over = r.over
	if over != nil && !errors.Is(over, errLeft) {
		s.stats.Losses++
	}
	if stuck {
		s.stuck = true
		r.lose(errStuck)
		s.settleLocked()
	} else {
		s.r, s.last = nil, r
	}
	return over
}

// leading is the call of the lead function of one tenure.
type leading struct {
	group lifecycle.Group // of that goroutine; await waits for it
	err   error           // what lead returned; to be read when it has
	stop  context.CancelFunc
}

// start calls lead on a goroutine of its own. Its context ends with the tenure or by stop. It says that other processes
// lead, too, for a Manager that has got the Shards in a wrapper.
func (l *leading) start(tenure context.Context, lead func(context.Context) error) {
	tenure, l.stop = context.WithCancel(lifecycle.Shared(tenure))
	l.group.Go("lead", func() {
		defer l.stop()
		l.err = lead(tenure)
	})
}

// await returns when lead and all the work of the tenure have ended, with what lead returned, or, with an error that
// wraps ErrStuck, when that takes too long.
func (s term) await(ctx context.Context, r *replica, l *leading) error {
	const clockCheck = time.Second // after a sleep of the machine timers are late by as long as it slept
	stopping, returned := ctx.Done(), l.group.Done()
	var tooLate, drained, prepared <-chan time.Time
	ends := func(how func()) {
		if drained == nil && tooLate == nil {
			drained = time.After(s.opts.DrainTimeout)
		}
		s.change(how)
	}
	deadline := time.NewTimer(0)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		r.expire(s.now())
		if r.over != nil && s.tenure.Err() == nil {
			s.settleLocked()
		}
		over, ending, changed, left := r.over != nil, r.ending, s.changed, r.left(s.now())
		busy := len(s.works) > 0 || returned != nil
		s.mu.Unlock()
		switch {
		case over && !busy:
			return l.err
		case (over || ending && !busy) && tooLate == nil:
			tooLate = time.After(s.opts.StopGrace)
		}
		if ending && stopping == nil {
			l.stop()
		}
		deadline.Reset(max(min(left, clockCheck), time.Millisecond))
		if over {
			deadline.Stop()
		}
		select {
		case <-changed:
		case <-deadline.C:
		case <-returned:
			returned = nil
			if errors.Is(l.err, ErrStuck) {
				return l.err
			}
			ends(r.end)
		case <-stopping:
			stopping, prepared = nil, time.After(s.opts.prepareTimeout())
			ends(r.leave)
		case <-prepared:
			s.change(r.end)
		case <-drained: // what has ended is given to others; what has not is told to end
			drained, tooLate = nil, time.After(s.opts.StopGrace)
			s.change(s.cancelWorksLocked)
		case <-tooLate:
			if err := s.overdue(returned != nil); err != nil {
				return err
			}
			s.change(func() { r.lose(errLeft) }) // the others could not be told
		}
	}
}

// Leave is for a lead function that was told to end. This replica is given no slices any more, and the others prepare
// for its own, whose work goes on until they have asked for them. Leave returns when no work may be entered any more:
// the others have asked for all slices, there are no others, ctx or the tenure has ended, or the time has passed that
// Options.DrainTimeout has for that. Each slice is given away as soon as its work has ended, for which there is
// DrainTimeout. When the last is gone, or lead has returned, Run ends. Without a tenure Leave returns at once.
func (s *Shards) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.prepareTimeout())
	defer cancel()
	s.mu.Lock()
	r := s.r
	s.mu.Unlock()
	if r == nil {
		return
	}
	s.change(r.leave)
	for ctx.Err() == nil {
		s.mu.Lock()
		over, changed := r.ending || r.over != nil, s.changed
		s.mu.Unlock()
		if over {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	s.change(r.end)
}

func (s term) cancelWorksLocked() {
	for _, w := range s.works {
		w.cancel(fmt.Errorf("%w any more: this replica leaves", ErrNotOwned))
	}
}

// overdue returns an error that names the slices whose work goes on, or lead if that does.
func (s term) overdue(leads bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []int
	for slice := range s.works {
		all = append(all, slice)
	}
	switch {
	case len(all) == 0 && leads:
		return fmt.Errorf("sharding: %s: the lead function %w: it had %v", s, ErrStuck, s.opts.StopGrace)
	case len(all) == 0:
		return nil
	}
	slices.Sort(all)
	return fmt.Errorf("sharding: %s: the work of slices %v %w: it had %v", s, all, ErrStuck, s.opts.StopGrace)
}

// change changes the rules' state.
func (s *Shards) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.settleLocked()
}

// makeLease makes the replica's Lease: nil if ctx has ended.
func (s term) makeLease(ctx context.Context, r *replica) *coordinationv1.Lease {
	failing := false
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, s.opts.tryTimeout())
		sent := s.now()
		lease, err := s.client.create(try, replicaLease(s.opts, r.name, sent.Wall))
		if apierrors.IsAlreadyExists(err) { // the answer to the last try was lost; the first renewal begins the tenure
			if lease, err = s.client.get(try, r.name); err == nil && lease != nil {
				sent = s.now()
				lease, err = s.client.update(try, renewedLease(lease, s.opts, sent.Wall))
			}
		}
		cancel()
		if err == nil && lease != nil {
			s.mu.Lock()
			r.renewed(sent, s.now(), versionOf(lease))
			s.failing = nil
			s.mu.Unlock()
			return lease
		}
		if ctx.Err() == nil {
			s.mu.Lock()
			s.failing = err
			s.mu.Unlock()
		}
		if !failing {
			failing = true
			klog.FromContext(ctx).Info("Failing; retrying", "what", "make a Lease", "table", s.String(), "err", err)
		}
		lifecycle.Sleep(ctx, s.pace(1))
	}
	return nil
}

// removeOwn deletes the replica's Lease, whose work has ended. It tries for StopGrace at most: then it expires.
func (s term) removeOwn(ctx context.Context, name string, lease *coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.StopGrace)
	defer cancel()
	for {
		try, end := context.WithTimeout(ctx, s.opts.tryTimeout())
		err := s.client.remove(try, name, version{uid: string(lease.UID)})
		end()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) ||
			!lifecycle.Sleep(ctx, s.opts.RetryPeriod/10) {
			return
		}
	}
}

// renew renews the Lease every RetryPeriod, counted from when the last try was sent, until ctx ends or the tenure does.
func (s term) renew(ctx context.Context, r *replica, base *coordinationv1.Lease) {
	due := time.NewTimer(s.opts.RetryPeriod)
	defer due.Stop()
	for {
		select {
		case <-due.C:
		case <-ctx.Done():
			return
		}
		sent := time.Now()
		base = s.tryRenew(ctx, r, base)
		if base == nil {
			return
		}
		due.Reset(time.Until(sent.Add(s.opts.RetryPeriod)))
	}
}

// tryRenew is one try. It returns what the next one begins with, or nil when the tenure is lost. If the server has
// applied an earlier one whose answer was lost, or somebody has edited the Lease, it answers with a conflict, and a
// read tells whether there is still a Lease to renew.
func (s term) tryRenew(ctx context.Context, r *replica, base *coordinationv1.Lease) *coordinationv1.Lease {
	try, cancel := context.WithTimeout(ctx, s.opts.tryTimeout())
	defer cancel()
	for {
		sent := s.now()
		lease, err := s.client.update(try, renewedLease(base, s.opts, sent.Wall))
		if err == nil {
			s.change(func() { r.renewed(sent, s.now(), versionOf(lease)) })
			return lease
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			current, err := s.client.get(try, base.Name)
			if err == nil && (current == nil || current.UID != base.UID) {
				s.change(func() { r.lose(errDeleted) })
				return nil
			}
			if err == nil {
				base = current
				continue // bounded by ctx and by the rate limiter
			}
		}
		if ctx.Err() == nil {
			s.mu.Lock()
			s.stats.RenewalFailures++
			s.mu.Unlock()
			klog.FromContext(ctx).V(1).Info("A renewal failed", "table", s.String(), "err", err)
		}
		return base
	}
}

// prepare lets the caches keep what the table says, and prepares for the slices that this replica would ask others for.
func (s term) prepare(ctx context.Context, r *replica) {
	defer s.caches.unprepared(nil, nil)
	for ctx.Err() == nil {
		s.caches.follow(s.Shards)
		var all []int
		s.mu.Lock()
		tenure := s.tenure
		if r.prepares {
			all = slices.DeleteFunc(r.wanted(s.now()), func(slice int) bool { return r.ready[slice] })
		}
		s.mu.Unlock()
		if all = s.caches.keep(all); len(all) > 0 {
			err := s.prepareFor(tenure, all)
			if err == nil {
				s.caches.prepared(s.Shards, r, all)
				continue
			}
			if !errors.Is(err, context.Canceled) {
				klog.FromContext(ctx).Error(err, "Preparing for slices failed; it is tried again", "table", s.String())
			}
		} else {
			s.caches.unprepared(nil, nil)
		}
		lifecycle.Sleep(ctx, s.opts.RetryPeriod/4)
	}
}

// prepareFor fills the caches for slices, and calls Prepare.
func (s term) prepareFor(tenure context.Context, all []int) error {
	wait, cancel := context.WithTimeout(tenure, s.opts.LeaseDuration) // after that others may be wanted
	defer cancel()
	if err := s.caches.wait(wait, all); err != nil {
		s.caches.unprepared(all, err)
		return err
	}
	s.caches.unprepared(nil, nil)
	if s.opts.Prepare == nil {
		return nil
	}
	return s.opts.Prepare(tenure, slices.Clone(all))
}
