package lifecycle

import (
	"context"
	"time"
)

// Backoff returns growing delays with full jitter: the nth delay is uniform in (0, min(Cap, Base*2^n)]. Full jitter
// spreads the clients of a server that comes back over the whole period, where a fixed delay plus a little noise would
// let them arrive together (Marc Brooker, "Exponential Backoff And Jitter", 2015). It is not safe for concurrent use.
//
// It paces each retry of package informer, and the relister of package reconcile. An elector has a pace of its own, as
// that is part of what it promises.
type Backoff struct {
	Base, Cap time.Duration
	// Costly is for tries that cost a server so much that their number has to be bounded, such as lists. Half of each
	// delay is fixed then: it is uniform in (limit/2, limit].
	Costly bool
	// Purpose is what is tried: the delays of two purposes differ, see [Random].
	Purpose  string
	failures int
}

// Delay is how long to wait before the next try: at least Min, and until Max unless something ends the wait early.
type Delay struct{ Min, Max time.Duration }

// After counts a failure and returns how long to wait after it, if the server asked for a pause of retryAfter (zero: it
// did not). That pause is a minimum which only the end of a context cuts short. The jitter comes on top, because the
// server gave all the clients that it refused at once the same number. Up to Base of the jitter also counts towards the
// minimum, so that a caller who keeps asking for a retry does not undo the pace.
func (b *Backoff) After(retryAfter time.Duration) Delay {
	own := b.Next()
	return Delay{Min: retryAfter + min(own, b.Base), Max: retryAfter + own}
}

// Next is After for failures that are no answer of a server.
func (b *Backoff) Next() time.Duration {
	limit := Doubled(b.Base, b.failures, b.Cap)
	b.failures++
	fixed := time.Duration(0)
	if b.Costly {
		fixed = limit / 2
	}
	return fixed + RandomDuration(limit-fixed, b.Purpose) + 1
}

// Doubled returns d * 2^n, or most if that is less. It does not overflow.
func Doubled(d time.Duration, n int, most time.Duration) time.Duration {
	if d > most>>n {
		return most
	}
	return d << n
}

// Reset makes the next delay a first one again.
func (b *Backoff) Reset() { b.failures = 0 }

// Pause waits for d, and returns what came from wake if that ended the wait, after d.Min and before d.Max. A nil wake
// never does. When ctx ends, Pause returns at once; the caller checks ctx.
func Pause[T any](ctx context.Context, d Delay, wake <-chan T) (token T, woken bool) {
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

// Sleep waits for d or for the end of ctx, whichever is first, and reports whether ctx has not ended.
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
