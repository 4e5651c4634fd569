// Package backoff spaces out the tries of something that keeps failing.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Backoff gives growing delays with full jitter: the nth delay is uniform in (0, min(Cap, Base*2^n)]. Full jitter spreads the clients
// of a server that comes back over the whole period, where a fixed delay plus a little noise would let them arrive together
// (Marc Brooker, "Exponential Backoff And Jitter", 2015). Not safe for concurrent use: one owner, who tries one thing.
type Backoff struct {
	Base, Cap time.Duration
	failures  int
}

// Next counts a failure and returns how long to wait after it.
func (b *Backoff) Next() time.Duration { return jitter(b.limit()) }

// NextPaced is Next with half of the jitter: the nth delay is uniform in (limit/2, limit]. It is for tries that cost the server
// so much that their number matters.
func (b *Backoff) NextPaced() time.Duration {
	limit := b.limit()
	return limit/2 + jitter(limit-limit/2)
}

// limit counts a failure and returns the longest that the delay after it may be.
func (b *Backoff) limit() time.Duration {
	limit := b.Cap
	// 2^n is only computed while it cannot overflow: past 62 doublings, and past the cap, the cap is the limit.
	if b.failures < 62 && b.Base < b.Cap>>b.failures {
		limit = b.Base << b.failures
	}
	b.failures++
	return limit
}

func jitter(limit time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(limit))) + 1 }

// Reset makes the next delay a first one again.
func (b *Backoff) Reset() { b.failures = 0 }

// MaxRetryAfter is for how long a server is left alone that has asked for it, however long it has asked for.
const MaxRetryAfter = 5 * time.Minute

// RetryAfter returns for how long the server has asked to be left alone in this error, at most [MaxRetryAfter]. Zero: it has not.
func RetryAfter(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, int(MaxRetryAfter/time.Second))) * time.Second
}

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
