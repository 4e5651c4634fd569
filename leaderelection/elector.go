package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// An Elector is one candidate for one Lease. It is made by [New]; its zero value is not useful. [Elector.Run] campaigns and leads, once per
// call and in one call at a time; every other method may be called at any time, from any goroutine.
type Elector struct {
	cfg        Config // with its defaults
	identity   string
	tryTimeout time.Duration // how long one request may take
	client     *client
	view       *view
	stats      counters
	troubles   troubles
	wall       func() time.Time // time.Now; a test of clock jumps has another one
	random     func() float64   // rand.Float64; a test that can be repeated has another one

	running atomic.Bool            // between the beginning and the end of Run
	working atomic.Bool            // between the beginning and the end of the lead function, which may outlive Run
	stuck   atomic.Bool            // the lead function was given up
	word    atomic.Pointer[string] // what the next release leaves; see Leave
	tenure  atomic.Pointer[tenure] // of the lead function that Run is waiting for; nil at all other times
}

// New checks the configuration and makes a candidate of it. It talks to nobody yet.
func New(cfg Config) (*Elector, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	identity, err := cfg.identity()
	if err != nil {
		return nil, err
	}
	e := &Elector{
		cfg:      cfg,
		identity: identity,
		view:     newView(),
		wall:     time.Now,
		random:   rand.Float64,
		// A try that is not answered leaves time for another one before the deadline.
		tryTimeout: min(cfg.RetryPeriod+time.Second, cfg.RenewDeadline/2),
	}
	if e.client, err = newClient(cfg, e.request); err != nil {
		return nil, err
	}
	return e, nil
}

// Run campaigns for the Lease until it is taken, calls lead, and keeps the Lease while lead runs. It returns when lead has returned and
// everything that Run started has ended. The context that lead gets ends
//
//   - when ctx ends. Renewals go on until lead has returned, or for DrainTimeout.
//   - when the tenure is lost: its deadline passed, or the Lease turned out to be somebody else's. Its cause is a *[LostError] then, and
//     lead has StopGrace to return.
//
// Once lead has returned the Lease is released, if it is still this tenure's. Run returns
//
//   - what lead returned, when lead returned of its own accord or because ctx ended ([context.Canceled] becomes nil then). A panic of lead
//     is an error, too.
//   - an error that wraps [ErrLost] when the tenure was lost. Call Run again to campaign again; nothing has to be restarted.
//   - an error that wraps [ErrStuck] when lead did not return in time. It still runs then, so the process should exit: see [ExitIfStuck].
//   - nil when ctx ended before this candidate led, or an error that says why it could not, if it was denied or never reached the server.
//   - [ErrRunning] at once if another call of Run has not returned.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if !e.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer e.running.Store(false)
	if lead == nil {
		return errors.New("leaderelection: Run: lead is nil")
	}
	if e.working.Load() {
		return fmt.Errorf("leaderelection: %s: the lead function of an earlier Run %w and still runs", e, ErrStuck)
	}
	e.stuck.Store(false)
	e.troubles.forget()

	var observer sync.WaitGroup
	observing, stop := context.WithCancel(context.WithoutCancel(ctx)) // a drain outlives ctx, and so does the observer
	observer.Go(func() { e.observe(observing) })
	defer func() {
		stop()
		observer.Wait()
		e.client.lane.close()
	}()

	t, err := e.campaign(ctx)
	if t == nil {
		return err
	}
	return e.hold(ctx, t, lead)
}

// campaign waits for the Lease to become free, or to stand unchanged for long enough, and takes it.
func (e *Elector) campaign(ctx context.Context) (*tenure, error) {
	klog.FromContext(ctx).Info("Campaigning", "lease", e.String(), "identity", e.identity)
	var notBefore time.Time
	for ctx.Err() == nil {
		if refusal := e.troubles.denied(); e.cfg.DeniedTimeout > 0 && refusal.lasts() >= e.cfg.DeniedTimeout {
			return nil, refusal.err
		}
		o, now, pause := e.view.get(), time.Now(), e.cfg.RetryPeriod
		if o.known {
			pause = max(o.takeIn(e.cfg, now), notBefore.Sub(now))
		}
		if pause > 0 {
			idle, cancel := context.WithTimeout(ctx, min(pause, e.cfg.RetryPeriod))
			select {
			case <-o.changed:
			case <-idle.Done():
			}
			cancel()
			continue
		}
		if o.absent() && !o.trusted(e.cfg) {
			e.found(ctx)
		} else if t := e.take(ctx, o); t != nil && t.valid() && ctx.Err() == nil {
			return t, nil // if it is over already, the process was paused, or a hook was slow
		}
		notBefore = time.Now().Add(e.pace())
	}
	return nil, e.neverLed(ctx)
}

