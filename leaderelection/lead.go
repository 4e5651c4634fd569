package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

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
func (w *work) start(ctx context.Context, t *tenure, lead func(context.Context) error) <-chan struct{} {
	w.group.Go("lead", func() {
		err := errors.New("leaderelection: the lead function ended its goroutine")
		defer func() {
			w.result = judge(err)
			if w.result.stuck {
				w.unfinished.Store(true)
			}
		}()
		if p := lifecycle.Try(func() { err = lead(ctx) }); p != nil {
			err = fmt.Errorf("leaderelection: the lead function: %w", p)
			klog.FromContext(ctx).Error(p, "The lead function panicked", "lease", t.String(), "stack",
				lifecycle.StackOf(p))
		}
	})
	return w.group.Done()
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
