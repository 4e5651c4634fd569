package informer

import (
	"errors"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// calm keeps trouble that comes with every object from flooding the log: of the lines that share it, it lets a few
// through each minute and counts the rest. The zero value is ready for use.
type calm struct {
	mu sync.Mutex
	// Guarded by mu: the minute that is being counted, what was let through in it, and what has been held back since
	// the last line.
	began         time.Time
	written, held int
}

const calmLines = 5

// line reports whether one more line may be written and, if so, how many were held back before it.
func (c *calm) line() (held int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.began) >= time.Minute {
		c.began, c.written = now, 0
	}
	if c.written == calmLines {
		c.held++
		return 0, false
	}
	c.written++
	held, c.held = c.held, 0
	return held, true
}

// stackOf returns where a panic of somebody's code came from, or nothing for any other error.
func stackOf(err error) string {
	var panicked *lifecycle.PanicError
	if errors.As(err, &panicked) {
		return string(panicked.Stack)
	}
	return ""
}

// withStack adds to what a line says of an error where it came from, if it is a panic of somebody's code.
func withStack(about []any, err error) []any {
	if stack := stackOf(err); stack != "" {
		about = append(about, "stack", stack)
	}
	return about
}
