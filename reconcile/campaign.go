package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Elector lets one of several processes lead; *leaderelection.Elector is one. Run waits until this process leads,
// calls lead with a context that ends when the process no longer leads, waits for lead to return, releases the Lease,
// and returns. It does not release the Lease if lead returns an error that wraps [ErrStuck]: some reconcile goes on.
//
// An Elector may have more methods, as *leaderelection.Elector does. With SetHandover(text string) and Handover()
// (text string, waited bool) one leader hands over to the next: Handover returns what the last leader has given to
// SetHandover before its lead returned, and workers start when the caches have seen what that leader wrote. If text is
// empty, waited says that there was no leader for as long as an elector waits for a crashed one. Without these two
// methods, as in a wrapper that does not pass them on, all caches are listed anew at the beginning of each tenure. With
// Ready() error the Elector says why this process could not lead, and /readyz reports it. With Check(*http.Request)
// error it says why the process has to be restarted, and /healthz reports that.
//
// With *sharding.Shards every process leads, each some of the keys: see package sharding. A wrapper of them has to have
// all of their methods, as one that embeds the *sharding.Shards does: with another one Run returns an error.
type Elector interface {
	Run(ctx context.Context, lead func(ctx context.Context) error) error
}

// errHidden ends a Manager that does not see the slices of its Shards, for the Elector around them passes on Run alone.
// Each process would be called to lead, and would reconcile all keys.
var errHidden = errors.New("the Elector is a wrapper of Shards that hides which slices they lead")

// campaign leads, again and again, until ctx ends.
//
// The elector's context does not end with ctx while this process leads: the Lease must be kept while reconciles drain.
// The elector releases it when runWorkers returns.
func (m *Manager) campaign(ctx context.Context) error {
	if m.opts.Elector == nil {
		if ctx.Err() != nil {
			return nil
		}
		return m.runWorkers(ctx, context.WithoutCancel(ctx))
	}
	log := klog.FromContext(ctx)
	for ctx.Err() == nil {
		m.progress.enter(status.StageCampaigning)
		electing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
		standby := context.AfterFunc(ctx, giveUp)
		var work tenure
		err := m.opts.Elector.Run(electing, func(tenure context.Context) error {
			return work.run(func() error {
				if m.shards == nil && lifecycle.IsShared(tenure) {
					return fmt.Errorf("%w: it is a %T. Give the Manager the *sharding.Shards itself, or embed that, "+
						"and not an Elector, in the wrapper", errHidden, m.opts.Elector)
				}
				if standby() {
					return m.runWorkers(ctx, tenure)
				}
				passHandoverOn(m.handover()) // ctx ended just before
				return nil
			})
		})
		giveUp()
		led, failed := work.result()
		switch {
		case failed != nil && !errors.Is(err, ErrStuck) && !errors.Is(err, errHidden):
			return errors.Join(err, failed)
		case failed != nil, errors.Is(err, ErrStuck), err != nil && !led:
			return err
		case ctx.Err() != nil:
		case !led:
			return errors.New("the Elector has returned without an error, and without having led")
		default:
			log.Info("No longer leading; campaigning again", "reason", err)
		}
	}
	return nil
}

// tenure is one call of the function that an Elector calls to lead. The Manager records its outcome itself: whatever
// the Elector returns, the Manager does not campaign again while work goes on.
type tenure struct {
	mu sync.Mutex
	// Guarded by mu.
	began, ended bool
	err          error
}

func (l *tenure) run(lead func() error) (err error) {
	l.mu.Lock()
	l.began = true
	l.mu.Unlock()
	err = lead()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended, l.err = true, err
	return err
}

// result reports whether the call was made, and an error that wraps ErrStuck if some of its work goes on, or errHidden
// if it has not begun.
func (l *tenure) result() (led bool, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.began && !l.ended:
		return true, fmt.Errorf("the workers %w: the Elector has returned before them", ErrStuck)
	case errors.Is(l.err, ErrStuck), errors.Is(l.err, errHidden):
		return true, l.err
	}
	return l.began, nil
}

// handover returns the part of the Elector that hands over.
func (m *Manager) handover() handoverElector {
	if h, ok := m.opts.Elector.(handoverElector); ok {
		return h
	}
	return noHandover{}
}

// noHandover is for an Elector that knows nothing of the last leader: what that wrote may have just happened.
type noHandover struct{}

func (noHandover) SetHandover(string)       {}
func (noHandover) Handover() (string, bool) { return "", false }

// runWorkers runs the workers of all controllers until ctx or tenure ends and they have returned. If it is ctx, calls
// that are under way may go on for DrainTimeout.
func (m *Manager) runWorkers(ctx, tenure context.Context) error {
	runCtx, stopRuns := context.WithCancel(tenure)
	defer stopRuns()
	takeCtx, stopIntake := context.WithCancel(share{m}.intake(ctx))
	defer stopIntake()
	defer context.AfterFunc(tenure, stopIntake)()

	m.progress.enter(status.StageHandover)
	if m.opts.Elector != nil && m.shards == nil {
		h := m.handover()
		inherited := time.Now()
		rest, ok := m.awaitHandover(takeCtx, h)
		if !ok {
			passHandoverOn(h)
			return nil
		}
		defer func() {
			if time.Since(inherited) > debts.LeftFor {
				rest = nil
			}
			h.SetHandover(m.handoverText(rest))
		}()
	}
	m.progress.enter(status.StageWorking)
	var workers lifecycle.Group
	for _, c := range m.opts.Controllers {
		c.start(takeCtx, runCtx, &workers)
	}
	share{m}.follow(takeCtx, &workers)
	// Their context has the tenure's values, for its fence, and ends when no more keys are taken.
	lead, stopLeading := context.WithCancel(runCtx)
	defer stopLeading()
	defer context.AfterFunc(takeCtx, stopLeading)()
	whileLeading := m.startRunnables(withWriter(lead, m.ledgers), m.opts.WhileLeading, &workers)
	select {
	case <-ctx.Done():
	case <-tenure.Done():
	}
	drain := time.NewTimer(m.opts.DrainTimeout)
	defer drain.Stop()
	share{m}.leave(ctx, tenure)
	m.progress.enter(status.StageStopping)
	stopIntake()
	select {
	case <-workers.Done():
	case <-tenure.Done():
	case <-drain.C:
	}
	stopRuns()
	return errors.Join(workers.Wait(m.opts.StopGrace), whileLeading.stuck())
}

// withWriter returns the ctx of ManagerOptions.WhileLeading. No key waits for what these functions write. It is in the
// handover. They have no history: a run that has ended keeps nothing.
func withWriter(ctx context.Context, all debts.Ledgers) context.Context {
	none := &keys.Run{}
	none.Returned()
	return context.WithValue(ctx, writes.WriterKey{}, &writes.Writer{History: none, Debtor: all.Debtor()})
}
