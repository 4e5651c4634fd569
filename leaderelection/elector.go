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

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// An Elector is one candidate for one Lease. It is made by [New]; its zero value is not useful. [Elector.Run] campaigns
// and leads, once per call and in one call at a time; every other method may be called at any time, from any goroutine.
type Elector struct {
	cfg        Config // with its defaults
	identity   string
	tryTimeout time.Duration // how long one request may take
	client     *client
	view       *view
	stats      counters
	failures   failures
	wall       func() time.Time // time.Now; a test of clock jumps has another one
	random     func() float64   // rand.Float64; a test that can be repeated has another one

	running    atomic.Bool            // between the beginning and the end of Run
	working    atomic.Bool            // between the beginning and the end of the lead function, which may outlive Run
	stuck      atomic.Bool            // the lead function was given up
	mayWrite   atomic.Bool            // the server's last answer about it was that this candidate may write the Lease
	unfinished atomic.Bool            // a lead function has returned while some of its work goes on
	tenure     atomic.Pointer[tenure] // of the lead function that Run is waiting for; nil at all other times
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
		// A first renewal that is not answered leaves as much time as it took for another one before the deadline.
		tryTimeout: min(cfg.RetryPeriod+time.Second, (cfg.RenewDeadline-cfg.RetryPeriod)/2),
	}
	if e.client, err = newClient(cfg, e.request); err != nil {
		return nil, err
	}
	return e, nil
}

// Run campaigns for the Lease until it is taken, calls lead, and keeps the Lease while lead runs. It returns when lead
// has returned and everything that Run started has ended. The context that lead gets ends
//
//   - when ctx ends. Renewals go on until lead has returned, or for DrainTimeout.
//   - when the tenure is lost: its deadline passed, or the Lease turned out to be somebody else's. Its cause is a
//     *[LostError] then, and lead has StopGrace to return.
//
// Once lead has returned the Lease is released, if it is still this tenure's, but not if lead returned an error that
// wraps [ErrStuck]: then some of what it started goes on. Run returns
//
//   - what lead returned, when lead returned of its own accord or because ctx ended ([context.Canceled] becomes nil
//     then). A panic of lead is an error, too.
//   - an error that wraps [ErrLost] when the tenure was lost. Call Run again to campaign again; nothing has to be
//     restarted.
//   - an error that wraps [ErrStuck] when lead did not return in time, or returned one. Work goes on then, so the
//     process should exit: see [ExitIfStuck]. Another Run is refused while lead runs, and for good if it has returned.
//   - nil when ctx ended before this candidate led, or an error that says why it could not, if it was denied or never
//     reached the server.
//   - [ErrRunning] at once if another call of Run has not returned.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if !e.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer e.running.Store(false)
	if lead == nil {
		return errors.New("leaderelection: Run: lead is nil")
	}
	if e.unfinished.Load() {
		return fmt.Errorf("leaderelection: %s: work of an earlier Run's lead function %w", e, ErrStuck)
	}
	if e.working.Load() {
		return fmt.Errorf("leaderelection: %s: the lead function of an earlier Run %w and still runs", e, ErrStuck)
	}
	e.stuck.Store(false)
	e.failures.forget()
	e.mayWrite.Store(false)

	var observer sync.WaitGroup
	observing, stop := context.WithCancel(context.WithoutCancel(ctx)) // a drain outlives ctx, and so does the observer
	observer.Go(func() { e.observe(observing) })
	defer func() {
		stop()
		observer.Wait()
		e.client.transport.close()
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
	var notBefore, askAgain time.Time
	for ctx.Err() == nil {
		o, now, pause := e.view.get(), time.Now(), e.cfg.RetryPeriod
		if refusal := e.failures.denied(); e.cfg.DeniedTimeout > 0 && refusal.lasts(now) >= e.cfg.DeniedTimeout {
			return nil, refusal.err
		}
		if o.known {
			pause = max(o.acquireIn(e.cfg, now), notBefore.Sub(now))
		}
		if pause > 0 {
			if o.lease != nil && o.wait(e.cfg) > 0 && !e.mayWrite.Load() && !now.Before(askAgain) {
				askAgain = now.Add(e.pace())
				e.checkPermission(ctx, o.lease)
			}
			idle, cancel := context.WithTimeout(ctx, min(pause, e.cfg.RetryPeriod))
			select {
			case <-o.changed:
			case <-idle.Done():
			}
			cancel()
			continue
		}
		if o.absent() && !o.trusted(e.cfg) {
			e.createFree(ctx, o)
		} else if t := e.acquire(ctx, o); t != nil && t.valid() && ctx.Err() == nil {
			return t, nil // if it is over already, the process was paused, or a hook was slow
		}
		notBefore = time.Now().Add(e.pace())
	}
	return nil, e.neverLed(ctx)
}