// found makes a Lease that nobody holds, where there was none, so that there is a version to wait for.
func (e *Elector) found(ctx context.Context) {
	try, cancel := context.WithTimeout(ctx, e.tryTimeout)
	defer cancel()
	klog.FromContext(ctx).Info("There is no lease: making one, and waiting as long as if it were held, since one may have been deleted under a leader",
		"lease", e.String(), "wait", e.cfg.LeaseDuration)
	lease, err := e.client.create(try, &coordinationv1.Lease{ObjectMeta: e.meta()})
	if apierrors.IsAlreadyExists(err) { // another challenger was faster
		lease, err = e.client.get(try)
	}
	e.note(try, "take", err)
	if err == nil {
		e.see(ctx, lease)
	}
}

func (e *Elector) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: e.cfg.Namespace, Name: e.cfg.Name}
}

// take tries to make the Lease ours, once, provided that it still is what was observed. It is not cut short by the end of ctx: then
// nobody would know whether the server did it.
func (e *Elector) take(ctx context.Context, o observation) *tenure {
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.tryTimeout)
	defer cancel()
	sent := e.stamp()
	claim := claimed(o.lease, e.meta(), e.identity, e.cfg.LeaseDuration, sent.wall)
	e.view.claiming(claim)

	write := e.client.update
	if o.lease == nil {
		write = e.client.create
	}
	lease, err := write(try, claim)
	if err == nil && value(lease.Spec.HolderIdentity) != e.identity {
		err = fmt.Errorf("the server stored another holder than the one it was sent: %q", clip(value(lease.Spec.HolderIdentity)))
	}
	switch {
	case err == nil:
		e.note(ctx, "take", nil)
		e.see(ctx, lease)
		return e.newTenure(ctx, sent, lease)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || o.lease != nil && apierrors.IsNotFound(err):
		e.note(ctx, "take", nil) // somebody else was faster, which is no trouble; the wait starts again with what is there now
		e.stats.count(func(s *Stats) { s.LostTakes++ })
		_, _ = e.look(try)
	default:
		e.note(ctx, "take", err)
	}
	return nil
}

// hold leads: it runs lead and the renewals, and ends the tenure when one of four things happens, whichever is first.
func (e *Elector) hold(ctx context.Context, t *tenure, lead func(context.Context) error) error {
	e.tenure.Store(t)
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
	for stuck := false; ; {
		if over != nil {
			deadline.Reset(min(t.left(t.now()), clockCheck))
		}
		var err error
		select {
		case err = <-returned: // 1. the work is done

		case <-asked: // 2. we are asked to end: the tenure goes on, until the work has ended
			stopWork(context.Cause(ctx))
			if asked = nil; over != nil { // a tenure that is lost has its own, shorter, time
				tooLate = time.After(e.cfg.DrainTimeout)
			}
			continue

		case <-deadline.C: // 3. nobody acknowledged a renewal in time
			if t.left(t.now()) <= 0 {
				reason, err := t.expired()
				t.cancel(&LostError{Reason: reason, Lease: e.String(), Err: err})
			}
			continue

		case <-over: // 4. lost, by its deadline or to somebody else
			klog.FromContext(ctx).Info("Lost the lease", "lease", e.String(), "cause", context.Cause(t.ctx))
			deadline.Stop()
			over, tooLate = nil, time.After(e.cfg.StopGrace)
			continue

		case <-tooLate:
			stuck = true
			e.stuck.Store(true)
		}
		deadline.Stop()
		t.cancel(errReturned)
		stopWork(nil)
		renewals.Wait()
		e.tenure.Store(nil)
		return e.ended(ctx, t, err, stuck)
	}
}

// clockCheck is how often the wall clock is looked at: after a sleep of the machine, timers are late by as long as it slept.
const clockCheck = time.Second

// start runs lead on a goroutine of its own and sends what it returned.
func (e *Elector) start(ctx context.Context, lead func(context.Context) error) <-chan error {
	returned := make(chan error, 1) // so that a lead function that nobody waits for any more can end
	e.working.Store(true)
	go func() {
		err := errors.New("leaderelection: the lead function ended its goroutine")
		defer func() {
			e.working.Store(false)
			returned <- err
		}()
		if p := lifecycle.Try(func() { err = lead(ctx) }); p != nil {
			err = fmt.Errorf("leaderelection: the lead function: %w", p)
			var panicked *lifecycle.PanicError
			errors.As(p, &panicked)
			klog.FromContext(ctx).Error(p, "The lead function panicked", "lease", e.String(), "stack", string(panicked.Stack))
		}
	}()
	return returned
}

