package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// An Elector is one candidate for one Lease. It is made by [New]; its zero value is not useful. [Elector.Run] campaigns
// and leads, once per call and in one call at a time; every other method may be called at any time, from any goroutine.
type Elector struct {
	*candidate
	running  atomic.Bool // a call of Run has not returned
	campaign campaign    // of that call; what it has received is for a later call, too
	work     work
}

// New checks the configuration and makes a candidate. It sends no request.
func New(cfg Config) (*Elector, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	identity, err := cfg.identity()
	if err != nil {
		return nil, err
	}
	c := &candidate{
		cfg:      cfg,
		identity: identity,
		// When the first renewal times out, a second one of the same length still fits before the deadline.
		tryTimeout: min(cfg.RetryPeriod+time.Second, (cfg.RenewDeadline-cfg.RetryPeriod)/2),
		wall:       time.Now,
		random:     func() float64 { return lifecycle.Random(cfg.Namespace, cfg.Name, cfg.Identity) },
		view:       newView(),
	}
	c.client, err = newClient(cfg, func() { c.stats.count(func(s *Stats) { s.Requests++ }) })
	if err != nil {
		return nil, err
	}
	return &Elector{candidate: c, campaign: campaign{candidate: c}}, nil
}

// Run campaigns for the Lease until it is acquired, calls lead, and renews the Lease while lead runs. It returns when
// lead has returned and everything that Run started has ended. The context that lead gets ends
//
//   - when ctx ends. Renewals go on until lead has returned, or for DrainTimeout.
//   - when the tenure is lost: its deadline passed, or the Lease names another holder (see [Reason] for all cases).
//     The cause is a *[LostError] then, and lead has StopGrace to return.
//
// When lead has returned, Run releases the Lease if it is still this tenure's. It does not release it if lead returned
// an error that wraps [ErrStuck]: then some of the work goes on. Run returns
//
//   - what lead returned, when lead returned of its own accord or because ctx ended; an error that
//     says only that the context was canceled becomes nil then.
//   - an error that wraps [ErrLost] when the tenure was lost. Call Run again to campaign again; nothing has to be
//     restarted.
//   - an error that wraps [ErrStuck] when lead did not return in time, or returned such an error. Work goes on then, so
//     the process should exit: see [ExitIfStuck]. While lead runs, another Run is refused; if lead has returned such an
//     error, every further Run is.
//   - nil when ctx ended before this candidate led; or, if it could not lead because it was denied or never reached the
//     server, an error that says so.
//   - [ErrRunning] at once if another call of Run has not returned.
//
// A panic of lead ends the process, as that of any goroutine does. The Lease is not released then, but expires.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if !e.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer e.running.Store(false)
	if lead == nil {
		return errors.New("leaderelection: Run: lead is nil")
	}
	if err := e.work.mayStart(); err != nil {
		return fmt.Errorf("leaderelection: %s: %w", e, err)
	}
	e.failures.clear()
	e.mayWrite.Store(false)

	var observing sync.WaitGroup
	untilDrained, stop := context.WithCancel(context.WithoutCancel(ctx))
	observing.Go(func() { (&observer{candidate: e.candidate}).run(untilDrained) })
	defer func() {
		stop()
		observing.Wait()
		e.client.transport.Close()
	}()

	t, err := e.campaign.run(ctx)
	if t == nil {
		return err
	}
	return e.hold(ctx, t, lead)
}

// hold leads: it runs lead and the renewals until the work has ended or has had its time, and ends the tenure.
func (e *Elector) hold(ctx context.Context, t *tenure, lead func(context.Context) error) error {
	e.tenure.Store(t)
	e.campaign.received = handover{}
	var renewing sync.WaitGroup
	renewing.Go(func() { // a slow EventRecorder makes the first renewal late, but not the deadline
		t.announceStart(ctx)
		t.renew()
	})
	working, stopWork := context.WithCancelCause(t.ctx)
	result := t.await(ctx, &e.work, e.work.start(working, lead), stopWork)
	t.cancel(errReturned)
	stopWork(nil)
	renewing.Wait()
	e.tenure.Store(nil)
	return t.end(ctx, result)
}

// IsLeader reports whether the lead function may act at this moment. It is false from the deadline on, even before the
// lead function's context has ended. The tenure may end before the caller acts upon the answer: use [Elector.Fence] for
// writes.
func (e *Elector) IsLeader() bool {
	t := e.tenure.Load()
	return t != nil && t.valid()
}

// Token returns the token of the current tenure, and whether there is one.
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
func (e *Elector) String() string { return e.candidate.String() }
