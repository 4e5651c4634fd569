package informer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

// ErrTooLarge is wrapped by the errors of whatever exceeds a bound: an object, a list, or Options.MaxBytes.
var ErrTooLarge = wire.ErrTooLarge

// errFull is the error of a list or watch that Options.MaxBytes has no room for.
var errFull = fmt.Errorf("%w: the objects are more than Options.MaxBytes", ErrTooLarge)

// budget bounds the objects that an informer holds, in the store, in the FIFOs before it, or in quarantine, by the size
// of their encoded form. The objects themselves take some times as much. Its lanes share it: who comes first has the
// room.
type budget struct {
	max int64 // zero: no bound
	// stored is the store's, see indexer; waiting is the size of what was added to the FIFOs and has not been applied
	// to the store.
	stored               *atomic.Int64
	waiting, quarantined atomic.Int64
	// drained rings when less is waiting, and freed when a namespace has left, with all that was held of it.
	drained, freed bell
}

// bell wakes whoever waits for something that happens now and then. The zero value is ready for use.
type bell struct {
	mu   sync.Mutex
	next chan struct{} // guarded by mu: closed, and forgotten, when it rings; nil while nobody wants to know
}

// listen returns a channel that is closed when the bell rings next.
func (b *bell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// room returns an error unless there is room for a state of that size of that object, which replaces the one that the
// store has. A list that is faster than the store waits for it here: what waits in the FIFOs counts, too.
func (r *reflector[T]) room(ctx context.Context, key Key, size int64) error {
	b := r.budget
	if b.max == 0 {
		return nil
	}
	if p, ok := r.quarantine.patients[key]; ok {
		size -= p.size // which it replaces, too
	}
	for {
		r.pulse.does(receiving)
		drained := b.drained.listen()
		waiting := b.waiting.Load()
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

// applied says that so much of what was waiting is in the store, or dropped.
func (b *budget) applied(bytes int64) {
	if bytes == 0 {
		return
	}
	b.waiting.Add(-bytes)
	b.drained.ring()
}
