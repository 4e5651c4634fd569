package informer

import (
	"slices"
	"sync"
	"sync/atomic"
)

// delta is one step in the life of a key, on its way from the reflector to the store.
type delta[T any] struct {
	item[T]
	deleted bool
	// stale marks a state that the store holds already, or a newer one; the store finds out.
	stale bool
	// invalid says why this live state cannot be held. The value is not set.
	invalid error
	// unseen marks a deletion that came without the object's last state. The value is not set.
	unseen bool
	// changed marks a state that a watch has told of as a change, not as a part of a list.
	changed bool
	// repeated marks a state, changed or not, without a new version: it is one of the state that the store held when
	// this was received, and of no later one.
	repeated bool
	// epoch is the number of the list that was the latest to begin when this was received.
	epoch uint64
}

// pending is what a key has been through since it was last popped: at most one deletion, followed by at most one live
// state.
//
// Two steps are enough for every history. A live state replaces the live state before it: of several updates only the
// newest matters. A deletion cancels the live state before it. A deletion that follows a deletion belongs to an object
// that was created and deleted in between, which the store has never held; the first one describes the object that it
// does hold.
type pending[T any] struct {
	gone *delta[T] // rare, or it would stand here itself: it doubles the memory
	live delta[T]  // means something if alive
	// alive says that there is a live state.
	alive bool
}

// endsAt reports whether the last of it is a live state of that version.
func (p *pending[T]) endsAt(resourceVersion string) bool {
	return p.alive && p.live.resourceVersion == resourceVersion
}

// deltaFIFO is the buffer between the reflector, which must keep reading so that the server does not close its watch,
// and the store. It keeps the keys in the order of their first pending step, merges the steps of each (see [pending]),
// and is emptied whole: its size is bounded by the number of keys, not by how long nobody has popped.
//
// While a handler wants every change (see HandlerOptions.Every) nothing is merged: the steps stay as they came, and
// their number is bounded by nothing but how fast the store is.
//
// Lists end and bookmarks arrive in the same order as the deltas around them. They have no key, so they travel as the
// state of the batch: sweep, complete and resourceVersion say what is true once all of the batch's deltas have been
// applied.
type deltaFIFO[T any] struct {
	mu sync.Mutex

	// Guarded by mu. The steps of key k are steps[places[k]], in the order of the keys' first steps. They stand in
	// place, and their array is used again: an allocation for each step was a third of what an update costs.
	steps  []pending[T]
	places map[Key]int
	// Guarded by mu. If steps are not merged, several may be of one key: then places tells the latest. Between two of
	// them there is a cut, which is the number of the steps before it.
	cuts []int
	// Guarded by mu. The rest of the next batch.
	resourceVersion          string
	sweep, complete, rewound uint64
	spare                    []delta[T] // empty: the array of the batch before
	small                    int        // batches in a row that needed little of the room that there is
	dropped                  bool       // nothing is added any more

	// filled is true if there may be something to pop; then ready, which the FIFOs of all list-watches share, holds a
	// token, or its receiver is about to look.
	filled atomic.Bool
	ready  chan<- struct{}

	// every, which the FIFOs of all list-watches share, is true while somebody wants each step.
	every *atomic.Bool
}

// batch is everything that was in the FIFO at once.
type batch[T any] struct {
	deltas []delta[T]
	// cuts are numbers of deltas, rising. Between two of them no key has more than a deletion and a live state that
	// follows it.
	cuts  []int
	taken int // by next
	// resourceVersion, unless empty, is the version that the store has reached once deltas are applied.
	resourceVersion string
	// sweep, unless zero, is the epoch of a list that came to its end: what the store holds from an older epoch is no
	// longer on the server.
	sweep uint64
	// complete, unless zero, is the epoch of a list that has been added as a whole.
	complete uint64
	// rewound, unless zero, is the epoch of a list of a cluster that has gone back in time: its versions, and those of
	// what followed, are not to be compared with those from before.
	rewound uint64
}

// next takes up to n more of the deltas, and none from behind the next cut. It returns none when there are no more.
func (b *batch[T]) next(n int) []delta[T] {
	end := min(b.taken+n, len(b.deltas))
	if len(b.cuts) > 0 && b.cuts[0] <= end {
		end, b.cuts = b.cuts[0], b.cuts[1:]
	}
	some := b.deltas[b.taken:end]
	b.taken = end
	return some
}

func newDeltaFIFO[T any](ready chan<- struct{}, every *atomic.Bool) *deltaFIFO[T] {
	return &deltaFIFO[T]{places: make(map[Key]int), ready: ready, every: every}
}

