package lifecycle

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is a panic of user code, or its call of runtime.Goexit, turned into an error. Its text names the type of
// the panic's value, never the value itself: that may be, or hold, a Secret.
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

// Unwrap gives the panic's value when that is an error, and ErrExited when there was none.
func (e *PanicError) Unwrap() error {
	if e.Value == nil {
		return ErrExited
	}
	err, _ := e.Value.(error)
	return err
}

// StackOf returns where a panic came from that err is or wraps, or nothing for any other error.
func StackOf(err error) string {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		return string(panicked.Stack)
	}
	return ""
}

// Guard calls fn and reports whether it has returned. If fn panics, Guard calls failed with the panic and returns
// false. If fn ends the goroutine by runtime.Goexit, Guard calls failed, too, but cannot return: the goroutine ends
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
// where fn may do that, use Guard or Apart.
func Try(fn func()) (err error) {
	Guard(fn, func(p *PanicError) { err = p })
	return err
}

// Apart is Try on a goroutine of fn's own, which fn may end: that is a *PanicError as well. It costs half a microsecond
// more than Try.
func Apart(fn func()) error {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		Guard(fn, func(p *PanicError) { err = p })
	}()
	return <-done
}
