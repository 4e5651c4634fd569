package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// An observation is what the Lease last looked like from here, and since when, on this process's monotonic clock.
// Nothing that another machine's clock wrote into the Lease counts.
type observation struct {
	known  bool                  // false until the first look
	lease  *coordinationv1.Lease // nil if it does not exist; shared, never changed
	since  time.Time             // when the answer arrived that first showed this state
	others bool                  // an earlier look showed a Lease that somebody held
	// longest is the longest duration that a record has asked for since the last one that was released, or ours: of a
	// holder that may still be at work although the Lease does not say so any more, or not for how long.
	longest time.Duration
	mine    bool    // it names this process, by a claim of this process's own
	jitter  float64 // in [0, 1): drawn once for each state, so that two challengers rarely act at one moment

	changed <-chan struct{} // closed when this observation is out of date
}

// wait says how long a challenger has to let this state stand unchanged before it may take the Lease. It is zero for
// what is free at once: a Lease that was released, or that names this very process (a claim whose answer was lost),
// since whoever led has stopped.
//
// For everything else it is the longest one of our own duration and those that this record and the ones before it asked
// for, these bounded by MaxLeaseDuration. That includes a Lease that was never held, or whose holder was wiped out:
// that is not how a leader leaves, so there may be one still at work.
func (o observation) wait(cfg Config) time.Duration {
	switch {
	case o.absent():
		return 0
	case o.mine || o.trusted(cfg) || isReleased(o.lease):
		return 0
	default:
		return o.fullWait(cfg)
	}
}

// patience is the wait for whoever may be at work.
func (o observation) fullWait(cfg Config) time.Duration {
	return max(cfg.LeaseDuration, min(max(durationOf(o.lease), o.longest), cfg.MaxLeaseDuration))
}

// absent reports that there is no Lease. That is no state that could stand unchanged: it has no version, so nobody can
// tell whether a Lease was made, held and deleted between two looks. A challenger therefore first makes a Lease that
// nobody holds, and waits for that one.
func (o observation) absent() bool { return o.known && o.lease == nil }

// trusted reports that a Lease which is not there, or was never held, is to be taken for the first of its name.
func (o observation) trusted(cfg Config) bool {
	return cfg.SkipFirstWait && !o.others && (o.lease == nil || isPristine(o.lease))
}

// takeIn says in how much time this challenger should try to take the Lease. The jitter spares the server N writes at
// one moment; it only ever adds to the wait. (What is free at once is handed over in milliseconds, so there it is
// short.)
func (o observation) acquireIn(cfg Config, now time.Time) time.Duration {
	wait := o.wait(cfg)
	spread := cfg.RetryPeriod / 4
	if wait == 0 {
		spread = cfg.RetryPeriod / 100
	}
	return wait + time.Duration(o.jitter*float64(spread)) - now.Sub(o.since)
}

// A view keeps the observation. Several goroutines look at the Lease (the watch, renewals, takes); whatever they see
// they say here.
type view struct {
	mu sync.Mutex
	// Guarded by mu. stale is closed, and made anew, whenever now is replaced; now.changed is always stale.
	now   observation
	stale chan struct{}
	// claim is the last record that this process wrote, or tried to write, to take the Lease; nil once the Lease was
	// seen to have gone beyond it. legacy is what its tenure has, or would have, begun with; nothing once its lead
	// function was called.
	attempt  *coordinationv1.Lease
	handover handover
}

func newView() *view {
	v := &view{stale: make(chan struct{})}
	v.now.changed = v.stale
	return v
}

func (v *view) get() observation {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// claiming notes that this process is about to write lease, whether or not it will learn what became of it. It returns
// the legacy that comes with what was observed: that of an earlier claim of our own, if nobody has worked under it, is
// still there to be had.
func (v *view) attempting(lease *coordinationv1.Lease, o observation, cfg Config) handover {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case o.mine: // the legacy stays
	case o.lease != nil && isReleased(o.lease):
		v.handover = handover{word: handoverOf(o.lease)}
	default:
		v.handover = handover{waited: !o.trusted(cfg)}
	}
	v.attempt = lease
	return v.handover
}

// working notes that the claim's lead function is about to be called: what it does, no legacy knows.
func (v *view) forgetHandover() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.handover = handover{}
}

// inherited returns the word that comes with the claim.
func (v *view) receivedWord() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.handover.word
}

// uncertain reports whether a claim was made of which it is not known what became of it.
func (v *view) uncertain() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.attempt != nil && !v.now.mine
}

// see notes what an answer from the server showed and reports whether that is another state than before. An unchanged
// state keeps its age.
//
// after, unless it is "", says that the server has told of every change, and that this one came next after that
// resourceVersion. Then a record that is still the same has stood all the while, whatever was done to the Lease's
// metadata, and keeps its age under its new version. Between two looks it may have been renewed, and put back by hand,
// so there another version is another state.
func (v *view) see(lease *coordinationv1.Lease, after string, jitter float64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	last := v.now
	if last.known && sameState(last.lease, lease) {
		return false
	}
	stood := after != "" && sameRecord(last.lease, lease) && last.lease.ResourceVersion == after
	if stood {
		v.now.lease = lease
	} else {
		v.now = observation{
			known:  true,
			lease:  lease,
			since:  time.Now(),
			others: last.others || last.known && last.lease != nil && !isPristine(last.lease),
			mine:   v.isAttemptLocked(lease),
			jitter: jitter,
		}
		over := v.now.mine || lease != nil && isReleased(lease) // whoever worked before has stopped
		if !over || older(lease, last.lease) {
			v.now.longest = max(last.longest, durationOf(lease))
		}
	}
	close(v.stale)
	v.stale = make(chan struct{})
	v.now.changed = v.stale
	return !stood
}

