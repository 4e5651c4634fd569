package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// An outcome is the error that a lead function returned, and what the error means.
type outcome struct {
	err      error
	canceled bool // it says only that the function's context had ended
	yielded  bool // it says only that, or that the function had ceased to lead
	stuck    bool // some of its work goes on
}

// work is the lead function's goroutine, which may outlive Run. One is started at a time. The group and the atomic
// values may be read at any time.
type work struct {
	group      lifecycle.Group // of that goroutine
	givenUp    atomic.Bool     // Run has returned without waiting for it any longer
	unfinished atomic.Bool     // a lead function has returned while some of its work goes on; never reset
	result     outcome         // written by the goroutine; Run reads it when the goroutine has ended
}

// running reports that the lead function has not returned.
func (w *work) running() bool {
	select {
	case <-w.group.Done():
		return false
	default:
		return true
	}
}

// mayStart prepares for a new lead function. It refuses while work of an earlier one goes on.
func (w *work) mayStart() error {
	switch {
	case w.unfinished.Load():
		return fmt.Errorf("work of an earlier Run's lead function %w", ErrStuck)
	case w.running():
		return fmt.Errorf("the lead function of an earlier Run %w and still runs", ErrStuck)
	}
	w.givenUp.Store(false)
	return nil
}

// start calls lead on a goroutine of its own. It returns a channel that is closed when that has ended.
func (w *work) start(ctx context.Context, lead func(context.Context) error) <-chan struct{} {
	w.group.Go("lead", func() {
		w.result = outcomeOf(lead(ctx))
		if w.result.stuck {
			w.unfinished.Store(true)
		}
	})
	return w.group.Done()
}

// outcomeOf finds out what a lead function's error means.
func outcomeOf(err error) outcome {
	return outcome{
		err:      err,
		canceled: lifecycle.IsOnly(err, context.Canceled),
		yielded:  lifecycle.IsOnly(err, context.Canceled, ErrLost, ErrNotLeading),
		stuck:    errors.Is(err, ErrStuck),
	}
}
