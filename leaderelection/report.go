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

// Metrics is told what happens as it happens. Its methods are called from the goroutines that campaign and renew, with
// no lock held, so they have to return soon: whoever is slow there makes renewals late, and Run, though never a tenure
// longer.
type Metrics interface {
	// Request is told of every request for the Lease: get, create, update or watch (the opening of it). A Lease that
	// does not exist and an update that came too late are answers, but errors here.
	Request(verb string, took time.Duration, err error)
	// Tenure is told when a tenure begins, with true, and when everything about it has ended, with false. lost is why,
	// if it was lost.
	Tenure(leading bool, token Token, lost *LostError)
}

// Stats is what an elector has done since it was made, in numbers: the same as [Metrics], for a collector that asks.
type Stats struct {
	Leading         bool
	Remaining       time.Duration // until the present tenure ends, if no further renewal is acknowledged
	Requests        uint64        // all of them, answered or not
	Tenures         uint64        // how often the Lease was taken
	Losses          uint64        // how many tenures were lost
	Releases        uint64        // how many were released
	Renewals        uint64        // acknowledged
	RenewalFailures uint64        // tries that were not
	LostRaces       uint64        // takes that came too late: somebody else was faster
	OddDurations    uint64        // records seen whose duration is not obeyed: zero, or above MaxLeaseDuration
}