// found makes a Lease that nobody holds, where there was none, so that there is a version to wait for. It says how long
// to wait, if that is known of the Leases before, for those who have not seen them.
func (e *Elector) createFree(ctx context.Context, o observation) {
	try, cancel := context.WithTimeout(ctx, e.tryTimeout)
	defer cancel()
	klog.FromContext(ctx).Info("There is no lease: making one, and waiting as long as if it were held, since one "+
		"may have been deleted under a leader",
		"lease", e.String(), "wait", o.fullWait(e.cfg))
	free := &coordinationv1.Lease{ObjectMeta: e.meta()}
	if o.longest > 0 {
		free.Spec.LeaseDurationSeconds = new(int32(o.longest / time.Second))
	}
	lease, err := e.client.create(try, free)
	if apierrors.IsAlreadyExists(err) { // another challenger was faster
		lease, err = e.client.get(try)
	}
	e.note(try, "take", err)
	if err == nil {
		e.see(ctx, lease, "")
	}
}

func (e *Elector) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: e.cfg.Namespace, Name: e.cfg.Name}
}

// take tries to make the Lease ours, once, provided that it still is what was observed. It is not cut short by the end
// of ctx: then nobody would know whether the server did it.
func (e *Elector) acquire(ctx context.Context, o observation) *tenure {
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.tryTimeout)
	defer cancel()
	sent := e.now()
	claim := acquired(o.lease, e.meta(), e.identity, e.cfg.LeaseDuration, sent.wall)
	received := e.view.attempting(claim, o, e.cfg)

	write := e.client.update
	if o.lease == nil {
		write = e.client.create
	}
	lease, err := write(try, claim)
	if err == nil && value(lease.Spec.HolderIdentity) != e.identity {
		err = fmt.Errorf("the server stored another holder than the one it was sent: %q",
			kube.Brief(value(lease.Spec.HolderIdentity)))
	}
	switch {
	case err == nil:
		e.noteWrite(ctx, nil)
		e.see(ctx, lease, "")
		return e.newTenure(ctx, sent, lease, received)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || o.lease != nil && apierrors.IsNotFound(err):
		// somebody else was faster, which is no trouble; the wait starts again with what is there now
		e.noteWrite(ctx, err)
		e.stats.count(func(s *Stats) { s.LostRaces++ })
		_, _ = e.look(try)
	default:
		e.noteWrite(ctx, err)
	}
	return nil
}

// checkPermission asks the server whether this candidate may write the Lease, by a dry run, while there is no other reason to
// try. A standby that may not is not ready, and must not find out when it is needed.
func (e *Elector) checkPermission(ctx context.Context, lease *coordinationv1.Lease) {
	try, cancel := context.WithTimeout(ctx, e.cfg.RetryPeriod/2) // the Lease may become free meanwhile
	defer cancel()
	e.noteWrite(try, e.client.dryRun(try, lease))
}

// noteWrite notes the outcome of a try to write the Lease, or of a dry run. An answer that has to do with what the Lease
// is like comes from a server that has let the request pass.
func (e *Elector) noteWrite(ctx context.Context, err error) {
	var denied *DeniedError
	switch {
	case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err),
		apierrors.IsNotFound(err), apierrors.IsBadRequest(err):
		e.mayWrite.Store(true)
		err = nil
	case errors.As(err, &denied):
		e.mayWrite.Store(false)
	}
	e.note(ctx, "take", err)
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

// overdue is the error of a lead function that has not returned in time.
func (e *Elector) overdue(lost bool) error {
	after := e.cfg.DrainTimeout
	if lost {
		after = e.cfg.StopGrace
	}
	return fmt.Errorf("the lead function %w: it had %v", ErrStuck, after)
}

// An outcome is what a lead function has returned, and what that says.
type outcome struct {
	err      error
	canceled bool // it says that its context had ended
	yielded  bool // it says that leading had ended
	stuck    bool // some of its work goes on
}

// judge says what an error of a lead function means. Its methods are the user's, and may panic. Then nobody can tell
// whether work goes on.
func judge(err error) (o outcome) {
	p := lifecycle.Apart(func() {
		canceled := errors.Is(err, context.Canceled)
		o = outcome{
			err:      err,
			canceled: canceled,
			yielded:  canceled || errors.Is(err, ErrLost) || errors.Is(err, ErrNotLeading),
			stuck:    errors.Is(err, ErrStuck),
		}
	})
	if p != nil {
		err := fmt.Errorf("the lead function %w, for all that is known: its error cannot be read: %w", ErrStuck, p)
		return outcome{err: err, stuck: true}
	}
	return o
}

