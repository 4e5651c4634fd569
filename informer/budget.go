package informer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// errFull is the error of a list or watch that Options.MaxBytes has no room for.
var errFull = fmt.Errorf("%w: the objects are more than Options.MaxBytes", ErrTooLarge)

// budget bounds the objects that an informer holds, in the store, in the FIFOs before it, or in quarantine, by the size of their encoded form. The objects
// themselves take some times as much. Its lanes share it: who comes first has the room.
type budget struct {
	max int64 // zero: no bound
	// stored is the store's, see indexer; waiting is the size of what was added to the FIFOs and has not been applied to the store.
	stored               *atomic.Int64
	waiting, quarantined atomic.Int64

	mu sync.Mutex
	// Guarded by mu: closed, and forgotten, when less is waiting; nil while nobody wants to know.
	drained chan struct{}
}

// room returns an error unless there is room for a state of that size of that object, which replaces the one that the store has. A list that is faster
// than the store waits for it here: what waits in the FIFOs counts, too.
func (r *reflector[T]) room(ctx context.Context, key Key, size int64) error {
	b := r.budget
	if b.max == 0 {
		return nil
	}
	for {
		waiting, drained := b.load()
		if b.stored.Load()+waiting+b.quarantined.Load()+size <= b.max {
			return nil
		}
		if waiting == 0 {
			break
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if b.stored.Load()-r.store.sizeOf(key)+b.quarantined.Load()+size <= b.max {
		return nil
	}
	return errFull
}

// load returns how much is waiting, and a channel that is closed when that has become less.
func (b *budget) load() (int64, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drained == nil {
		b.drained = make(chan struct{})
	}
	return b.waiting.Load(), b.drained
}

// applied says that so much of what was waiting is in the store, or dropped.
func (b *budget) applied(bytes int64) {
	if bytes == 0 {
		return
	}
	b.waiting.Add(-bytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drained != nil {
		close(b.drained)
		b.drained = nil
	}
}
