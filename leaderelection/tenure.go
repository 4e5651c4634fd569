package leaderelection

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
)

// A tenure is the time for which a candidate may lead: from an acknowledged acquisition until RenewDeadline after the
// last acknowledged renewal was sent.
type tenure struct {
	// Never changed.
	token    Token
	received handover        // from the leader before
	length   time.Duration   // RenewDeadline
	now      func() instant  // of the Elector
	ctx      context.Context // ends when the tenure does; its cause is a *LostError or errReturned
	cancel   context.CancelCauseFunc
	renewNow chan struct{} // holds one: a Lease was seen that is not this tenure's

	mu sync.Mutex
	// Guarded by mu. lease is as of the last acknowledged write, and sent is when that was sent. They only move on, and
	// not after the tenure has ended.
	lease   *coordinationv1.Lease
	sent    instant
	lastErr error  // of the last renewal; nil if it was acknowledged
	word    string // for the next leader, see [Elector.SetHandover]
}

// A tenureKey is the key of a tenure in the context that it gives to the lead function.
type tenureKey struct{ *Elector }

// An instant is a moment on both clocks.
type instant struct{ mono, wall time.Time }

func (e *Elector) now() instant { return instant{mono: time.Now(), wall: e.wall().Round(0)} }

func (e *Elector) newTenure(ctx context.Context, sent instant, lease *coordinationv1.Lease, received handover) *tenure {
	t := &tenure{
		token: tokenOf(lease), received: received, length: e.cfg.RenewDeadline, now: e.now,
		renewNow: make(chan struct{}, 1), lease: lease, sent: sent,
	}
	t.ctx, t.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), tenureKey{e}, t))
	return t
}

// hold leads: it runs lead and the renewals until the work has ended or has had its time, and ends the tenure.
func (e *Elector) hold(ctx context.Context, t *tenure, lead func(context.Context) error) error {
	e.tenure.Store(t)
	e.view.forgetHandover()
	var renewals sync.WaitGroup
	renewals.Go(func() { // a slow EventRecorder makes the first renewal late, but not the deadline
		e.announceStart(ctx, t)
		e.renew(t)
	})
	work, stopWork := context.WithCancelCause(t.ctx)
	result := e.await(ctx, t, e.start(work, lead), stopWork)
	t.cancel(errReturned)
	stopWork(nil)
	renewals.Wait()
	e.tenure.Store(nil)
	return e.endTenure(ctx, t, result)
}

// clockCheck is how often the deadline is compared with the wall clock. After a sleep of the machine, timers are late
// by as long as it slept.
const clockCheck = time.Second

// await returns what the lead function returned, or that it did not return in time. It holds the timer that ends the
// tenure at its deadline.
func (e *Elector) await(ctx context.Context, t *tenure, returned <-chan outcome,
	stopWork context.CancelCauseFunc) outcome {
	stopping, lost := ctx.Done(), t.ctx.Done() // nil once they have been seen
	var tooLate <-chan time.Time
	deadline := time.NewTimer(0)
	defer deadline.Stop()
	for {
		if lost != nil {
			deadline.Reset(min(t.remaining(t.now()), clockCheck))
		}
		select {
		case result := <-returned:
			return result

		case <-stopping: // the tenure goes on until the work has ended
			stopWork(context.Cause(ctx))
			stopping = nil
			if lost != nil { // otherwise StopGrace runs already
				tooLate = time.After(e.cfg.DrainTimeout)
			}

		case <-deadline.C:
			if over, reason, err := t.expired(t.now()); over {
				t.cancel(&LostError{Reason: reason, Lease: e.String(), Err: err})
			}

		case <-lost: // by its deadline, or because a renewal found another holder
			klog.FromContext(ctx).Info("Lost the lease", "lease", e.String(), "cause", context.Cause(t.ctx))
			deadline.Stop()
			lost, tooLate = nil, time.After(e.cfg.StopGrace)

		case <-tooLate:
			e.stuck.Store(true)
			after := e.cfg.DrainTimeout
			if lost == nil {
				after = e.cfg.StopGrace
			}
			return outcome{stuck: true, err: fmt.Errorf("the lead function %w: it had %v", ErrStuck, after)}
		}
	}
}

// remaining returns how much is left of the tenure: until RenewDeadline after the last acknowledged renewal was sent,
// on whichever of the two clocks that comes first. The monotonic clock is the one that counts, since it cannot be set.
// But on Linux it stands still while the machine sleeps, and the wall clock does not. A wall clock that is set back
// changes nothing.
func (t *tenure) remaining(now instant) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remainingLocked(now)
}

func (t *tenure) remainingLocked(now instant) time.Duration {
	return t.length - max(now.mono.Sub(t.sent.mono), now.wall.Sub(t.sent.wall))
}

func (t *tenure) valid() bool { return t.ctx.Err() == nil && t.remaining(t.now()) > 0 }

// extend moves the deadline when a renewal was acknowledged: it counts from when the renewal was sent, because the
// answer may be late. An answer that comes after the deadline does not bring the tenure back.
func (t *tenure) extend(sent instant, lease *coordinationv1.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil || t.remainingLocked(t.now()) <= 0 {
		return
	}
	t.lease, t.sent, t.lastErr = lease, sent, nil
}

func (t *tenure) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastErr = err
}

// lastLease returns the Lease as of the last acknowledged write.
func (t *tenure) lastLease() *coordinationv1.Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lease
}

// expired reports whether the deadline has passed, and why.
func (t *tenure) expired(now instant) (over bool, reason Reason, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.remainingLocked(now) > 0:
		return false, "", nil
	case now.mono.Sub(t.sent.mono) < t.length:
		return true, ReasonClock, nil
	}
	return true, ReasonDeadline, t.lastErr
}