// ended is what remains to be done when a tenure is over: release the Lease, unless the work still runs or the Lease is not ours any more,
// and find the words for it.
func (e *Elector) ended(ctx context.Context, t *tenure, workErr error, stuck bool) error {
	var lost *LostError
	if cause := context.Cause(t.ctx); !errors.As(cause, &lost) && ctx.Err() != nil && errors.Is(workErr, context.Canceled) {
		workErr = nil
	}
	if lost != nil {
		e.stats.count(func(s *Stats) { s.Losses++ }) // here, for work that returned at once may have hidden the loss from Run
	}
	defer e.finished(ctx, t, lost)
	if stuck {
		after := e.cfg.DrainTimeout
		if lost != nil {
			after = e.cfg.StopGrace
		}
		return errors.Join(fmt.Errorf("leaderelection: %s: the lead function %w: it had %v; the lease was not released", e, ErrStuck, after), asError(lost))
	}
	if lost == nil || lost.Reason == ReasonDeadline || lost.Reason == ReasonClock {
		lease, _ := t.last()
		e.release(ctx, lease, t.token)
	}
	if lost == nil {
		return workErr
	}
	if workErr == nil || errors.Is(workErr, context.Canceled) || errors.Is(workErr, ErrLost) || errors.Is(workErr, ErrNotLeading) {
		return lost // the work ended because of the loss
	}
	return errors.Join(lost, workErr)
}

// asError keeps a nil *LostError from becoming an error that is not nil.
func asError(lost *LostError) error {
	if lost == nil {
		return nil
	}
	return lost
}

// release gives the Lease up, if it is still the token's. It must not be called while the work of that token runs. It tries for StopGrace
// at most; a Lease that it could not release expires.
func (e *Elector) release(ctx context.Context, lease *coordinationv1.Lease, token Token) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.StopGrace)
	defer cancel()
	word := e.word.Swap(nil)
	for token.names(lease) {
		answer, err := e.client.update(ctx, bequeath(released(lease, e.wall()), word))
		if err == nil {
			e.stats.count(func(s *Stats) { s.Releases++ })
			e.see(ctx, answer)
			return
		}
		klog.FromContext(ctx).V(2).Info("Releasing the lease failed", "lease", e.String(), "err", err)
		if !apierrors.IsConflict(err) && !sleep(ctx, e.cfg.RetryPeriod/10) {
			return
		}
		if current, err := e.look(ctx); err == nil {
			lease = current
		}
	}
}

// neverLed is the end of a campaign that came to nothing because ctx ended. A claim whose answer was lost may have succeeded all the same.
func (e *Elector) neverLed(ctx context.Context) error {
	if o := e.view.get(); o.mine {
		e.release(ctx, o.lease, tokenOf(o.lease))
	} else if e.view.uncertain() {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if lease, err := e.look(brief); err == nil && e.view.get().mine {
			e.release(ctx, lease, tokenOf(lease))
		}
	}
	t := e.troubles.denied()
	if t.err == nil && !e.view.get().known {
		t = e.troubles.any()
	}
	if t.err == nil {
		return nil
	}
	return fmt.Errorf("leaderelection: %s: %w before this candidate could lead: %w", e, context.Cause(ctx), t.err)
}

// IsLeader reports whether the lead function may act at this moment. It is false from the deadline on, whether or not anybody has been told
// yet. Another moment may have come when the caller acts upon the answer: use [Elector.Fence] for writes.
func (e *Elector) IsLeader() bool {
	t := e.tenure.Load()
	return t != nil && t.valid()
}

// Token returns the token of the present tenure, and whether there is one.
func (e *Elector) Token() (Token, bool) {
	t := e.tenure.Load()
	if t == nil || !t.valid() {
		return Token{}, false
	}
	return t.token, true
}

// Identity returns the name under which this candidate holds the Lease.
func (e *Elector) Identity() string { return e.identity }

// String returns namespace/name of the Lease.
func (e *Elector) String() string { return e.cfg.Namespace + "/" + e.cfg.Name }

// Observed is what a candidate last saw of the Lease.
type Observed struct {
	Exists        bool
	Token         Token // Holder is empty if nobody leads
	LeaseDuration time.Duration
	// AcquireTime and RenewTime were written by the holder's wall clock. They are for people to read; no decision is made on them.
	AcquireTime, RenewTime time.Time
	// Unchanged is how long the Lease has not changed, as seen from here.
	Unchanged time.Duration
}

// Observed returns what this candidate last saw of the Lease, and whether it has seen anything yet. It may be out of date.
func (e *Elector) Observed() (Observed, bool) {
	o := e.view.get()
	if o.lease == nil {
		return Observed{Unchanged: time.Since(o.since)}, o.known
	}
	return Observed{
		Exists:        true,
		Token:         tokenOf(o.lease),
		LeaseDuration: time.Duration(value(o.lease.Spec.LeaseDurationSeconds)) * time.Second,
		AcquireTime:   value(o.lease.Spec.AcquireTime).Time,
		RenewTime:     value(o.lease.Spec.RenewTime).Time,
		Unchanged:     time.Since(o.since),
	}, true
}
