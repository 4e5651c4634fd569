// Package backoff spaces out the tries of something that keeps failing. Every retry of package informer against a
// server waits here; the prober of package reconcile takes its pauses from here. An elector does not: its pace is part
// of what it promises.
//
//	err := try(ctx)
//	...
//	doubt, woken := backoff.Wait(ctx, b.After(err), asked) // asked may be nil: nothing but ctx then ends the wait
//
// The delay grows with the failures, has a cap, honours what the server asked for in Retry-After for up to
// MaxRetryAfter, and can be cut short.
package backoff

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// MaxRetryAfter bounds what a server can ask for: it is tried again after this time, however long it wanted to be left
// alone.
const MaxRetryAfter = 5 * time.Minute

// Backoff gives growing delays with full jitter: the nth delay is uniform in (0, min(Cap, Base*2^n)]. Full jitter
// spreads the clients of a server that comes back over the whole period, where a fixed delay plus a little noise would
// let them arrive together (Marc Brooker, "Exponential Backoff And Jitter", 2015). Not safe for concurrent use: one
// owner, who tries one thing.
type Backoff struct {
	Base, Cap time.Duration
	// Costly is for tries that cost a server so much that their number has to be bounded, such as lists: half of each
	// delay is fixed then, and it is uniform in (limit/2, limit].
	Costly   bool
	failures int
}

// Delay is how long to wait before the next try: no less than Min, and until Max unless something ends the wait early.
type Delay struct{ Min, Max time.Duration }

// After counts a failure with that error and returns how long to wait after it. What the server asked for is a minimum
// that nothing but the end of a context cuts short. The jitter comes on top, because all who were refused at once were
// given the same number. Of the jitter up to Base remains a minimum, too, so that someone who keeps asking does not
// undo the pace.
func (b *Backoff) After(err error) Delay {
	asked, own := RetryAfter(err), b.Next()
	return Delay{Min: asked + min(own, b.Base), Max: asked + own}
}

// Next counts a failure and returns how long to wait after it, for failures that are no answer of a server.
func (b *Backoff) Next() time.Duration {
	limit := b.Cap
	// 2^n is only computed while it cannot overflow: past 62 doublings, and past the cap, the cap is the limit.
	if b.failures < 62 && b.Base < b.Cap>>b.failures {
		limit = b.Base << b.failures
	}
	b.failures++
	fixed := time.Duration(0)
	if b.Costly {
		fixed = limit / 2
	}
	return fixed + time.Duration(rand.Int64N(int64(limit-fixed))) + 1
}

// Failures returns how many failures were counted since the last Reset.
func (b *Backoff) Failures() int { return b.failures }

// Reset makes the next delay a first one again.
func (b *Backoff) Reset() { b.failures = 0 }

// Wait waits for d, and returns what came from wake if that ended the wait: after d.Min and before d.Max. A wake that
// is nil never does. When ctx ends, Wait returns at once; ask ctx.
func Wait[T any](ctx context.Context, d Delay, wake <-chan T) (token T, woken bool) {
	if !Sleep(ctx, d.Min) {
		return token, false
	}
	timer := time.NewTimer(d.Max - d.Min)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case token = <-wake:
		return token, true
	}
	return token, false
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

// RetryAfter returns how long the server that gave this answer asked to be left alone, at most MaxRetryAfter. Zero: it
// did not.
func RetryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return bounded(int64(seconds))
}

// ParseRetryAfter reads the value of a Retry-After header, a number of seconds or a date (RFC 9110, 10.2.3), and
// returns how long after now that is, at most MaxRetryAfter. Zero: it says nothing.
func ParseRetryAfter(value string, now time.Time) time.Duration {
	seconds, err := strconv.ParseInt(value, 10, 64) // of a number that is too large it gives the largest
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return bounded(seconds)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), MaxRetryAfter)
	}
	return 0
}

// bounded compares before it multiplies, for a large number of seconds is more nanoseconds than there are.
func bounded(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), int64(MaxRetryAfter/time.Second))) * time.Second
}
