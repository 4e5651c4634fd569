package leaderelection

import (
	"context"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/internal/kube"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A tenure is one time of leading, from a take that was acknowledged to the deadline that no acknowledged renewal has
// moved on.
type tenure struct {
	token    Token
	received handover         // what the leader before has left
	length   time.Duration    // RenewDeadline
	wall     func() time.Time // the wall clock, without a monotonic reading
	ctx      context.Context  // ends when the tenure does; its cause is a *LostError or errReturned
	cancel   context.CancelCauseFunc
	renewNow chan struct{} // holds one: somebody saw a Lease that is not ours, renew at once

	mu sync.Mutex
	// Guarded by mu. lease is the Lease as of the last acknowledged write; sent and sentWall say, on two clocks, when
	// that write was sent. They only move on, and never once the tenure has ended.
	lease          *coordinationv1.Lease
	sent, sentWall time.Time
	// lastErr is why the last renewal failed; nil after an acknowledged one.
	lastErr error
	// word is what the release is to leave; see [Elector.SetHandover].
	word string
}

// A tenureKey is the key of a tenure in the context that it gives to the lead function.
type tenureKey struct{ *Elector }

// A stamp is a moment on both clocks.
type instant struct{ mono, wall time.Time }

func (e *Elector) now() instant { return instant{mono: time.Now(), wall: e.wall().Round(0)} }

func (e *Elector) newTenure(ctx context.Context, sent instant, lease *coordinationv1.Lease, received handover) *tenure {
	t := &tenure{
		token: tokenOf(lease), received: received, length: e.cfg.RenewDeadline, wall: e.wall, renewNow: make(chan struct{}, 1),
		lease: lease, sent: sent.mono, sentWall: sent.wall,
	}
	t.ctx, t.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), tenureKey{e}, t))
	return t
}

// left says how much of the tenure is left at a moment: until RenewDeadline after the last acknowledged renewal was
// sent, on whichever of the two clocks is there first. The monotonic clock is the one that counts; it can not be set.
// But on Linux it stands still while the machine sleeps, and the wall clock does not. Set back, the wall clock changes
// nothing.
func (t *tenure) remaining(now instant) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remainingLocked(now)
}

func (t *tenure) remainingLocked(now instant) time.Duration {
	return t.length - max(now.mono.Sub(t.sent), now.wall.Sub(t.sentWall))
}

func (t *tenure) now() instant { return instant{mono: time.Now(), wall: t.wall().Round(0)} }

func (t *tenure) valid() bool { return t.ctx.Err() == nil && t.remaining(t.now()) > 0 }

// extend moves the deadline after a renewal that was sent at a moment was acknowledged. The answer may come late, so
// the moment of the answer says nothing; and an answer that comes after the deadline does not bring the tenure back.
func (t *tenure) extend(sent instant, lease *coordinationv1.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil || t.remainingLocked(t.now()) <= 0 {
		return
	}
	t.lease, t.sent, t.sentWall, t.lastErr = lease, sent.mono, sent.wall, nil
}

func (t *tenure) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastErr = err
}

func (t *tenure) last() (*coordinationv1.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lease, t.lastErr
}

func (t *tenure) setHandover(word string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.word = word
}

func (t *tenure) nextWord() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.word
}

// expired reports that nothing is left of the tenure at a moment, and why.
func (t *tenure) expired(now instant) (over bool, reason Reason, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.remainingLocked(now) > 0:
		return false, "", nil
	case now.mono.Sub(t.sent) < t.length:
		return true, ReasonClock, nil
	}
	return true, ReasonDeadline, t.lastErr
}

// renew keeps the tenure going until it ends: a renewal every RetryPeriod, at once when somebody saw a foreign Lease,
// and at once after a try that used up its period in waiting for an answer.
func (e *Elector) renew(t *tenure) {
	sent := time.Now()
	for {
		timer := time.NewTimer(time.Until(sent.Add(e.cfg.RetryPeriod)))
		select {
		case <-timer.C:
		case <-t.renewNow:
		case <-t.ctx.Done():
		}
		timer.Stop()
		if t.ctx.Err() != nil {
			return
		}
		sent = time.Now()
		e.renewOnce(t)
	}
}

// renewOnce is one try. The server may have applied an earlier one whose answer was lost; then it answers with a
// conflict, and a look tells whether the Lease is still ours to renew.
func (e *Elector) renewOnce(t *tenure) {
	ctx, cancel := context.WithTimeout(t.ctx, e.tryTimeout)
	defer cancel()
	base, _ := t.last()
	for {
		sent := e.now()
		lease, err := e.client.update(ctx, renewed(base, e.cfg.LeaseDuration, sent.wall))
		if err == nil {
			if lost := e.lossOf(t, lease); lost != nil { // an admission webhook, say
				t.cancel(lost)
				return
			}
			t.extend(sent, lease)
			e.note(ctx, "renew", nil)
			e.see(ctx, lease, "")
			e.stats.count(func(s *Stats) { s.Renewals++ })
			return
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			var current *coordinationv1.Lease
			if current, err = e.client.get(ctx); err == nil {
				e.see(ctx, current, "")
				if lost := e.lossOf(t, current); lost != nil {
					t.cancel(lost)
					return
				}
				base = current
				continue // bounded by ctx and by our own rate limiter
			}
		}
		if t.ctx.Err() == nil {
			t.failed(err)
			e.stats.count(func(s *Stats) { s.RenewalFailures++ })
			e.note(ctx, "renew", err)
		}
		return
	}
}

// foreign says how a Lease that is not the tenure's own shows that the tenure is lost; nil if it is its own.
func (e *Elector) lossOf(t *tenure, lease *coordinationv1.Lease) error {
	switch {
	case t.token.names(lease):
		return nil
	case lease == nil || lease.UID != t.token.LeaseUID:
		return &LostError{Reason: ReasonDeleted, Lease: e.String()}
	default:
		return &LostError{Reason: ReasonHolder, Lease: e.String(), Holder: kube.Brief(value(lease.Spec.HolderIdentity))}
	}
}
