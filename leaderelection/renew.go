package leaderelection

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
		return &LostError{Reason: ReasonHolder, Lease: e.String(), Holder: clip(value(lease.Spec.HolderIdentity))}
	}
}
