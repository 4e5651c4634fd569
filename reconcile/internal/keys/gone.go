package keys

import (
	"sync"
	"time"
)

// Gone are keys that were let go, and that no object of a cache names: those of deleted objects, and those that Enqueue
// has named. If their slice comes within a while they are named again: the last owner's watch may have been so late
// that it has not seen the deletion. The zero Gone is ready to use; safe for concurrent use.
type Gone struct {
	mu sync.Mutex
	// Guarded by mu.
	keys  map[Key]time.Time // when they were let go
	swept int               // how many there were after the last sweep
}

// Add adds a key. From time to time it forgets those that are older than a while, but for those that are still wanted.
func (g *Gone) Add(key Key, while time.Duration, wanted func(Key) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keys == nil {
		g.keys = make(map[Key]time.Time)
	}
	now := time.Now()
	g.keys[key] = now
	if len(g.keys) < max(2*g.swept, 1024) {
		return
	}
	left := make(map[Key]time.Time)
	for key, at := range g.keys {
		if now.Sub(at) < while || wanted(key) {
			left[key] = at
		}
	}
	g.keys, g.swept = left, len(left)
}

// All returns them, in no particular order.
func (g *Gone) All() (all []Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.keys {
		all = append(all, key)
	}
	return all
}
