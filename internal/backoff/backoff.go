// Package backoff spaces out the tries of something that keeps failing.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff gives growing delays with full jitter: the nth delay is uniform in (0, min(Cap, Base*2^n)]. Full jitter spreads the clients
// of a server that comes back over the whole period, where a fixed delay plus a little noise would let them arrive together
// (Marc Brooker, "Exponential Backoff And Jitter", 2015). Not safe for concurrent use: one owner, who tries one thing.
type Backoff struct {
	Base, Cap time.Duration
	failures  int
}

// Next counts a failure and returns how long to wait after it.
func (b *Backoff) Next() time.Duration {
	limit := b.Cap
	// 2^n is only computed while it cannot overflow: past 62 doublings, and past the cap, the cap is the limit.
	if b.failures < 62 && b.Base < b.Cap>>b.failures {
		limit = b.Base << b.failures
	}
	b.failures++
	return time.Duration(rand.Int64N(int64(limit))) + 1
}

// Reset makes the next delay a first one again.
func (b *Backoff) Reset() { b.failures = 0 }

// Sleep waits for d or for the end of ctx, whichever comes first, and reports whether ctx is still alive.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
