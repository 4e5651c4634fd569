package lifecycle

import (
	"sync"
	"time"
)

// LogLimit keeps a repeated failure from flooding the log: of the lines that share it, it lets a few through each
// minute and counts the others. The zero value is ready for use. Safe for concurrent use.
type LogLimit struct {
	mu sync.Mutex // guards the fields below

	began   time.Time // of the minute that is being counted
	written int       // lines in that minute
	dropped int       // lines since the last one that was written
}

// Allow reports whether one more line may be written, of perMinute, and how many were dropped since the last one.
func (l *LogLimit) Allow(perMinute int) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.began) >= time.Minute {
		l.began, l.written = now, 0
	}
	if l.written >= perMinute {
		l.dropped++
		return 0, false
	}
	l.written++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}
