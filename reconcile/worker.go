package reconcile

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// patience is how long a call of Reconcile may go on after its context has ended before it counts as stuck.
const patience = 10 * time.Second

// worker is one goroutine that reconciles one key at a time.
//
// A call that does not return although its context has ended is stuck. Nobody can end it from outside, so it keeps its key, which nobody else may
// work on, but not its place: another worker takes that, and this one ends when the call does return. A controller replaces as many workers as
// it has; past that it is not alive any more (see [Controller.Stuck]), and a restart of the process is the only way on.
type worker struct {
	*Controller
	log     klog.Logger
	id      string // of its goroutine, as stacks name it
	replace func() // starts another worker
	retired bool   // somebody else has its place
}

// work takes keys until taking ends.
func (w *worker) work(taking, acting context.Context) {
	for !w.retired {
		claim, err := w.queue.Take(taking)
		if err != nil {
			return // taking has ended: the queue is never shut down, so that this controller can lead again
		}
		w.handle(taking, acting, claim)
	}
}

// overdue watches over one call, and returns a function that says that it has returned.
func (w *worker) overdue(ctx context.Context, log klog.Logger) (returned func()) {
	var done, stuck bool // guarded by w.stuck.mu
	timer := time.AfterFunc(w.timeout+patience, func() {
		w.stuck.mu.Lock()
		defer w.stuck.mu.Unlock()
		if done {
			return
		}
		stuck = true
		w.stuck.calls++
		log.Error(nil, "Reconcile does not return although its context has ended: its key is out of service", "after", w.timeout+patience,
			"stuckCalls", w.stuck.calls, "stack", stackOf(w.id))
		if w.stuck.calls <= w.workers && ctx.Err() == nil {
			w.replace()
		} else {
			w.stuck.missing++
		}
	})
	return func() {
		timer.Stop()
		w.stuck.mu.Lock()
		defer w.stuck.mu.Unlock()
		done = true
		if !stuck {
			return
		}
		log.Info("A stuck Reconcile has returned after all")
		w.stuck.calls--
		if w.stuck.missing > 0 {
			w.stuck.missing-- // this one takes a place that nobody has taken
		} else {
			w.retired = true
		}
	}
}

// stuckCalls counts a controller's calls of Reconcile that do not return, and the workers that it lacks because of them.
type stuckCalls struct {
	mu sync.Mutex
	// Guarded by mu. Of the workers in stuck calls, all but missing have been replaced: missing <= calls, and calls-missing <= Options.Workers.
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
		return fmt.Errorf("controller %s: %d calls of Reconcile are stuck, and %d of %d workers are missing", c.name, c.stuck.calls, c.stuck.missing, c.workers)
	}
	return nil
}

// goroutineID returns the number of the calling goroutine, the way stacks spell it: they begin with "goroutine 7 [running]:".
func goroutineID() string {
	buf := make([]byte, 64)
	fields := bytes.Fields(buf[:runtime.Stack(buf, false)])
	return string(fields[1])
}

// stackOf returns the stack of the goroutine of that number. It stops the world for a moment, so it is for rare occasions.
func stackOf(id string) string {
	buf := make([]byte, 1<<20)
	all := buf[:runtime.Stack(buf, true)]
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.HasPrefix(stack, []byte("goroutine "+id+" ")) {
			return string(stack)
		}
	}
	return "not found"
}
