// Package lifecycle is what a package needs to run for months inside a process that it does not own: named goroutines
// that Run waits for (group.go), user code that may panic or end its goroutine (guard.go), errors that may hide another
// (only.go), the place in the user's code where that happened (stack.go), pauses between tries that fail (backoff.go)
// and the numbers that spread them (random.go), log lines that do not flood (loglimit.go), and a mark for work that
// several processes do at once (shared.go). It imports nothing of Kubernetes'.
package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrStuck is wrapped by the error of a Run that returns although some of its goroutines have not ended within the
// grace period. Nearly always these are in user code that ignores the end of its context.
var ErrStuck = errors.New("did not stop in time")

// Group is a set of named goroutines with one owner, which calls Wait. The zero value is ready for use.
type Group struct {
	mu      sync.Mutex    // guards the fields below
	running []string      // names of the goroutines that have not returned; two may have one name
	idle    chan struct{} // closed when running becomes empty; nil unless Done was called since
}

// Go runs fn on a goroutine of the group. It must not be called once Wait has returned.
func (g *Group) Go(name string, fn func()) {
	leave := g.Join(name)
	go func() {
		defer leave()
		fn()
	}()
}

// Join makes the goroutine of the caller, which other code has started, one of the group until leave is called. It must
// not be called once Wait has returned.
func (g *Group) Join(name string) (leave func()) {
	g.mu.Lock()
	g.running = append(g.running, name)
	g.mu.Unlock()
	return func() { g.ended(name) }
}

func (g *Group) ended(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.running, name)
	g.running = slices.Delete(g.running, i, i+1)
	if len(g.running) == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Done returns a channel that is closed when no goroutine of the group is running, now or later.
func (g *Group) Done() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	if len(g.running) == 0 {
		close(g.idle)
		g.idle = nil
	}
	return idle
}

// Wait returns nil when every goroutine has ended, or, after grace, an error that wraps ErrStuck and names those that
// have not.
func (g *Group) Wait(grace time.Duration) error {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-g.Done():
		return nil
	case <-timer.C:
	}
	g.mu.Lock()
	names := slices.Sorted(slices.Values(g.running))
	g.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s had %s to end", ErrStuck, strings.Join(names, ", "), grace)
}