// add appends a step to the history of its key. With reached, everything up to that version has then been added.
func (f *deltaFIFO[T]) add(d delta[T], reached string) {
	f.mu.Lock()
	if f.dropped {
		f.mu.Unlock()
		return
	}
	if reached != "" {
		f.resourceVersion = reached
	}
	place, queued := f.places[d.key]
	if queued && d.repeated && !f.steps[place].endsAt(d.resourceVersion) { // what waits is later
		f.mu.Unlock()
		f.signal()
		return
	}
	if queued && f.every.Load() {
		if len(f.cuts) == 0 || place >= f.cuts[len(f.cuts)-1] {
			f.cuts = append(f.cuts, len(f.steps))
		}
		queued = false
	}
	if !queued {
		place = len(f.steps)
		f.places[d.key] = place
		f.steps = append(f.steps, pending[T]{})
	}
	switch p := &f.steps[place]; {
	case !d.deleted:
		d.repeated = d.repeated && (p.live.repeated || !queued)
		d.changed = d.changed || p.live.changed
		p.live, p.alive = d, true
	case p.gone == nil:
		gone := d
		*p = pending[T]{gone: &gone}
	default:
		p.live, p.alive = delta[T]{}, false
	}
	f.mu.Unlock()
	f.signal()
}

// reached says that everything up to resourceVersion has been added.
func (f *deltaFIFO[T]) reached(resourceVersion string) {
	f.mu.Lock()
	f.resourceVersion = resourceVersion
	f.mu.Unlock()
	f.signal()
}

// swept says that the list of that epoch has come to its end: what it did not contain is gone.
func (f *deltaFIFO[T]) swept(epoch uint64) {
	f.mu.Lock()
	f.sweep = epoch
	f.mu.Unlock()
	f.signal()
}

// listed says that all of the list of that epoch, which ended at resourceVersion, has been added.
func (f *deltaFIFO[T]) listed(epoch uint64, resourceVersion string) {
	f.mu.Lock()
	f.complete, f.resourceVersion = epoch, resourceVersion
	f.mu.Unlock()
	f.signal()
}

// rewind says that the cluster was found to have gone back in time by the list of that epoch, before anything of it is
// added.
func (f *deltaFIFO[T]) rewind(epoch uint64) {
	f.mu.Lock()
	f.rewound = epoch
	f.mu.Unlock()
}

func (f *deltaFIFO[T]) signal() {
	if !f.filled.Load() {
		f.filled.Store(true)
	}
	select {
	case f.ready <- struct{}{}:
	default: // a token is there already
	}
}

// pop empties the FIFO, or returns false if there is nothing in it. It does not wait: receive from ready first. The
// batch is to be given back to applied.
func (f *deltaFIFO[T]) pop() (batch[T], bool) {
	if !f.filled.Swap(false) {
		return batch[T]{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := batch[T]{resourceVersion: f.resourceVersion, sweep: f.sweep, complete: f.complete, rewound: f.rewound,
		deltas: slices.Grow(f.spare, len(f.steps))}
	cuts := f.cuts // of the steps; they become those of the deltas
	for i := range f.steps {
		if len(cuts) > 0 && cuts[0] == i {
			b.cuts, cuts = append(b.cuts, len(b.deltas)), cuts[1:]
		}
		p := &f.steps[i]
		if p.gone != nil {
			b.deltas = append(b.deltas, *p.gone)
		}
		if p.alive {
			b.deltas = append(b.deltas, p.live)
		}
	}
	// A map keeps the buckets of its largest size for ever, so one that a first list has blown up is let go, and so are
	// the arrays. What a burst has blown up is used again, as long as there are more of the kind: until nothing comes
	// but a bookmark, or little for a while.
	n := len(f.steps)
	if f.small++; n >= cap(f.steps)/4 || cap(f.steps) <= leastSpare {
		f.small = 0
	}
	if n > mostSpare || f.small == mostSmall || n == 0 && f.small > 0 {
		f.places, f.steps, f.small = make(map[Key]int), nil, 0
	}
	clear(f.places)
	clear(f.steps) // or they would keep objects alive
	f.steps, f.cuts, f.spare = f.steps[:0], nil, nil
	f.resourceVersion, f.sweep, f.complete, f.rewound = "", 0, 0, 0
	return b, true
}

// Memory for so many steps is always kept, for more than so many it never is, and for a number in between it is kept
// until so many batches in a row have needed little of it: a burst has small ones, too, and to grow anew each time was
// a twentieth of all that it allocated.
const leastSpare, mostSpare, mostSmall = 512, 1024, 64

// applied says that a batch is in the store, or dropped.
func (f *deltaFIFO[T]) applied(b batch[T]) {
	clear(b.deltas)
	f.mu.Lock()
	if cap(b.deltas) <= max(leastSpare, 2*cap(f.steps)) { // a larger one is of a burst whose steps have been let go
		f.spare = b.deltas[:0]
	}
	f.mu.Unlock()
}

// drop empties the FIFO for good: what a call of user code still returns after it is not kept.
func (f *deltaFIFO[T]) drop() {
	f.mu.Lock()
	f.dropped = true
	f.mu.Unlock()
	b, _ := f.pop()
	f.applied(b)
}
