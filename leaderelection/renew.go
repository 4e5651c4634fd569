package leaderelection

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/thermostat-go/thermostat/internal/kube"
)

// renew renews the Lease until the tenure ends: every RetryPeriod, counted from when the last try was sent, and at once
// when a Lease was seen that is not the tenure's.
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
		e.tryRenew(t)
	}
}

// tryRenew is one try. If the server has applied an earlier one whose answer was lost, it answers with a conflict, and
// a read tells whether the Lease is still this tenure's.
func (e *Elector) tryRenew(t *tenure) {
	ctx, cancel := context.WithTimeout(t.ctx, e.tryTimeout)
	defer cancel()
	base := t.lastLease()
	for {
		sent := e.now()
		lease, err := e.client.update(ctx, renewed(base, e.cfg.LeaseDuration, sent.wall))
		if err == nil {
			if lost := e.lossBy(t, lease); lost != nil { // an admission webhook, say
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
				if lost := e.lossBy(t, current); lost != nil {
					t.cancel(lost)
					return
				}
				base = current
				continue // bounded by ctx and by the elector's rate limiter
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

// lossBy returns the loss of the tenure that a Lease shows: nil if the Lease is the tenure's.
func (e *Elector) lossBy(t *tenure, lease *coordinationv1.Lease) error {
	switch {
	case t.token.names(lease):
		return nil
	case lease == nil || lease.UID != t.token.LeaseUID:
		return &LostError{Reason: ReasonDeleted, Lease: e.String()}
	default:
		return &LostError{Reason: ReasonHolder, Lease: e.String(), Holder: kube.Brief(value(lease.Spec.HolderIdentity))}
	}
}
