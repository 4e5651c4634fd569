package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Stats is what an elector does at present, and how often it has done what since it was made. Package reconcile/metrics
// shows it to Prometheus.
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
	overdue := e.stuck.Load() || t != nil && t.remaining(t.now()) < -e.cfg.StopGrace
	if e.unfinished.Load() || e.working.Load() && overdue {
		return fmt.Errorf("leaderelection: %s: the work of the lead function %w: it goes on without the lease", e,
			ErrStuck)
	}
	return nil
}

// Ready returns nil if this candidate leads, or could if the Lease were free: it has read the Lease, and the API server
// lets it write the Lease, as far as the server has said. The error says what is missing, and wraps a *[DeniedError]
// while access is refused. A refused request is tried again within two RetryPeriods. Use it as a readiness check: then
// a rollout does not replace a process that leads by one that never can.
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

func (e *Elector) announceStart(ctx context.Context, t *tenure) {
	e.stats.count(func(s *Stats) { s.Tenures++ })
	klog.FromContext(ctx).Info("Leading", "lease", e.String(), "identity", e.identity, "transitions",
		t.token.Transitions)
	e.event(ctx, t, corev1.EventTypeNormal, e.identity+" became leader")
}

func (e *Elector) announceEnd(ctx context.Context, t *tenure, lost *LostError) {
	klog.FromContext(ctx).Info("Stopped leading", "lease", e.String(), "identity", e.identity)
	if lost != nil {
		e.event(ctx, t, corev1.EventTypeWarning, e.identity+" lost the lease: "+string(lost.Reason))
		return
	}
	e.event(ctx, t, corev1.EventTypeNormal, e.identity+" stopped leading")
}

// event records an event on the Lease. The recorder is user code: its panic must not end a tenure or the process.
func (e *Elector) event(ctx context.Context, t *tenure, eventType, message string) {
	if e.cfg.Events == nil {
		return
	}
	lease := t.lastLease()
	about := &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID,
			ResourceVersion: lease.ResourceVersion},
	}
	err := lifecycle.Apart(func() { e.cfg.Events.Eventf(about, eventType, "LeaderElection", "%s", message) })
	if err != nil {
		klog.FromContext(ctx).Error(err, "The EventRecorder panicked, or ended its goroutine", "lease", e.String())
	}
}

// failures holds what fails at present, by what was tried: "look", "watch", "acquire" and "renew". So a failure is
// logged when it begins and when it ends, not each time between, and Run can say why it never led.
type failures struct {
	mu  sync.Mutex
	now map[string]failure // guarded by mu; an entry is there while the last try of its kind failed
}

type failure struct {
	err   error
	since time.Time
}

func (f failure) age(now time.Time) time.Duration {
	if f.err == nil {
		return 0
	}
	return now.Sub(f.since)
}

func (f failure) denied() bool {
	var denied *DeniedError
	return errors.As(f.err, &denied)
}

// note notes the outcome of a try, and logs it if it is news. A try that this process cut off itself says nothing.
func (e *Elector) note(ctx context.Context, what string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	last, news := e.failures.note(what, err)
	denied := failure{err: err}.denied()
	logger := klog.FromContext(ctx)
	switch {
	case !news && err != nil:
		logger.V(2).Info("Still failing", "what", what, "lease", e.String(), "err", err)
	case !news:
	case err == nil:
		logger.Info("Works again", "what", what, "lease", e.String(), "after", last.age(time.Now()))
	case what == "watch" && denied:
		logger.Info("May not watch the lease, so it is polled; a hand-over takes longer", "lease", e.String(), "period",
			e.cfg.RetryPeriod, "err", err)
	case denied:
		logger.Info("Access to the lease is denied; retrying", "what", what, "err", err)
	default:
		logger.Info("Failing; retrying", "what", what, "lease", e.String(), "err", err)
	}
}

// note returns the last failure of that kind, and whether the outcome is news. A refusal is news after another failure,
// and the other way round.
func (f *failures) note(what string, err error) (last failure, news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, failed := f.now[what]
	if err == nil {
		delete(f.now, what)
		return last, failed
	}
	next := failure{err: err, since: time.Now()}
	if news = !failed || last.denied() != next.denied(); !news {
		next.since = last.since
	}
	if f.now == nil {
		f.now = map[string]failure{}
	}
	f.now[what] = next
	return last, news
}

// clear is for a new campaign: what an earlier one was refused may have been granted since.
func (f *failures) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.now)
}

// denied returns the oldest refusal that keeps a candidate from leading. A refused watch does not.
func (f *failures) denied() failure { return f.oldest(failure.denied, "look", "acquire") }

// refused is denied for a leader, too.
func (f *failures) refused() failure { return f.oldest(failure.denied, "look", "acquire", "renew") }

func (f *failures) any() failure {
	return f.oldest(func(failure) bool { return true }, "look", "acquire")
}

func (f *failures) oldest(counts func(failure) bool, whats ...string) (oldest failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, what := range whats {
		now, failing := f.now[what]
		if failing && counts(now) && (oldest.err == nil || now.since.Before(oldest.since)) {
			oldest = now
		}
	}
	return oldest
}
