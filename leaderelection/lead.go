package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/backoff"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

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
			var panicked *lifecycle.PanicError
			errors.As(p, &panicked)
			klog.FromContext(ctx).Error(p, "The lead function panicked", "lease", e.String(), "stack",
				string(panicked.Stack))
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
		if !apierrors.IsConflict(err) && !backoff.Sleep(ctx, e.cfg.RetryPeriod/10) {
			return
		}
		if current, err := e.look(ctx); err == nil {
			lease = current
		}
	}
}
