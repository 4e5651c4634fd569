package leaderelection

import (
	"context"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/internal/kube"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
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

// hold leads: it runs lead and the renewals, and ends the tenure when one of four things happens, whichever is first.
func (e *Elector) hold(ctx context.Context, t *tenure, lead func(context.Context) error) error {
	e.tenure.Store(t)
	e.view.forgetHandover()
	var renewals sync.WaitGroup
	renewals.Go(func() { // the hooks that are told, too, may make renewals late, but not the deadline
		e.began(ctx, t)
		e.renew(t)
	})
	work, stopWork := context.WithCancelCause(t.ctx)
	returned := e.start(work, lead)

	asked, over := ctx.Done(), t.ctx.Done()
	var tooLate <-chan time.Time
	deadline := time.NewTimer(0)
	for {
		if over != nil {
			deadline.Reset(min(t.remaining(t.now()), clockCheck))
		}
		var result outcome
		select {
		case result = <-returned: // 1. the work is done, or as much of it as can be stopped

		case <-asked: // 2. we are asked to end: the tenure goes on, until the work has ended
			stopWork(context.Cause(ctx))
			if asked = nil; over != nil { // a tenure that is lost has its own, shorter, time
				tooLate = time.After(e.cfg.DrainTimeout)
			}
			continue

		case <-deadline.C: // 3. nobody acknowledged a renewal in time
			if over, reason, err := t.expired(t.now()); over {
				t.cancel(&LostError{Reason: reason, Lease: e.String(), Err: err})
			}
			continue

		case <-over: // 4. lost, by its deadline or to somebody else
			klog.FromContext(ctx).Info("Lost the lease", "lease", e.String(), "cause", context.Cause(t.ctx))
			deadline.Stop()
			over, tooLate = nil, time.After(e.cfg.StopGrace)
			continue

		case <-tooLate:
			e.stuck.Store(true)
			result = outcome{err: e.overdue(over == nil), stuck: true}
		}
		deadline.Stop()
		t.cancel(errReturned)
		stopWork(nil)
		renewals.Wait()
		e.tenure.Store(nil)
		return e.ended(ctx, t, result)
	}
}
