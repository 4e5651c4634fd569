package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/election"
)

// A tenure is the time for which a candidate may lead: from an acknowledged acquisition until RenewDeadline after the
// last acknowledged renewal was sent.
type tenure struct {
	// Never changed.
	*candidate
	token    Token
	received handover        // from the leader before
	ctx      context.Context // ends when the tenure does; its cause is a *LostError or errReturned
	cancel   context.CancelCauseFunc

	mu sync.Mutex
	// Guarded by mu. lease is as of the last acknowledged write, and sent is when that was sent. They only move on, and
	// not after the tenure has ended.
	lease *coordinationv1.Lease
	sent  election.Instant
	text  string // for the next leader, see [Elector.SetHandover]
}

// A tenureKey is the key of a tenure in the context that it gives to the lead function.
type tenureKey struct{ *candidate }

func (c *candidate) newTenure(ctx context.Context, sent election.Instant, lease *coordinationv1.Lease,
	received handover) *tenure {
	t := &tenure{candidate: c, token: tokenOf(lease), received: received, lease: lease, sent: sent}
	t.ctx, t.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), tenureKey{c}, t))
	return t
}

// clockCheck is how often the deadline is compared with the wall clock. After a sleep of the machine, timers are late
// by as long as it slept.
const clockCheck = time.Second

// await returns what the lead function returned, or that it did not return in time. It holds the timer that ends the
// tenure at its deadline.
func (t *tenure) await(ctx context.Context, w *work, returned <-chan struct{}, stop context.CancelCauseFunc) outcome {
	stopping, lost := ctx.Done(), t.ctx.Done() // nil once they have been seen
	var tooLate <-chan time.Time
	deadline := time.NewTimer(0)
	defer deadline.Stop()
	for {
		if lost != nil {
			deadline.Reset(min(t.remaining(t.now()), clockCheck))
		}
		select {
		case <-returned:
			return w.result

		case <-stopping: // the tenure goes on until the work has ended
			stop(context.Cause(ctx))
			stopping = nil
			if lost != nil { // otherwise StopGrace runs already
				tooLate = time.After(t.cfg.DrainTimeout)
			}

		case <-deadline.C:
			if lost := t.expired(t.now()); lost != nil {
				t.cancel(lost)
			}

		case <-lost: // by its deadline, or because a renewal found another holder
			klog.FromContext(ctx).Info("Lost the lease", "lease", t.String(), "cause", context.Cause(t.ctx))
			deadline.Stop()
			lost, tooLate = nil, time.After(t.cfg.StopGrace)

		case <-tooLate:
			w.givenUp.Store(true)
			after := t.cfg.DrainTimeout
			if lost == nil {
				after = t.cfg.StopGrace
			}
			return outcome{stuck: true, err: fmt.Errorf("the lead function %w: it had %v", ErrStuck, after)}
		}
	}
}

// remaining returns how much is left of the tenure: until RenewDeadline after the last acknowledged renewal was sent,
// on whichever of the two clocks that comes first.
func (t *tenure) remaining(now election.Instant) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remainingLocked(now)
}

func (t *tenure) remainingLocked(now election.Instant) time.Duration {
	return election.Left(t.cfg.RenewDeadline, t.sent, now)
}

func (t *tenure) valid() bool { return t.ctx.Err() == nil && t.remaining(t.now()) > 0 }

// extend moves the deadline when a renewal was acknowledged: it counts from when the renewal was sent, because the
// answer may be late. An answer that comes after the deadline does not bring the tenure back.
func (t *tenure) extend(sent election.Instant, lease *coordinationv1.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil || t.remainingLocked(t.now()) <= 0 {
		return
	}
	t.lease, t.sent = lease, sent
}

// lastLease returns the Lease as of the last acknowledged write.
func (t *tenure) lastLease() *coordinationv1.Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lease
}

// expired returns the loss of the tenure by its deadline: nil if that has not passed.
func (t *tenure) expired(now election.Instant) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.remainingLocked(now) > 0:
		return nil
	case now.Mono.Sub(t.sent.Mono) < t.cfg.RenewDeadline:
		return &LostError{Reason: ReasonClock, Lease: t.String()}
	}
	return &LostError{Reason: ReasonDeadline, Lease: t.String(), Err: t.failures.renewal().err}
}

// end releases the Lease, unless some of the work goes on or the Lease is no longer the tenure's, and returns the
// error of Run.
func (t *tenure) end(ctx context.Context, work outcome) error {
	var lost *LostError
	if errors.As(context.Cause(t.ctx), &lost) {
		t.stats.count(func(s *Stats) { s.Losses++ })
	}
	defer t.announceEnd(ctx, lost)
	if work.stuck {
		err := fmt.Errorf("leaderelection: %s: the lease was not released, since work goes on: %w", t, work.err)
		if lost != nil {
			err = errors.Join(err, lost)
		}
		return err
	}
	if lost == nil || lost.Reason == ReasonDeadline || lost.Reason == ReasonClock {
		t.release(ctx, t.lastLease(), t.token, t.nextText())
	}
	switch {
	case lost == nil && ctx.Err() != nil && work.canceled:
		return nil
	case lost == nil:
		return work.err
	case work.err == nil || work.yielded:
		return lost // the loss is why the work ended
	}
	return errors.Join(lost, work.err)
}
