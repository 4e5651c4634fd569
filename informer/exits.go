package informer

import (
	"sync/atomic"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// exits notes whether user code has ended its goroutine. Nothing can keep that goroutine alive, and a goroutine for
// each call would take longer than most calls. So the first time costs the goroutine: the informer goes on with another
// one, and repeats what was interrupted. From then on such calls have goroutines of their own, so that the one object
// is to blame.
type exits struct{ seen atomic.Bool }

// try is lifecycle.Try for a call that may end its goroutine.
func (e *exits) try(fn func()) error {
	if e.seen.Load() {
		return lifecycle.Apart(fn)
	}
	return lifecycle.Try(fn)
}
