package reconcile

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// A call of Reconcile that does not return although its context has ended is stuck. Nothing can end it from outside,
// so it keeps its key, which no other worker may reconcile. Another worker takes over from its own, which ends when
// the call does return. A controller replaces as many workers as it has. Beyond that it lacks workers and is not
// alive: only a restart of the process helps.

// stuckAfter is how long a call of Reconcile may go on after its context has ended before it counts as stuck.
const stuckAfter = 10 * time.Second

// callBegins records that a call begins. Either it finds the timer set, or checkStuck, which says first that it is not,
// finds the call.
func (w *worker) callBegins(r *run) {
	w.current.Store(r)
	if !w.armed.Load() {
		w.setTimer(w.timeout + stuckAfter)
	}
}

// setTimer sets the timer, unless it is set.
func (w *worker) setTimer(d time.Duration) {
	if !w.armed.Swap(true) {
		w.stuckTimer.Reset(d)
	}
}

// checkStuck is called by the timer. It counts the call that goes on if that is stuck, and is not counted yet: two of
// these may find the same call, since the timer may be set again before this one has looked.
func (w *worker) checkStuck() {
	w.armed.Store(false)
	r := w.current.Load()
	if r == nil {
		return
	}
	began, goesOn := r.GoesOn()
	if !goesOn {
		return
	}
	if early := time.Until(began.Add(w.timeout + stuckAfter)); early > 0 {
		w.setTimer(early) // it was set for an earlier call
		return
	}
	stack := lifecycle.StackOfGoroutine(w.id) // with no lock held: it stops the world. It is of r if r goes on after it
	where := cmp.Or(lifecycle.WhereInUserCode(stack), "an unknown place")
	var calls, missing int
	r.WhileItGoesOn(func() { calls, missing = w.countStuck(where) })
	if calls == 0 {
		return // it has returned, or is counted already
	}
	r.Log().Error(nil, "Reconcile does not return although its context has ended: its key is out of service until it "+
		"does or the process restarts", "after", w.timeout+stuckAfter, "otherWorkers", w.workers-missing, "stuckCalls",
		calls, "stack", stack)
}

// countStuck counts the call as stuck, which goes on, and lets another worker take over. It returns what the log says,
// or nothing if the call is counted already.
func (w *worker) countStuck(where string) (calls, missing int) {
	if !w.turn.SetStuck(where) {
		return 0, 0
	}
	w.stuck.mu.Lock()
	defer w.stuck.mu.Unlock()
	w.stuck.calls++
	if w.stuck.calls <= w.workers && w.runCtx.Err() == nil {
		w.startReplacement()
	} else {
		w.stuck.missing++
	}
	return w.stuck.calls, w.stuck.missing
}

// callReturned records that the call has returned, which its run says already.
func (w *worker) callReturned(r *run) {
	if !w.turn.NoLongerStuck() {
		return
	}
	w.stuck.mu.Lock()
	w.stuck.calls--
	if w.stuck.missing > 0 {
		w.stuck.missing-- // no worker has taken over, so this one goes on
	} else {
		w.replaced = true
	}
	w.stuck.mu.Unlock()
	r.Log().Error(nil, "A stuck Reconcile has returned after all") // at the level of the loss
}

// stuckCalls counts a controller's calls of Reconcile that do not return, and the workers that it lacks because of
// them.
type stuckCalls struct {
	mu sync.Mutex
	// Guarded by mu. Of the workers in stuck calls, all but missing have been replaced: missing <= calls, and
	// calls-missing <= Options.Workers.
	calls, missing int
}

// Stuck returns how many calls of Reconcile have not returned although their context ended at least 10 s ago.
func (c *Controller) Stuck() int {
	c.stuck.mu.Lock()
	defer c.stuck.mu.Unlock()
	return c.stuck.calls
}

// alive reports whether the controller still has as many workers as it should have.
func (c *Controller) alive() error {
	c.stuck.mu.Lock()
	defer c.stuck.mu.Unlock()
	if c.stuck.missing > 0 {
		return fmt.Errorf("controller %s: %d calls of Reconcile are stuck, and %d of %d workers are missing", c.name,
			c.stuck.calls, c.stuck.missing, c.workers)
	}
	return nil
}
