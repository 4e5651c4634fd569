package lifecycle

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrExited is the error of user code that has ended its goroutine by runtime.Goexit, as t.FailNow does. It is treated
// like a panic.
var ErrExited = errors.New("the call ended its goroutine (runtime.Goexit)")

// PanicError is the error of user code that panicked or called runtime.Goexit. Its text names the type of the panic's
// value, never the value itself: that may be, or hold, a Secret.
type PanicError struct {
	Value any // nil if the code has ended its goroutine
	Stack []byte
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return ErrExited.Error()
	}
	return fmt.Sprintf("panic of type %T", e.Value)
}

// Unwrap returns the panic's value if that is an error, and ErrExited after a runtime.Goexit.
func (e *PanicError) Unwrap() error {
	if e.Value == nil {
		return ErrExited
	}
	err, _ := e.Value.(error)
	return err
}

// StackOf returns the stack of the *PanicError that err is or wraps, or "" for any other error.
func StackOf(err error) string {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		return string(panicked.Stack)
	}
	return ""
}

// Guard calls fn and reports whether it has returned. If fn panics, Guard calls failed with the panic and returns
// false. If fn ends the goroutine by runtime.Goexit, Guard also calls failed, but cannot return: the goroutine ends
// when its deferred functions have run.
func Guard(fn func(), failed func(*PanicError)) (returned bool) {
	defer func() {
		if !returned {
			failed(&PanicError{Value: recover(), Stack: debug.Stack()})
		}
	}()
	fn()
	return true
}

// Try calls fn and returns its panic, if there was one, as a *PanicError. It does not return if fn ends the goroutine;
// where fn may do that, use Guard.
func Try(fn func()) (err error) {
	Guard(fn, func(p *PanicError) { err = p })
	return err
}

// OrExit calls fn. If fn ends the goroutine, OrExit calls exited before it ends. A panic of fn goes on as it was.
func OrExit(fn, exited func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			panic(v)
		}
		exited()
	}()
	fn()
	returned = true
}

// Keep is Go for an fn that calls user code. If that ends the goroutine, Keep calls fn again on another one; so fn
// keeps what it needs to go on outside of itself.
func (g *Group) Keep(name string, fn func()) {
	g.Go(name, func() { OrExit(fn, func() { g.Keep(name, fn) }) })
}
