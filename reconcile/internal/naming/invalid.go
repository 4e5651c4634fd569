package naming

import (
	"sync"
	"sync/atomic"

	"github.com/thermostat-go/thermostat/informer"
)

// Invalid has the objects of a source that are invalid because a function of the source panics on them. Safe for
// concurrent use.
type Invalid struct {
	n   atomic.Int64 // of objects, so that a run takes no lock if there is none
	mu  sync.Mutex
	why map[Key]*informer.InvalidError // guarded by mu
}

func (o *Invalid) set(key Key, why *informer.InvalidError) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why == nil {
		o.why = make(map[Key]*informer.InvalidError)
	}
	o.why[key] = why
	o.n.Store(int64(len(o.why)))
}

func (o *Invalid) remove(key Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.why, key)
	o.n.Store(int64(len(o.why)))
}

// Len returns how many objects there are.
func (o *Invalid) Len() int { return int(o.n.Load()) }

// Example returns the first of the objects by name, and how many there are.
func (o *Invalid) Example() (first Key, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.why {
		if n++; n == 1 || key.String() < first.String() {
			first = key
		}
	}
	return first, n
}

// Of returns why the object of a key is invalid, or nil.
func (o *Invalid) Of(key Key) error {
	if o.n.Load() == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if why := o.why[key]; why != nil {
		return why
	}
	return nil
}
