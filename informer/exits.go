package informer

import (
	"errors"
	"sync/atomic"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// errExited stands for a call of the user's code that ended its goroutine, as t.FailNow does by runtime.Goexit.
var errExited = errors.New("code of the user's ended its goroutine (runtime.Goexit)")

// apart is [lifecycle.Try] on a goroutine of its own, which fn may end: then the error is errExited.
func apart(fn func()) error {
	done := make(chan error, 1)
	go func() {
		err := errExited
		defer func() { done <- err }()
		err = lifecycle.Try(fn)
	}()
	return <-done
}

// outlives calls fn on a goroutine of its own and reports whether fn has ended that. A panic is a panic.
func outlives(fn func()) (exited bool) {
	done := make(chan bool, 1)
	go func() {
		exited := true
		defer func() { done <- exited }()
		fn()
		exited = false
	}()
	return <-done
}

// exits notes whether user code has ended its goroutine. Nothing can keep that goroutine alive, and a goroutine for each call
// would take longer than most calls. So the first time costs the goroutine: the informer goes on with another one, and
// repeats what was interrupted. From then on such calls have goroutines of their own, so that the one object is to blame.
type exits struct{ seen atomic.Bool }

// try is lifecycle.Try for a call that may end its goroutine.
func (e *exits) try(fn func()) error {
	if e.seen.Load() {
		return apart(fn)
	}
	return lifecycle.Try(fn)
}
