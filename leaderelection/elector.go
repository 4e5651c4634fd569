package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// An Elector is one candidate for one Lease. It is made by [New]; its zero value is not useful. [Elector.Run] campaigns
// and leads, once per call and in one call at a time; every other method may be called at any time, from any goroutine.
type Elector struct {
	// Set by New, never changed.
	cfg        Config // with its defaults
	identity   string
	tryTimeout time.Duration // of one request
	client     *client
	wall       func() time.Time // time.Now, or what a test of clock jumps sets
	random     func() float64   // rand.Float64, or what a repeatable test sets

	// Each has a lock of its own.
	view     *view
	stats    counters
	failures failures

	// Atomic. Those about the lead function may be set after Run has returned: the function may outlive it.
	running    atomic.Bool            // a call of Run has not returned
	working    atomic.Bool            // the lead function has not returned
	stuck      atomic.Bool            // Run has returned without waiting for the lead function any longer
	unfinished atomic.Bool            // a lead function returned while some of its work goes on; never reset
	mayWrite   atomic.Bool            // the server's last answer to a write, or to a dry run, was not Forbidden
	tenure     atomic.Pointer[tenure] // of the lead function that Run waits for; nil at all other times
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
	e := &Elector{
		cfg:      cfg,
		identity: identity,
		view:     newView(),
		wall:     time.Now,
		random:   rand.Float64,
		// When the first renewal times out, a second one of the same length still fits before the deadline.
		tryTimeout: min(cfg.RetryPeriod+time.Second, (cfg.RenewDeadline-cfg.RetryPeriod)/2),
	}
	e.client, err = newClient(cfg, func() { e.stats.count(func(s *Stats) { s.Requests++ }) })
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Run campaigns for the Lease until it is acquired, calls lead, and renews the Lease while lead runs. It returns when
// lead has returned and everything that Run started has ended. The context that lead gets ends
//
//   - when ctx ends. Renewals go on until lead has returned, or for DrainTimeout.
//   - when the tenure is lost: its deadline passed, or the Lease names another holder. The cause is a *[LostError]
//     then, and lead has StopGrace to return.
//
// When lead has returned, Run releases the Lease if it is still this tenure's. It does not release it if lead returned
// an error that wraps [ErrStuck]: then some of the work goes on. Run returns
//
//   - what lead returned, when lead returned of its own accord or because ctx ended; [context.Canceled] becomes nil
//     then. A panic of lead is an error, too.
//   - an error that wraps [ErrLost] when the tenure was lost. Call Run again to campaign again; nothing has to be
//     restarted.
//   - an error that wraps [ErrStuck] when lead did not return in time, or returned such an error. Work goes on then, so
//     the process should exit: see [ExitIfStuck]. While lead runs, another Run is refused; if lead has returned such an
//     error, every further Run is.
//   - nil when ctx ended before this candidate led; or, if it could not lead because it was denied or never reached the
//     server, an error that says so.
//   - [ErrRunning] at once if another call of Run has not returned.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if !e.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer e.running.Store(false)
	switch {
	case lead == nil:
		return errors.New("leaderelection: Run: lead is nil")
	case e.unfinished.Load():
		return fmt.Errorf("leaderelection: %s: work of an earlier Run's lead function %w", e, ErrStuck)
	case e.working.Load():
		return fmt.Errorf("leaderelection: %s: the lead function of an earlier Run %w and still runs", e, ErrStuck)
	}
	e.stuck.Store(false)
	e.failures.clear()
	e.mayWrite.Store(false)

	var observer sync.WaitGroup
	observing, stop := context.WithCancel(context.WithoutCancel(ctx)) // it observes until the lead function has drained
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
func (e *Elector) String() string { return e.cfg.Namespace + "/" + e.cfg.Name }
