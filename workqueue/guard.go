package workqueue

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// userCode calls the functions and interfaces in the Options of a queue; the queue calls them in no other way, and
// never with its lock held. A panic of theirs ends here: it is counted and logged, and the queue goes on with an answer
// that harms no key. Nothing can stop runtime.Goexit, which ends the goroutine that called the queue, so each caller
// defers what must happen to the key.
type userCode[K comparable] struct {
	opts     Options[K] // with all defaults
	panics   atomic.Uint64
	panicLog lifecycle.LogLimit
}

// group returns the group of key, or the unnamed one if Group panics.
func (u *userCode[K]) group(key K) (name string) {
	defer u.survive("Group")
	return u.opts.Group(key)
}

// when counts a failure of key and returns the delay that the rate limiter returns, or the longest delay of the default
// limiter if it panics.
func (u *userCode[K]) when(key K) (d time.Duration) {
	d = defaultMost
	defer u.survive("RateLimiter.When")
	return u.opts.RateLimiter.When(key)
}

func (u *userCode[K]) forget(key K) {
	defer u.survive("RateLimiter.Forget")
	u.opts.RateLimiter.Forget(key)
}

func (u *userCode[K]) failures(key K) (n int) {
	defer u.survive("RateLimiter.NumRequeues")
	return u.opts.RateLimiter.NumRequeues(key)
}

func (u *userCode[K]) waited(p Priority, d time.Duration) {
	defer u.survive("Metrics.Waited")
	u.opts.Metrics.Waited(p, d)
}

func (u *userCode[K]) worked(p Priority, d time.Duration) {
	defer u.survive("Metrics.Worked")
	u.opts.Metrics.Worked(p, d)
}

// survive is deferred around a call of user code, and ends its panic.
func (u *userCode[K]) survive(function string) {
	v := recover()
	if v == nil {
		return
	}
	u.panics.Add(1)
	if dropped, ok := u.panicLog.Allow(1); ok {
		err := &lifecycle.PanicError{Value: v, Stack: debug.Stack()}
		klog.Background().Error(err, "A function in the Options of a work queue panicked", "queue", u.opts.Name,
			"function", function, "notLogged", dropped, "stack", string(err.Stack))
	}
}
