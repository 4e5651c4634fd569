package leaderelection

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
