package workqueue

import (
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// The queue calls what is in its Options, which is user code, only through the functions of this file: the group
// function, the rate limiter and the metrics. No lock is held meanwhile. A panic of theirs ends here: it is logged and
// counted, and the queue goes on with an answer that harms nobody. Nothing can stop runtime.Goexit; it ends the
// goroutine that called the queue, so each caller defers what must happen to the key.

// groupOf returns the group of key; a key whose group cannot be told has the unnamed one.
func (q *Queue[K]) groupOf(key K) (name string) {
	defer q.survive("Group")
	return q.opts.Group(key)
}

// when counts a failure of key and returns the delay that the rate limiter asks for; if that cannot be told the delay
// is the longest of the default limiter.
func (q *Queue[K]) when(key K) (d time.Duration) {
	d = defaultMost
	defer q.survive("RateLimiter.When")
	return q.opts.RateLimiter.When(key)
}

func (q *Queue[K]) forget(key K) {
	defer q.survive("RateLimiter.Forget")
	q.opts.RateLimiter.Forget(key)
}

func (q *Queue[K]) failures(key K) (n int) {
	defer q.survive("RateLimiter.NumRequeues")
	return q.opts.RateLimiter.NumRequeues(key)
}

func (q *Queue[K]) tellWaited(p Priority, d time.Duration) {
	defer q.survive("Metrics.Waited")
	q.opts.Metrics.Waited(p, d)
}

func (q *Queue[K]) tellWorked(p Priority, d time.Duration) {
	defer q.survive("Metrics.Worked")
	q.opts.Metrics.Worked(p, d)
}

// survive is deferred around a call of user code, and ends its panic.
func (q *Queue[K]) survive(function string) {
	if v := recover(); v != nil {
		q.panics.Add(1)
		if dropped, ok := q.panicLog.Allow(1); ok {
			err := &lifecycle.PanicError{Value: v, Stack: debug.Stack()}
			klog.Background().Error(err, "A function in the Options of a work queue panicked",
				"queue", q.opts.Name, "function", function, "notLogged", dropped, "stack", string(err.Stack))
		}
	}
}
