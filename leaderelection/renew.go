package leaderelection

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/thermostat-go/thermostat/internal/kube"
)

// renew renews the Lease until the tenure ends: every RetryPeriod, counted from when the last try was sent, and at once
// when the view changes to a Lease that is not the tenure's. The leader does not believe that one, since the event may
// be out of date: the answer to the renewal decides.
func (t *tenure) renew() {
	seen, wait := t.view.get(), t.cfg.RetryPeriod
	if !t.token.names(seen.lease) {
		wait = 0
	}
	due := time.NewTimer(wait)
	defer due.Stop()
	for {
		select {
		case <-due.C:
		case <-seen.changed:
			if seen = t.view.get(); t.token.names(seen.lease) {
				continue
			}
		case <-t.ctx.Done():
		}
		if t.ctx.Err() != nil {
			return
		}
		sent := time.Now()
		t.tryRenew()
		due.Reset(time.Until(sent.Add(t.cfg.RetryPeriod)))
	}
}

// tryRenew is one try. If the server has carried out an earlier one whose answer was lost, it answers with a conflict,
// and a read tells whether the Lease is still this tenure's.
func (t *tenure) tryRenew() {
	ctx, cancel := context.WithTimeout(t.ctx, t.tryTimeout)
	defer cancel()
	base := t.lastLease()
	for {
		sent := t.now()
		lease, err := t.client.update(ctx, renewed(base, t.cfg.LeaseDuration, sent.Wall))
		if err == nil {
			if lost := t.lossBy(lease); lost != nil { // an admission webhook, say
				t.cancel(lost)
				return
			}
			t.extend(sent, lease)
			t.note(ctx, "renew", nil)
			t.see(ctx, lease, "")
			t.stats.count(func(s *Stats) { s.Renewals++ })
			return
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			var current *coordinationv1.Lease
			if current, err = t.client.get(ctx); err == nil {
				t.see(ctx, current, "")
				if lost := t.lossBy(current); lost != nil {
					t.cancel(lost)
					return
				}
				base = current
				continue // bounded by ctx and by the elector's rate limiter
			}
		}
		if t.ctx.Err() == nil {
			t.stats.count(func(s *Stats) { s.RenewalFailures++ })
			t.note(ctx, "renew", err)
		}
		return
	}
}

// lossBy returns the loss of the tenure that a Lease shows: nil if the Lease is the tenure's.
func (t *tenure) lossBy(lease *coordinationv1.Lease) error {
	switch {
	case t.token.names(lease):
		return nil
	case lease == nil || lease.UID != t.token.LeaseUID:
		return &LostError{Reason: ReasonDeleted, Lease: t.String()}
	default:
		return &LostError{Reason: ReasonHolder, Lease: t.String(), Holder: kube.Brief(value(lease.Spec.HolderIdentity))}
	}
}
