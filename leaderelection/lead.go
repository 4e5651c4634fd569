package leaderelection

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// An outcome is the error that a lead function returned, and what the error means.
type outcome struct {
	err      error
	canceled bool // the function's context had ended
	yielded  bool // the function stopped because it had ceased to lead
	stuck    bool // some of its work goes on
}

// start calls lead on a goroutine of its own and sends the outcome.
func (e *Elector) start(ctx context.Context, lead func(context.Context) error) <-chan outcome {
	returned := make(chan outcome, 1) // buffered: Run may have given the function up
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

// judge finds out what a lead function's error means. The error's methods are user code and may panic; then it is
// unknown whether work goes on, and judge takes it that it does.
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
		err := fmt.Errorf("the lead function %w, as far as is known: its error cannot be read: %w", ErrStuck, p)
		return outcome{err: err, stuck: true}
	}
	return o
}

// endTenure releases the Lease, unless some of the work goes on or the Lease is no longer the tenure's, and returns the
// error of Run.
func (e *Elector) endTenure(ctx context.Context, t *tenure, work outcome) error {
	var lost *LostError
	if errors.As(context.Cause(t.ctx), &lost) {
		e.stats.count(func(s *Stats) { s.Losses++ })
	}
	defer e.announceEnd(ctx, t, lost)
	if work.stuck {
		err := fmt.Errorf("leaderelection: %s: the lease was not released, since work goes on: %w", e, work.err)
		if lost != nil {
			err = errors.Join(err, lost)
		}
		return err
	}
	if lost == nil || lost.Reason == ReasonDeadline || lost.Reason == ReasonClock {
		e.release(ctx, t.lastLease(), t.token, t.nextWord())
	}
	switch {
	case lost == nil && ctx.Err() != nil && work.canceled:
		return nil
	case lost == nil:
		return work.err
	case work.err == nil || work.yielded:
		return lost // the loss is why the work ended
	}
	return errors.Join(lost, work.err)
}

// release releases the Lease, if it is still the token's, with a word for the next leader. It must not be called while
// the work of that token runs. It tries for StopGrace at most; a Lease that it could not release expires.
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
