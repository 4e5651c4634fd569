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
	retired bool   // it has been replaced; written while a call is stuck, read between calls
}

// work takes keys until taking ends.
func (w *worker) work(taking, acting context.Context) {
	for !w.retired {
		claim, err := w.queue.Take(taking)
		if err != nil {
			return // taking has ended: the queue is never shut down, so that this controller can lead again
		}
		w.handle(acting, claim)
	}
}

// overdue watches over one call, and returns a function that says that it has returned.
func (w *worker) overdue(ctx context.Context, log klog.Logger) (returned func()) {
	var mu sync.Mutex // guards the two flags; a stuck call counts in w.stuck from the time that stuck is true until returned is
	var done, stuck bool
	timer := time.AfterFunc(w.timeout+patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return
		}
		stuck = true
		n := int(w.stuck.Add(1))
		log.Error(nil, "Reconcile does not return although its context has ended: its key is out of service", "after", w.timeout+patience,
			"stuckCalls", n, "stack", stackOf(w.id))
		if n <= w.workers && ctx.Err() == nil {
			w.retired = true
			w.replace()
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		done = true
		if stuck {
			w.stuck.Add(-1)
			log.Info("A stuck Reconcile has returned after all")
		}
	}
}

// Stuck returns how many calls of Reconcile have not returned although their context ended at least 10 s ago.
func (c *Controller) Stuck() int { return int(c.stuck.Load()) }

// alive reports whether the controller still has as many workers as it should have.
func (c *Controller) alive() error {
	if n := c.Stuck(); n > c.workers {
		return fmt.Errorf("controller %s: %d calls of Reconcile are stuck", c.name, n)
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
