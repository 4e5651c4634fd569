package informer

import (
	"context"
	"fmt"
)

// errFull is the error of a list or watch that Options.MaxBytes has no room for.
var errFull = fmt.Errorf("%w: the objects are more than Options.MaxBytes", ErrTooLarge)

// budget bounds the objects that an informer holds, in the store, in the FIFO before it, or in quarantine, by the size of their encoded form. The objects
// themselves take some times as much.
type budget[T any] struct {
	max   int64 // zero: no bound
	store *indexer[T]
}

// room returns an error unless there is room for a state of that size of that object, which replaces the one that the store has. A list that is faster
// than the store waits for it here: what waits in the FIFO counts, too.
func (r *reflector[T]) room(ctx context.Context, key Key, size int64) error {
	b := &r.budget
	if b.max == 0 {
		return nil
	}
	for {
		waiting := r.fifo.bytes.Load()
		if b.store.bytes.Load()+waiting+r.quarantine.bytes+size <= b.max {
			return nil
		}
		if waiting == 0 {
			break
		}
		select {
		case <-r.fifo.drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if b.store.bytes.Load()-b.store.sizeOf(key)+r.quarantine.bytes+size <= b.max {
		return nil
	}
	return errFull
}
