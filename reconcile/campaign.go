package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"k8s.io/klog/v2"
)

// Elector lets one of several processes lead; *leaderelection.Elector is one. Run waits until this process leads, calls
// lead with a context that ends when it does no longer, waits for lead to return, and returns. It gives up what it
// holds for this process only then, and not at all if lead returns an error that wraps [ErrStuck]: some reconcile goes
// on.
//
// An Elector may have more methods, as *leaderelection.Elector does. With SetHandover(word string) and Handover() (word
// string, waited bool) it can hand over: what a leader leaves before lead returns is what the next one finds, and
// workers start when the caches have seen what the last leader wrote; waited says, where no word was left, that nobody
// has led for as long as a crashed leader is waited for. With Ready() error it says why this process could not lead,
// and /readyz says so, too.
type Elector interface {
	Run(ctx context.Context, lead func(ctx context.Context) error) error
}

// campaign leads, again and again, until ctx ends.
//
// The elector must not learn of the end of ctx while this process leads: the lease is to be kept for as long as
// reconciles are draining. It is given up by act's return.
func (m *Manager) campaign(ctx context.Context) error {
	if m.opts.Elector == nil {
		if ctx.Err() != nil {
			return nil
		}
		return m.runWorkers(ctx, context.WithoutCancel(ctx))
	}
	log := klog.FromContext(ctx)
	for ctx.Err() == nil {
		electing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
		standby := context.AfterFunc(ctx, giveUp)
		var work tenure
		err := m.opts.Elector.Run(electing, func(tenure context.Context) error {
			return work.run(func() error {
				if standby() {
					return m.runWorkers(ctx, tenure)
				}
				if h, ok := m.opts.Elector.(handoverElector); ok { // ctx ended just before
					passHandoverOn(h)
				}
				return nil
			})
		})
		giveUp()
		led, stuck := work.result()
		switch {
		case stuck != nil && !errors.Is(err, ErrStuck):
			return errors.Join(err, stuck)
		case errors.Is(err, ErrStuck), err != nil && !led:
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

// leading is one call of the function that an Elector calls to lead. What has become of it the Manager knows by itself:
// whatever the Elector makes of it, nobody campaigns again beside work that goes on.
type tenure struct {
	mu           sync.Mutex
	began, ended bool  // guarded by mu
	err          error // guarded by mu
}

func (l *tenure) run(lead func() error) (err error) {
	l.mu.Lock()
	l.began = true
	l.mu.Unlock()
	// A log sink, or an elector's hand-over, may panic or end the goroutine. Then nobody can tell whether workers go
	// on.
	if failed := lifecycle.Apart(func() { err = lead() }); failed != nil {
		err = fmt.Errorf("the workers %w, as far as can be told: %w", ErrStuck, failed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended, l.err = true, err
	return err
}

// result reports whether the call was made, and an error that wraps ErrStuck if some of its work goes on.
func (l *tenure) result() (led bool, stuck error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.began && !l.ended:
		return true, fmt.Errorf("the workers %w: the Elector has returned before them", ErrStuck)
	case errors.Is(l.err, ErrStuck):
		return true, l.err
	}
	return l.began, nil
}

// act runs the workers of all controllers until ctx or tenure ends and they have returned. When it was ctx, calls that
// are under way may go on for DrainTimeout.
func (m *Manager) runWorkers(ctx, tenure context.Context) error {
	acting, stopActing := context.WithCancel(tenure)
	defer stopActing()
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	defer context.AfterFunc(tenure, stopTaking)()

	if h, ok := m.opts.Elector.(handoverElector); ok {
		rest, ok := m.awaitHandover(taking, h)
		if !ok {
			passHandoverOn(h)
			return nil
		}
		defer func() { h.SetHandover(m.handoverText(rest)) }()
	}
	var workers lifecycle.Group
	for _, c := range m.opts.Controllers {
		c.start(taking, acting, &workers)
	}
	<-taking.Done()
	drain := time.NewTimer(m.opts.DrainTimeout)
	defer drain.Stop()
	select {
	case <-workers.Done():
	case <-tenure.Done():
	case <-drain.C:
	}
	stopActing()
	return workers.Wait(m.opts.StopGrace)
}
