package reconcile

import (
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/workqueue"
)

// guard protects the loop from an object of the user's whose methods must not panic. If one does, or ends its
// goroutine, that is logged once, and the object is not called again. A default takes the place of a RateLimiter, and
// nothing that of a Recorder. The queue's own guard, userCode, is below this one and sees no panic.
type guard struct {
	what, controller string
	broken           atomic.Bool
}

func (g *guard) broke(p error) {
	if g.broken.Swap(true) {
		return
	}
	klog.Background().Error(p, "Panicked, and is not called again: its default takes its place", "controller",
		g.controller, "what", g.what, "stack", lifecycle.StackOf(p))
}

// guardedRecorder is a Recorder that may break.
type guardedRecorder struct {
	guard
	recorder Recorder
}

// call is for workers, which are replaced if the Recorder ends their goroutine.
func (g *guardedRecorder) call(fn func()) {
	if !g.broken.Load() {
		lifecycle.Guard(fn, func(p *lifecycle.PanicError) { g.broke(p) })
	}
}

func (g *guardedRecorder) Waited(p workqueue.Priority, d time.Duration) {
	g.call(func() { g.recorder.Waited(p, d) })
}
func (g *guardedRecorder) Worked(p workqueue.Priority, d time.Duration) {
	g.call(func() { g.recorder.Worked(p, d) })
}

func (g *guardedRecorder) Reconciled(result string, took time.Duration) {
	g.call(func() { g.recorder.Reconciled(result, took) })
}

// Parked is called by informers, too, which are not replaced.
func (g *guardedRecorder) Parked(d time.Duration) {
	if g.broken.Load() {
		return
	}
	if err := lifecycle.Apart(func() { g.recorder.Parked(d) }); err != nil {
		g.broke(err)
	}
}

// guardedOnRun is Options.OnRun, which may break. Workers call it, which are replaced.
type guardedOnRun struct {
	guard
	onRun func(controller string, key Key, run RunRecord)
}

func (g *guardedOnRun) tell(key Key, run RunRecord) {
	if !g.broken.Load() {
		lifecycle.Guard(func() { g.onRun(g.controller, key, run) }, func(p *lifecycle.PanicError) { g.broke(p) })
	}
}

// guardedLimiter is a RateLimiter that may break.
type guardedLimiter struct {
	guard
	limiter, fallback workqueue.RateLimiter[Key]
}

func newGuardedLimiter(controller string, asked workqueue.RateLimiter[Key]) *guardedLimiter {
	standIn := workqueue.Exponential[Key](5*time.Millisecond, 1000*time.Second, 0)
	return &guardedLimiter{guard{what: "RateLimiter", controller: controller}, asked, standIn}
}

// When is for a key that has failed, so it may cost a goroutine: a claim has to learn the delay even if the limiter
// ends that.
func (g *guardedLimiter) When(key Key) (d time.Duration) {
	if !g.broken.Load() {
		err := lifecycle.Apart(func() { d = g.limiter.When(key) })
		if err == nil {
			return d
		}
		g.broke(err)
	}
	return g.fallback.When(key)
}

// Forget is called by workers, which are replaced.
func (g *guardedLimiter) Forget(key Key) {
	g.fallback.Forget(key)
	if !g.broken.Load() {
		lifecycle.Guard(func() { g.limiter.Forget(key) }, func(p *lifecycle.PanicError) { g.broke(p) })
	}
}

func (g *guardedLimiter) NumRequeues(key Key) (n int) {
	if g.broken.Load() {
		return g.fallback.NumRequeues(key)
	}
	lifecycle.Guard(func() { n = g.limiter.NumRequeues(key) }, func(p *lifecycle.PanicError) { g.broke(p) })
	return n
}

// guardedPriority is a function that returns priorities, and may break. Informers call it, which are not replaced.
type guardedPriority struct {
	guard
	priority func(Key) workqueue.Priority
}

func (g *guardedPriority) of(key Key) (p workqueue.Priority) {
	if g.broken.Load() {
		return 0
	}
	if err := lifecycle.Apart(func() { p = g.priority(key) }); err != nil {
		g.broke(err)
		return 0
	}
	return p
}
