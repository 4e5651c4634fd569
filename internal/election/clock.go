package election

import "time"

// drift is by what fraction the rate of a machine's clock may differ from true time.
const drift = 0.05

// Spans returns, in seconds, how long a tenure and the end of its work take at most, on a slow clock, and how long at
// least a Lease has to stand unchanged for whoever takes it, on a fast one. Two never work at once if slow is less.
func Spans(renewDeadline, stopGrace, leaseDuration time.Duration) (slow, fast float64) {
	return (renewDeadline.Seconds() + stopGrace.Seconds()) * (1 + drift), leaseDuration.Seconds() * (1 - drift)
}

// An Instant is a moment on both clocks of this process. Of Wall only the time of the wall clock counts.
type Instant struct{ Mono, Wall time.Time }

// Left returns how much is left of a tenure at now: until deadline after the last acknowledged renewal was sent, on
// whichever of the two clocks that comes first. The monotonic clock is the one that counts, since it cannot be set. But
// on Linux it stands still while the machine sleeps, and the wall clock does not. A wall clock that is set back changes
// nothing.
func Left(deadline time.Duration, sent, now Instant) time.Duration {
	return deadline - max(now.Mono.Sub(sent.Mono), now.Wall.Round(0).Sub(sent.Wall.Round(0)))
}
