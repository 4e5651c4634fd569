package election

import "time"

// An Instant is a moment on both clocks of this process. Of Wall only the time of the wall clock counts.
type Instant struct{ Mono, Wall time.Time }

// Left returns how much is left of a tenure at now: until deadline after the last acknowledged renewal was sent, on
// whichever of the two clocks that comes first. The monotonic clock is the one that counts, since it cannot be set. But
// on Linux it stands still while the machine sleeps, and the wall clock does not. A wall clock that is set back changes
// nothing.
func Left(deadline time.Duration, sent, now Instant) time.Duration {
	return deadline - max(now.Mono.Sub(sent.Mono), now.Wall.Round(0).Sub(sent.Wall.Round(0)))
}