// passed reports that the view has seen a later version of this very Lease: an event may be late. Only looks, which ask
// the server how things are now, may go back.
func (v *view) passed(lease *coordinationv1.Lease) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return older(lease, v.now.lease)
}

// isAttemptLocked tells our own claim from a record in which somebody wrote our name by hand: the claim also has its
// acquireTime. A record at or beyond the claim's term that is not the claim ends it for good, even if somebody restores
// it later.
func (v *view) isAttemptLocked(lease *coordinationv1.Lease) bool {
	if v.attempt == nil || lease == nil {
		return false
	}
	seen, claim := lease.Spec, v.attempt.Spec
	if value(seen.HolderIdentity) == *claim.HolderIdentity && value(seen.LeaseTransitions) == *claim.LeaseTransitions &&
		seen.AcquireTime.Equal(claim.AcquireTime) && (v.attempt.UID == "" || v.attempt.UID == lease.UID) {
		return true
	}
	if value(seen.LeaseTransitions) >= *claim.LeaseTransitions || v.attempt.UID != "" && v.attempt.UID != lease.UID {
		v.attempt = nil
	}
	return false
}

// observe keeps the view up to date until ctx ends: one look, then the watch, again and again; looks alone while the
// watch is forbidden.
func (e *Elector) observe(ctx context.Context) {
	var mayWatch time.Time
	for ctx.Err() == nil {
		pause, watches := e.pace(), !time.Now().Before(mayWatch)
		if e.tenure.Load() == nil || watches { // without a watch a leader's own renewals are its looks
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

// watchAgain is how long a forbidden watch is not asked for again. A Role may be corrected while we run.
const watchAgain = time.Minute

// pace is the time between two tries of a candidate.
func (e *Elector) pace() time.Duration {
	return time.Duration(float64(e.cfg.RetryPeriod) * (1 + 0.2*e.random()))
}

// look reads the Lease once.
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

// follow watches the Lease from the state that was just seen. It returns when the stream ends, or has been silent for
// so long that it is doubted and a look proves it dead: a holder renews every few seconds.
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
			if resourceVersion, err = e.watched(ctx, event, resourceVersion); err != nil {
				return time.Since(start), err
			}
		case <-doubt.C:
			// a leader would hear the echo of its own renewals, if they and the watch were well
			if e.tenure.Load() != nil {
				return time.Since(start), nil
			}
			before := e.view.get()
			lease, err := e.look(ctx)
			if err == nil && !sameState(before.lease, lease) {
				return time.Since(start), errSilent
			}
		case <-ctx.Done():
			return time.Since(start), ctx.Err()
		}
	}
}

// watchFor is the longest time that one watch is asked to last.
const watchFor = 10 * time.Minute

// watched takes an event of a watch that has told of everything up to a resourceVersion, and returns up to which one it
// has now.
func (e *Elector) watched(ctx context.Context, event watch.Event, after string) (upTo string, err error) {
	switch event.Type {
	case watch.Error:
		return after, apierrors.FromObject(event.Object)
	case watch.Added, watch.Modified, watch.Deleted:
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok {
			return after, fmt.Errorf("the watch of a lease sent a %T", event.Object)
		}
		if lease.Name != e.cfg.Name || lease.Namespace != e.cfg.Namespace {
			return after, nil // a server, or a proxy, that ignores the field selector
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

// see updates the view. What is news to a leader is only a hint: it may be out of date, so the next renewal, made at
// once, decides. For after see [view.see].
func (e *Elector) see(ctx context.Context, lease *coordinationv1.Lease, after string) {
	before := e.view.get()
	if !e.view.see(lease, after, e.random()) {
		return
	}
	logger := klog.FromContext(ctx)
	if lease != nil && value(lease.Spec.HolderIdentity) != "" {
		if holder := value(lease.Spec.HolderIdentity); before.lease == nil ||
			value(before.lease.Spec.HolderIdentity) != holder {
			logger.Info("The lease has a holder", "lease", e.String(), "holder", kube.Brief(holder), "transitions",
				value(lease.Spec.LeaseTransitions))
		}
		if duration := durationOf(lease); duration <= 0 || duration > e.cfg.MaxLeaseDuration {
			e.stats.count(func(s *Stats) { s.OddDurations++ })
			logger.Info("The lease asks for an odd duration, which is not obeyed", "lease", e.String(), "seconds",
				value(lease.Spec.LeaseDurationSeconds))
		}
	}
	if t := e.tenure.Load(); t != nil && !t.token.names(lease) {
		select {
		case t.renewNow <- struct{}{}:
		default: // one is waiting already
		}
	}
}
