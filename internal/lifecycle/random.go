package lifecycle

import (
	"math/rand/v2"
	"time"
)

// Random returns a number from 0 up to but not including 1, to spread what would otherwise happen at once: it is a hash
// of the time, to the nanosecond, and of what the number is for. It keeps no state, needs no seed and is safe for
// concurrent use. Secrets must not depend on it.
//
// In a bubble of testing/synctest time is virtual, so the number is the same in every run of a test, in whatever order
// goroutines ask. A test that lets a nanosecond pass first gets other numbers: that is how package reconciletest seeds
// a run.
//
// Two numbers for the same purpose at the same instant are equal. So the purpose names what must not act in step: the
// informer, the key, the candidate.
func Random(purpose ...string) float64 {
	return rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), hashOf(purpose))).Float64()
}

// hashOf is FNV-1a, which is the same in every process, unlike hash/maphash. Each part ends with a byte that is in no
// text.
func hashOf(parts []string) uint64 {
	h := uint64(14695981039346656037)
	for _, part := range parts {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	return h
}

// RandomDuration returns a [Random] duration from 0 up to but not including d.
func RandomDuration(d time.Duration, purpose ...string) time.Duration {
	return time.Duration(Random(purpose...) * float64(d))
}