// clockCheck is how often the wall clock is looked at: after a sleep of the machine, timers are late by as long as it
// slept.
const clockCheck = time.Second

// start runs lead on a goroutine of its own and sends what it returned.
func (e *Elector) start(ctx context.Context, lead func(context.Context) error) <-chan outcome {
	returned := make(chan outcome, 1) // so that a lead function that nobody waits for any more can end
	e.working.Store(true)
	go func() {
		err := errors.New("leaderelection: the lead function ended its goroutine")
		defer func() {
			result := judge(err)
			if result.stuck {
				e.unfinished.Store(true)
			}
			e.working.Store(false)
			returned <- result
		}()
		if p := lifecycle.Try(func() { err = lead(ctx) }); p != nil {
			err = fmt.Errorf("leaderelection: the lead function: %w", p)
			klog.FromContext(ctx).Error(p, "The lead function panicked", "lease", e.String(), "stack",
				lifecycle.StackOf(p))
		}
	}()
	return returned
}

// ended is what remains to be done when a tenure is over: release the Lease, unless some of its work still runs or the
// Lease is not ours any more, and find the words for it.
func (e *Elector) ended(ctx context.Context, t *tenure, work outcome) error {
	var lost *LostError
	errors.As(context.Cause(t.ctx), &lost)
	if lost != nil {
		// here, for work that returned at once may have hidden the loss from Run
		e.stats.count(func(s *Stats) { s.Losses++ })
	}
	defer e.finished(ctx, t, lost)
	if work.stuck {
		err := fmt.Errorf("leaderelection: %s: the lease was not released, since work goes on: %w", e, work.err)
		return errors.Join(err, asError(lost))
	}
	if lost == nil || lost.Reason == ReasonDeadline || lost.Reason == ReasonClock {
		lease, _ := t.last()
		e.release(ctx, lease, t.token, t.nextWord())
	}
	switch {
	case lost == nil && ctx.Err() != nil && work.canceled:
		return nil
	case lost == nil:
		return work.err
	case work.err == nil || work.yielded:
		return lost // the work ended because of the loss
	}
	return errors.Join(lost, work.err)
}

// asError keeps a nil *LostError from becoming an error that is not nil.
func asError(lost *LostError) error {
	if lost == nil {
		return nil
	}
	return lost
}

// release gives the Lease up, if it is still the token's, and leaves a word. It must not be called while the work of
// that token runs. It tries for StopGrace at most; a Lease that it could not release expires.
func (e *Elector) release(ctx context.Context, lease *coordinationv1.Lease, token Token, word string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.StopGrace)
	defer cancel()
	for token.names(lease) {
		answer, err := e.client.update(ctx, withHandover(released(lease, e.wall()), token, word))
		if err == nil {
			e.stats.count(func(s *Stats) { s.Releases++ })
			e.see(ctx, answer, "")
			return
		}
		klog.FromContext(ctx).V(2).Info("Releasing the lease failed", "lease", e.String(), "err", err)
		if !apierrors.IsConflict(err) && !lifecycle.Sleep(ctx, e.cfg.RetryPeriod/10) {
			return
		}
		if current, err := e.look(ctx); err == nil {
			lease = current
		}
	}
}

// neverLed is the end of a campaign that came to nothing because ctx ended. A claim whose answer was lost may have
// succeeded all the same. It is released with the word that it was to begin with, for nothing was done since.
func (e *Elector) neverLed(ctx context.Context) error {
	if o := e.view.get(); o.mine {
		e.release(ctx, o.lease, tokenOf(o.lease), e.view.receivedWord())
	} else if e.view.uncertain() {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if lease, err := e.look(brief); err == nil && e.view.get().mine {
			e.release(ctx, lease, tokenOf(lease), e.view.receivedWord())
		}
	}
	t := e.failures.denied()
	if t.err == nil && !e.view.get().known {
		t = e.failures.any()
	}
	if t.err == nil {
		return nil
	}
	return fmt.Errorf("leaderelection: %s: %w before this candidate could lead: %w", e, context.Cause(ctx), t.err)
}

// IsLeader reports whether the lead function may act at this moment. It is false from the deadline on, whether or not
// anybody has been told yet. Another moment may have come when the caller acts upon the answer: use [Elector.Fence] for
// writes.
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
	// AcquireTime and RenewTime were written by the holder's wall clock. They are for people to read; no decision is
	// made on them.
	AcquireTime, RenewTime time.Time
	// Unchanged is how long the Lease has not changed, as seen from here.
	Unchanged time.Duration
}

// Observed returns what this candidate last saw of the Lease, and whether it has seen anything yet. It may be out of
// date.
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
