package reconcile

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/workqueue"
)

// patience is how long a call of Reconcile may go on after its context has ended before it counts as stuck.
const stuckAfter = 10 * time.Second

// worker is one goroutine that reconciles one key at a time.
//
// A call that does not return although its context has ended is stuck. Nobody can end it from outside, so it keeps its
// key, which nobody else may work on, but not its place: another worker takes that, and this one ends when the call
// does return. A controller replaces as many workers as it has; past that it is not alive any more (see
// [Controller.Stuck]), and a restart of the process is the only way on.
type worker struct {
	*Controller
	log              klog.Logger
	takeCtx, runCtx  context.Context // no key is taken when the first has ended, and calls end with the second
	endedCtx         context.Context // is acting, and has ended
	id               string          // of its goroutine, as stacks name it
	startReplacement func()          // starts another worker
	replaced         bool            // somebody else has its place

	// Of the run that goes on: when it began, why, and what the trail has of its key. They are written by the worker's
	// goroutine, while none goes on. Others read the first two, with the run's mu held, and only as long as the run has
	// not ended: so the next one's come after that. step is the trail's again at the end.
	began  time.Time
	causes causes
	entry  *keyEntry

	// The latest claim, and what its run has come to.
	claim   workqueue.Claim[Key]
	outcome outcome

	// mu is the worker's own, so that no worker has to wait for another with each key; stuck.mu may be taken with it
	// held.
	mu sync.Mutex
	// Guarded by mu. run is the call that goes on, or nil. It counts as stuck from due on, and found says that look has
	// found it so. While there is one that look has not, the alarm is set, for due or earlier. It is not stopped when a
	// call returns, for the next one to find it set: that saves a quarter of what the loop costs for a key
	// (BenchmarkReconcile).
	run        *run
	stuckAt    time.Time
	foundStuck bool
	stuckTimer *time.Timer // nil unless it is set, or rings at this moment
}

// newWorker makes a worker of the goroutine that calls it.
func newWorker(c *Controller, taking, acting context.Context, replace func()) *worker {
	log := klog.FromContext(acting).WithValues("controller", c.name)
	acting = klog.NewContext(acting, log)
	over, end := context.WithCancel(acting)
	end()
	return &worker{Controller: c, log: log, takeCtx: taking, runCtx: acting, endedCtx: over, id: goroutineID(),
		startReplacement: replace}
}

// work takes keys until taking ends, or until another worker has its place. That is so, too, if code of the user's ends
// the goroutine (runtime.Goexit).
func (w *worker) work() {
	over := false
	defer func() {
		w.stopTimer()
		if !over && !w.replaced {
			w.startReplacement()
		}
	}()
	for !over {
		lifecycle.Guard(func() {
			for !over {
				over = !w.handleNext() || w.replaced
			}
		}, w.turnPanicked)
	}
}

// turn takes one key and handles it. It reports whether there may be more.
func (w *worker) handleNext() (more bool) {
	claim, err := w.queue.Take(w.takeCtx)
	if err != nil {
		return false // taking has ended: the queue is never shut down, so that this controller can lead again
	}
	w.handle(claim)
	return true
}

// failed ends the claim when a turn has not. Reconcile is guarded by itself, see call; this is other code of the user's
// that has a part in a run, such as a sink of log lines, or a bug of the library's.
func (w *worker) turnPanicked(p *lifecycle.PanicError) {
	w.claim.Retry() // does nothing if the claim has ended
	klog.Background().Error(p, "A worker panicked", "controller", w.name, "key", w.claim.Key(), "stack",
		string(p.Stack))
}

// why returns the causes of the latest run, for a line of the log: who writes it may do so when there is another run.
func (w *worker) causesOfRun() *causes {
	why := w.causes
	return &why
}

// leave stops the alarm, which nobody needs any more.
func (w *worker) stopTimer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuckTimer != nil {
		w.stuckTimer.Stop()
	}
}

// watch is told of a call that begins.
func (w *worker) callBegins(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run, w.stuckAt = r, w.began.Add(w.timeout+stuckAfter)
	if w.stuckTimer == nil {
		w.stuckTimer = time.AfterFunc(w.timeout+stuckAfter, w.checkStuck)
	}
}

// look is what the alarm does when it rings: it finds out whether the call that goes on is stuck.
func (w *worker) checkStuck() {
	w.mu.Lock()
	r := w.run
	if r == nil {
		w.stuckTimer = nil
		w.mu.Unlock()
		return
	}
	if early := time.Until(w.stuckAt); early > 0 {
		w.stuckTimer.Reset(early) // it was set for an earlier call
		w.mu.Unlock()
		return
	}
	w.stuckTimer, w.foundStuck = nil, true
	w.stuck.mu.Lock()
	w.stuck.calls++
	if w.stuck.calls <= w.workers && w.runCtx.Err() == nil {
		w.startReplacement()
	} else {
		w.stuck.missing++
	}
	stuck := w.stuck.calls
	w.stuck.mu.Unlock()
	stack := goroutineStack(w.id) // until the lock is free the worker goes nowhere else
	w.mu.Unlock()
	r.log().Error(nil, "Reconcile does not return although its context has ended: its key is out of service", "after",
		w.timeout+stuckAfter,
		"stuckCalls", stuck, "stack", stack)
}

// returned is told that the call has returned.
func (w *worker) callReturned() {
	w.mu.Lock()
	r, stuck := w.run, w.foundStuck
	w.run, w.foundStuck = nil, false
	w.mu.Unlock()
	if !stuck {
		return
	}
	w.stuck.mu.Lock()
	w.stuck.calls--
	if w.stuck.missing > 0 {
		w.stuck.missing-- // this one takes a place that nobody has taken
	} else {
		w.replaced = true
	}
	w.stuck.mu.Unlock()
	r.log().Error(nil, "A stuck Reconcile has returned after all") // at the level of the loss
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

// goroutineID returns the number of the calling goroutine, the way stacks spell it: they begin with "goroutine 7
// [running]:".
func goroutineID() string {
	buf := make([]byte, 64)
	fields := bytes.Fields(buf[:runtime.Stack(buf, false)])
	return string(fields[1])
}

// goroutineStack returns the stack of the goroutine of that number. It stops the world for a moment, so it is for rare
// occasions.
func goroutineStack(id string) string {
	buf := make([]byte, 1<<20)
	all := buf[:runtime.Stack(buf, true)]
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.HasPrefix(stack, []byte("goroutine "+id+" ")) {
			return string(stack)
		}
	}
	return "not found"
}
