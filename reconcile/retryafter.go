package reconcile

import (
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// longestPause is the longest pause that a server can ask a key to make.
const longestPause = 5 * time.Minute

// refusals are the keys that may not run yet: the API server has refused a request of their last run, and asked with
// Retry-After to wait. A change does not end the wait, since the run that it starts would send the same request again.
type refusals struct {
	// n is len(until), so that a worker takes no lock as long as the server refuses nothing.
	n atomic.Int64

	mu    sync.Mutex
	until map[Key]time.Time // guarded by mu; each of its keys is delayed in the queue, so each is taken again
}

// begin keeps a key from running for d.
func (p *refusals) begin(key Key, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = make(map[Key]time.Time)
	}
	p.until[key] = time.Now().Add(d)
	p.n.Store(int64(len(p.until)))
}

// left returns how long a key has to wait. It forgets a pause that is over.
func (p *refusals) left(key Key) time.Duration {
	if p.n.Load() == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.until[key]
	if !ok {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		delete(p.until, key)
		p.n.Store(int64(len(p.until)))
	}
	return max(left, 0)
}

// all returns the keys that have to wait.
func (p *refusals) all() map[Key]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[Key]bool, len(p.until))
	for key, until := range p.until {
		all[key] = time.Until(until) > 0
	}
	return all
}

// pauseOf returns the pause that the server has asked for with an error that wraps no other one, or zero.
func pauseOf(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok || seconds <= 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, longestPause)
}
