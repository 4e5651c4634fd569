package leaderelection

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// Stats is the present state of an elector, and its counters since it was made. Package reconcile/metrics shows it to
// Prometheus.
type Stats struct {
	Leading         bool
	Remaining       time.Duration // until the current tenure ends, if no further renewal is acknowledged
	Requests        uint64        // sent, whether answered or not
	Tenures         uint64        // begun
	Losses          uint64        // tenures that were lost
	Releases        uint64        // tenures whose Lease was released
	Renewals        uint64        // acknowledged
	RenewalFailures uint64        // tries to renew that were not acknowledged
	LostRaces       uint64        // tries to acquire the Lease that came too late: another candidate was faster
	OddDurations    uint64        // records seen whose duration is not obeyed: zero, or above MaxLeaseDuration
}

// Stats returns a snapshot.
func (e *Elector) Stats() Stats {
	e.stats.mu.Lock()
	s := e.stats.now
	e.stats.mu.Unlock()
	if t := e.tenure.Load(); t != nil && t.ctx.Err() == nil {
		if remaining := t.remaining(t.now()); remaining > 0 {
			s.Leading, s.Remaining = true, remaining
		}
	}
	return s
}

// Observed returns what this process has last seen of the Lease: who holds it, empty if it is free, how often the
// holder has changed, and since when the Lease has looked like this, which a renewal changes. known is false until the
// first look, and after a look that found no Lease.
func (e *Elector) Observed() (holder string, transitions int, since time.Time, known bool) {
	o := e.view.get()
	if o.lease == nil {
		return "", 0, o.since, false
	}
	return value(o.lease.Spec.HolderIdentity), int(value(o.lease.Spec.LeaseTransitions)), o.since, true
}

type counters struct {
	mu  sync.Mutex
	now Stats // guarded by mu
}

func (c *counters) count(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.now)
}

// Check is a health check, with the signature of controller-runtime's. It fails when the lead function still runs
// although its tenure and the time to stop are over, and when it has returned an error that wraps [ErrStuck]: the
// process has to be restarted. A candidate that does not lead, or cannot reach the server, is healthy; a restart would
// not help it.
func (e *Elector) Check(*http.Request) error {
	t := e.tenure.Load()
	overdue := e.work.givenUp.Load() || t != nil && t.remaining(t.now()) < -e.cfg.StopGrace
	if e.work.unfinished.Load() || overdue && e.work.running() {
		return fmt.Errorf("leaderelection: %s: the work of the lead function %w: it goes on without the lease", e,
			ErrStuck)
	}
	return nil
}

// Ready returns nil if this candidate leads, or could if the Lease were free: it has read the Lease, and the API
// server's last answer to a write of the Lease, or to a dry run of one, was not Forbidden. The error says what is
// missing, and wraps a *[DeniedError] while access is refused. A refused request is tried again within two
// RetryPeriods. Use it as a readiness check: then a rollout does not replace a process that leads by one that never
// can.
func (e *Elector) Ready() error {
	if refusal := e.failures.refused(); refusal.err != nil {
		return refusal.err
	}
	if e.tenure.Load() != nil || e.view.get().known && e.mayWrite.Load() {
		return nil
	}
	err := fmt.Errorf("leaderelection: %s: it is not known yet whether this candidate may lead", e)
	if f := e.failures.any(); f.err != nil {
		return fmt.Errorf("%w: %w", err, f.err)
	}
	return err
}

func (t *tenure) announceStart(ctx context.Context) {
	t.stats.count(func(s *Stats) { s.Tenures++ })
	klog.FromContext(ctx).Info("Leading", "lease", t.String(), "identity", t.identity, "transitions",
		t.token.Transitions)
	t.event(corev1.EventTypeNormal, t.identity+" became leader")
}

func (t *tenure) announceEnd(ctx context.Context, lost *LostError) {
	klog.FromContext(ctx).Info("Stopped leading", "lease", t.String(), "identity", t.identity)
	if lost != nil {
		t.event(corev1.EventTypeWarning, t.identity+" lost the lease: "+string(lost.Reason))
		return
	}
	t.event(corev1.EventTypeNormal, t.identity+" stopped leading")
}

// event records an event on the Lease.
func (t *tenure) event(eventType, message string) {
	if t.cfg.Events == nil {
		return
	}
	lease := t.lastLease()
	about := &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID,
			ResourceVersion: lease.ResourceVersion},
	}
	t.cfg.Events.Eventf(about, eventType, "LeaderElection", "%s", message)
}
