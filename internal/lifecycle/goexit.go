package lifecycle

import (
	"errors"
	"sync/atomic"
)

// ErrExited stands for a call of user code that has ended its goroutine by runtime.Goexit, as t.FailNow does, which
// knows no other way to leave. It is treated like a panic.
var ErrExited = errors.New("the call ended its goroutine (runtime.Goexit)")

// OrExit calls fn, and exited if fn ends the goroutine, which then ends. A panic of fn goes on as it was.
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

// Keep is Go for an fn that calls user code. If that ends the goroutine another one calls fn again, which finds
// whatever it needs to go on outside of itself.
func (g *Group) Keep(name string, fn func()) {
	g.Go(name, func() { OrExit(fn, func() { g.Keep(name, fn) }) })
}

// Loop calls step until it returns false. If a call ends the goroutine the calls that follow it are made all the same
// before it ends, so whoever must do more than that defers it. That is for a few hundred calls: they nest.
func Loop(step func() bool) {
	OrExit(func() {
		for step() {
		}
	}, func() { Loop(step) })
}

// Each calls fn with each number below n, like Loop.
func Each(n int, fn func(i int)) {
	if n == 0 {
		return
	}
	i := 0
	Loop(func() bool {
		if i == n {
			return false
		}
		i++
		fn(i - 1)
		return true
	})
}

// Exits remembers whether user code has ended its goroutine. Nothing can keep that goroutine alive, and a goroutine for
// each call would take longer than most calls. So the first exit costs the goroutine: the caller notes it, goes on in
// another one, and repeats what was interrupted. From then on Try gives each call a goroutine of its own, so that only
// the call which exits fails. The zero value has seen none. Safe for concurrent use.
type Exits struct{ seen atomic.Bool }

// Note records an exit.
func (e *Exits) Note() { e.seen.Store(true) }

// Seen reports whether an exit has been noted.
func (e *Exits) Seen() bool { return e.seen.Load() }

// Try is [Try] for a call that may end its goroutine.
func (e *Exits) Try(fn func()) error {
	if e.Seen() {
		return Apart(fn)
	}
	return Try(fn)
}
