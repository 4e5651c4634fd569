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
