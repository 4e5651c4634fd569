package leaderelection

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// An observation is a state of the Lease and since when this process has seen it, on its own monotonic clock. No time
// that another machine wrote into the Lease counts.
type observation struct {
	known  bool                  // false until the first look
	lease  *coordinationv1.Lease // nil if it does not exist; shared, never changed
	since  time.Time             // when the answer arrived that first showed this state
	others bool                  // an earlier look showed a Lease that had been held
	mine   bool                  // this process wrote it, to acquire the Lease
	jitter float64               // in [0, 1), drawn for each state, so that two challengers rarely act at one moment
	// longest is the longest duration that a record has asked for since the Lease was last released or this process's
	// own. A holder that asked for it may still work although the Lease does not name it any more.
	longest time.Duration

	changed <-chan struct{} // closed when this observation is out of date
}

// wait returns how long this state has to stand unchanged before a challenger may acquire the Lease. It is zero for a
// Lease that was released, and for one that this process wrote (the answer was lost): whoever led has stopped.
//
// Everything else waits for fullWait. That includes a Lease that was never held, and one whose holder was wiped out: a
// leader does not leave like that, so one may still be at work.
func (o observation) wait(cfg Config) time.Duration {
	if o.absent() || o.mine || o.trusted(cfg) || isReleased(o.lease) {
		return 0
	}
	return o.fullWait(cfg)
}

// fullWait is the wait for a leader that may be at work: the longest one of this candidate's LeaseDuration and those
// that this record and the ones before it ask for, which MaxLeaseDuration bounds.
func (o observation) fullWait(cfg Config) time.Duration {
	return max(cfg.LeaseDuration, min(max(durationOf(o.lease), o.longest), cfg.MaxLeaseDuration))
}

// absent reports that there is no Lease. This state cannot stand unchanged: it has no version, so a Lease may have been
// created, held and deleted between two looks. A challenger therefore creates a Lease without a holder first, and waits
// for that one.
func (o observation) absent() bool { return o.known && o.lease == nil }

// trusted reports that a Lease which does not exist, or was never held, counts as the first of its name.
func (o observation) trusted(cfg Config) bool {
	return cfg.SkipFirstWait && !o.others && (o.lease == nil || isPristine(o.lease))
}

// acquireIn returns in how much time this challenger should try to acquire the Lease. The jitter spares the server many
// writes at one moment. It only adds to the wait, and is short where the Lease is free, so that a hand-over takes
// milliseconds.
func (o observation) acquireIn(cfg Config, now time.Time) time.Duration {
	wait := o.wait(cfg)
	spread := cfg.RetryPeriod / 4
	if wait == 0 {
		spread = cfg.RetryPeriod / 100
	}
	return wait + time.Duration(o.jitter*float64(spread)) - now.Sub(o.since)
}

// A view keeps the latest observation. The watch, the renewals and the campaign all report to it what they see.
type view struct {
	mu sync.Mutex
	// Guarded by mu. stale is closed, and made anew, whenever now is replaced; now.changed is always stale.
	now   observation
	stale chan struct{}
	// attempt is the last record with which this process has tried to acquire the Lease; nil once the Lease was seen to
	// have gone beyond it.
	attempt *coordinationv1.Lease
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

// attempting notes that this process is about to write lease, whose answer may be lost.
func (v *view) attempting(lease *coordinationv1.Lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.attempt = lease
}

// uncertain reports that the outcome of an attempt is unknown.
func (v *view) uncertain() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.attempt != nil && !v.now.mine
}

// see notes what an answer from the server showed, and reports whether that is another state than before. A state that
// has not changed keeps its age.
//
// after is the resourceVersion that this one came next after, if a watch without a gap says so; otherwise it is "". If
// it is known, and the record is the same, the record has stood all the while, and keeps its age under its new version.
// Between two looks it may have been renewed, and put back by hand, so there another version is another state.
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
		stopped := v.now.mine || lease != nil && isReleased(lease) // whoever worked before
		if !stopped || older(lease, last.lease) {
			v.now.longest = max(last.longest, durationOf(lease))
		}
	}
	close(v.stale)
	v.stale = make(chan struct{})
	v.now.changed = v.stale
	return !stood
}

// passed reports that the view has seen a later version of this very Lease. An event may be late; only a look, which
// asks the server for the current state, may go back.
func (v *view) passed(lease *coordinationv1.Lease) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return older(lease, v.now.lease)
}

// isAttemptLocked reports whether lease is this process's attempt. A record into which this process's name was written
// by hand has another acquireTime. A record of the attempt's term or a later one that is not the attempt ends it for
// good, even if it is restored by hand later.
func (v *view) isAttemptLocked(lease *coordinationv1.Lease) bool {
	if v.attempt == nil || lease == nil {
		return false
	}
	seen, tried := lease.Spec, v.attempt.Spec
	otherLease := v.attempt.UID != "" && v.attempt.UID != lease.UID
	if !otherLease && value(seen.HolderIdentity) == *tried.HolderIdentity &&
		value(seen.LeaseTransitions) == *tried.LeaseTransitions && seen.AcquireTime.Equal(tried.AcquireTime) {
		return true
	}
	if otherLease || value(seen.LeaseTransitions) >= *tried.LeaseTransitions {
		v.attempt = nil
	}
	return false
}