// Stats returns a snapshot.
func (e *Elector) Stats() Stats {
	e.stats.mu.Lock()
	s := e.stats.now
	e.stats.mu.Unlock()
	if t := e.tenure.Load(); t != nil && t.ctx.Err() == nil {
		if left := t.remaining(t.now()); left > 0 {
			s.Leading, s.Remaining = true, left
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

// Name and Check make an Elector a health check as the API server's libraries know them; the method value Check alone
// is one of controller-runtime's. Name returns "leaderelection".
func (e *Elector) Name() string { return "leaderelection" }

// Check fails when the lead function still runs although its tenure, and the time that it had to stop, are over, or
// when it has returned an error that wraps [ErrStuck]: the process has to be restarted. A candidate that does not lead,
// or cannot reach the server, is healthy; a restart would not help it.
func (e *Elector) Check(*http.Request) error {
	t := e.tenure.Load()
	if e.unfinished.Load() || e.working.Load() && (e.stuck.Load() || t != nil && t.remaining(t.now()) < -e.cfg.StopGrace) {
		return fmt.Errorf("leaderelection: %s: the work of the lead function %w: it goes on without the lease", e,
			ErrStuck)
	}
	return nil
}

// Ready returns nil if this candidate leads, or could if the Lease were free: it has seen how the Lease is, and the API
// server lets it write it, as far as the server has said. The error says what is missing, and wraps a *[DeniedError]
// while access is refused. What was refused is asked for again within two RetryPeriods. A process that can never lead
// must not replace one that does.
func (e *Elector) Ready() error {
	if refusal := e.failures.refused(); refusal.err != nil {
		return refusal.err
	}
	if t := e.tenure.Load(); t != nil {
		return nil
	}
	if o := e.view.get(); o.known && e.mayWrite.Load() {
		return nil
	}
	err := fmt.Errorf("leaderelection: %s: it is not known yet whether this candidate may lead", e)
	if trouble := e.failures.any(); trouble.err != nil {
		return fmt.Errorf("%w: %w", err, trouble.err)
	}
	return err
}

// request is the end of every request that the client makes.
func (e *Elector) request(verb string, took time.Duration, err error) {
	e.stats.count(func(s *Stats) { s.Requests++ })
	if e.cfg.Metrics != nil {
		guard(klog.Background(), func() { e.cfg.Metrics.Request(verb, took, err) })
	}
}

// began tells everybody that a tenure begins.
func (e *Elector) began(ctx context.Context, t *tenure) {
	e.stats.count(func(s *Stats) { s.Tenures++ })
	klog.FromContext(ctx).Info("Leading", "lease", e.String(), "identity", e.identity, "transitions",
		t.token.Transitions)
	if e.cfg.Metrics != nil {
		guard(klog.FromContext(ctx), func() { e.cfg.Metrics.Tenure(true, t.token, nil) })
	}
	e.event(ctx, t, corev1.EventTypeNormal, e.identity+" became leader")
}

// finished tells everybody that a tenure is over.
func (e *Elector) finished(ctx context.Context, t *tenure, lost *LostError) {
	klog.FromContext(ctx).Info("Stopped leading", "lease", e.String(), "identity", e.identity)
	if e.cfg.Metrics != nil {
		guard(klog.FromContext(ctx), func() { e.cfg.Metrics.Tenure(false, t.token, lost) })
	}
	if lost != nil {
		e.event(ctx, t, corev1.EventTypeWarning, e.identity+" lost the lease: "+string(lost.Reason))
		return
	}
	e.event(ctx, t, corev1.EventTypeNormal, e.identity+" stopped leading")
}

func (e *Elector) event(ctx context.Context, t *tenure, eventType, message string) {
	if e.cfg.Events == nil {
		return
	}
	lease, _ := t.last()
	about := &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID,
			ResourceVersion: lease.ResourceVersion},
	}
	guard(klog.FromContext(ctx), func() { e.cfg.Events.Eventf(about, eventType, "LeaderElection", "%s", message) })
}

// guard calls a hook of the user's. Its panic must not end a tenure, let alone the process.
func guard(logger klog.Logger, hook func()) {
	if err := lifecycle.Apart(hook); err != nil {
		logger.Error(err, "A hook of the elector panicked, or ended its goroutine")
	}
}

// troubles remembers what fails at present, by what was tried, so that a failure is logged when it begins and when it
// ends and not each time between, and so that Run can say why it never led.
type failures struct {
	mu  sync.Mutex
	now map[string]trouble // guarded by mu; an entry is there while the last try of its kind failed
}

type trouble struct {
	err   error
	since time.Time
}

func (t trouble) lasts(now time.Time) time.Duration {
	if t.err == nil {
		return 0
	}
	return now.Sub(t.since)
}

func (t trouble) denied() bool {
	var denied *DeniedError
	return errors.As(t.err, &denied)
}

// note notes the outcome of a try. One that we cut short ourselves says nothing.
func (e *Elector) note(ctx context.Context, what string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	e.failures.mu.Lock()
	last, failing := e.failures.now[what]
	next := trouble{err: err, since: time.Now()}
	news := failing != (err != nil) || failing && last.denied() != next.denied()
	if !news {
		next.since = last.since
	}
	if err == nil {
		delete(e.failures.now, what)
	} else {
		if e.failures.now == nil {
			e.failures.now = map[string]trouble{}
		}
		e.failures.now[what] = next
	}
	e.failures.mu.Unlock()

	logger := klog.FromContext(ctx)
	switch {
	case !news && err != nil:
		logger.V(2).Info("Still failing", "what", what, "lease", e.String(), "err", err)
	case !news:
	case err == nil:
		logger.Info("Works again", "what", what, "lease", e.String(), "after", next.since.Sub(last.since))
	case what == "watch" && next.denied():
		logger.Info("May not watch the lease, so it is polled; hand-over takes longer", "lease", e.String(), "period",
			e.cfg.RetryPeriod, "err", err)
	case next.denied():
		logger.Info("Access to the lease is denied; trying on", "what", what, "err", err)
	default:
		logger.Info("Failing", "what", what, "lease", e.String(), "err", err)
	}
}

// forget is for a new campaign: what an earlier one was refused may have been granted since.
func (f *failures) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.now)
}

// denied returns the longest lasting trouble that is a refusal and keeps a candidate from leading. A forbidden watch
// does not.
func (f *failures) denied() trouble { return f.worst(trouble.denied, "look", "take") }

// refused is the same, for a leader, too.
func (f *failures) refused() trouble { return f.worst(trouble.denied, "look", "take", "renew") }

func (f *failures) any() trouble {
	return f.worst(func(trouble) bool { return true }, "look", "take")
}

func (f *failures) worst(counts func(trouble) bool, whats ...string) (worst trouble) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, what := range whats {
		if now, failing := f.now[what]; failing && counts(now) && (worst.err == nil || now.since.Before(worst.since)) {
			worst = now
		}
	}
	return worst
}
