package reconcile

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// pausedKeys are those that a controller does not reconcile because [Controller.Pause] was called for them.
type pausedKeys struct {
	n  atomic.Int64 // of keys, so that a run looks for its key only if there is one
	mu sync.Mutex
	// Guarded by mu. named says that a worker has taken the key meanwhile.
	keys map[Key]*pausedKey
}

type pausedKey struct {
	since time.Time
	named bool
}

// Pause keeps a key from being reconciled until [Controller.Resume] is called for it. It reports whether the key was
// not paused already. A call that goes on is not disturbed. What names the key meanwhile is remembered as it always is:
// the key waits, holds no worker, and runs once when it is resumed. Its delays end as if it were not paused.
//
// A pause is of this process and this controller: it is not in the cluster. It ends with the process, and the next
// leader does not know of it. The key need not exist.
func (c *Controller) Pause(key Key) bool {
	p := &c.paused
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys[key] != nil {
		return false
	}
	if p.keys == nil {
		p.keys = make(map[Key]*pausedKey)
	}
	p.keys[key] = &pausedKey{since: time.Now()}
	p.n.Add(1)
	return true
}

// Resume ends the pause of a key, and reports whether there was one. If the key has been due meanwhile, it is
// reconciled as soon as a worker is free.
func (c *Controller) Resume(key Key) bool {
	p := &c.paused
	p.mu.Lock()
	k := p.keys[key]
	if k != nil {
		delete(p.keys, key)
		p.n.Add(-1)
	}
	p.mu.Unlock()
	if k == nil {
		return false
	}
	if k.named {
		c.history.heldBack(key, status.Wait{For: status.WaitPaused, From: k.since, To: time.Now()})
		c.add(key, false)
	}
	return true
}

// holds reports whether a key that a worker has taken is paused. If so, Resume adds it again.
func (p *pausedKeys) holds(key Key) bool {
	if p.n.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	if k != nil {
		k.named = true
	}
	return k != nil
}

// all returns the paused keys, each with the time at which it was paused.
func (p *pausedKeys) all() map[Key]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[Key]time.Time, len(p.keys))
	for key, k := range p.keys {
		all[key] = k.since
	}
	return all
}
