package informer

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// delta is one step in the life of a key, on its way from the reflector to the store.
type delta[T any] struct {
	item[T]
	deleted bool
	// known marks a state that the store holds already, or a newer one; the store finds out.
	known bool
	// invalid says why this live state cannot be held; nil if it can. The value is not set.
	invalid *InvalidError
	// unseen marks a deletion that came without the object's last state. The value is not set.
	unseen bool
	// changed marks a state that a watch has sent as a change, not as a part of a list.
	changed bool
	// repeated marks a state that has the version which the store held when it was received. If the store holds
	// another version by now, this state is older.
	repeated bool
	// epoch is the number of the list that was the latest to begin when this was received.
	epoch uint64
}

// pending is what a key has been through since it was last popped: at most one deletion, followed by at most one live
// state.
//
// Two steps are enough for every history. A live state replaces the live state before it: of several updates only the
// newest matters. A deletion cancels the live state before it. A deletion that follows a deletion belongs to an
// object that was created and deleted in between, which the store has never held; the first one describes the object
// that it does hold. If the store holds none, nothing is left of the two.
type pending[T any] struct {
	gone *delta[T] // rare, or it would stand here itself: it doubles the memory
	live delta[T]  // means something if alive
	// alive says that there is a live state.
	alive bool
}

// endsAt reports whether the last step is a live state of that version.
func (p *pending[T]) endsAt(resourceVersion string) bool {
	return p.alive && p.live.resourceVersion == resourceVersion
}

func (p *pending[T]) key() Key {
	if p.gone != nil {
		return p.gone.key
	}
	return p.live.key
}

// deltaFIFO is the buffer between the reflector, which must keep reading so that the server does not close its watch,
// and the store. It merges the steps of each key (see [pending]), and is emptied whole: its size is bounded by the
// number of keys that exist or that the store holds, not by how long the store has been busy.
//
// While a handler wants every change (see HandlerOptions.Every) nothing is merged: the steps stay as they came, and
// only the speed of the store bounds their number.
//
// Lists end and bookmarks arrive in the same order as the deltas around them. They have no key, so they travel as the
// state of the batch: sweep, complete and resourceVersion say what is true once all of the batch's deltas have been
// applied.
type deltaFIFO[T any] struct {
	// These never change. The FIFOs of all list-watches share them. ready holds a token whenever there may be
	// something in one of them; every is true while a handler wants each step.
	ready chan<- struct{}
	every *atomic.Bool
	// stored says what the store has of a key. It takes the store's lock, and is called with mu held.
	stored func(Key) stored

	// comparing is true while the store is compared with the server, which wants to know of every key that has had a
	// step: see verifier.
	comparing atomic.Bool

	// filled is true if there may be something to pop; then ready holds a token, or its receiver is about to look.
	filled atomic.Bool

	mu sync.Mutex
	// Guarded by mu. The steps of key k are steps[positions[k]]. The array is used again: an allocation for each step
	// was a third of what an update costs.
	steps     []pending[T]
	positions map[Key]int
	// Guarded by mu. If steps are not merged, several may be of one key: then positions tells the latest. Between two
	// of them there is a cut, which is the number of the steps before it.
	cuts    []int
	outcome // Guarded by mu: that of the next batch.
	// Guarded by mu: when what is being added had come.
	now time.Time
	// Guarded by mu: the deltas of the batch that is on its way into the store, and, once they were needed, their keys.
	popped     []delta[T]
	poppedKeys map[Key]struct{}
	// Guarded by mu. spare is the array of the batch before, empty; small counts batches in a row that needed little
	// of the room that there is. Once dropped is true, nothing is added any more.
	spare   []delta[T]
	small   int
	dropped bool
}

// batch is everything that was in the FIFO at once.
type batch[T any] struct {
	deltas []delta[T]
	// cuts are numbers of deltas, rising. Between two of them no key has more than a deletion and a live state that
	// follows it.
	cuts []int
	done int // how many deltas next has returned
	outcome
}

// outcome is what becomes true once the deltas of a batch are applied. Each field may be zero, and then says nothing.
type outcome struct {
	// resourceVersion is the version that the store has reached, with what had come by the time came.
	resourceVersion string
	came            time.Time
	// sweep is the epoch of a list that came to its end: what the store holds from an older epoch is no longer on the
	// server.
	sweep uint64
	// complete is the epoch of a list that has been added as a whole.
	complete uint64
	// growth is that of the share of which everything has been added: see kept.
	growth uint64
	// rewound is the epoch of a list of a cluster that has gone back in time: its versions, and those of what
	// followed, cannot be compared with those from before. It is true before the deltas are applied.
	rewound uint64
}

// next returns up to n more of the deltas, and none from behind the next cut. It returns none when there are no more.
func (b *batch[T]) next(n int) []delta[T] {
	end := min(b.done+n, len(b.deltas))
	if len(b.cuts) > 0 && b.cuts[0] <= end {
		end, b.cuts = b.cuts[0], b.cuts[1:]
	}
	some := b.deltas[b.done:end]
	b.done = end
	return some
}

func newDeltaFIFO[T any](ready chan<- struct{}, every *atomic.Bool, stored func(Key) stored) *deltaFIFO[T] {
	return &deltaFIFO[T]{positions: make(map[Key]int), ready: ready, every: every, stored: stored}
}

// len returns how many steps wait.
func (f *deltaFIFO[T]) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.steps)
}

// add appends a step to the history of its key. With upTo, everything up to that version has then been added.
func (f *deltaFIFO[T]) add(d delta[T], upTo string) {
	f.mu.Lock()
	if f.dropped {
		f.mu.Unlock()
		return
	}
	if upTo != "" {
		f.resourceVersion, f.came = upTo, f.now
	}
	position, queued := f.positions[d.key]
	if queued && d.repeated && !f.steps[position].endsAt(d.resourceVersion) { // what waits is later
		f.mu.Unlock()
		f.signal()
		return
	}
	if queued && f.every.Load() {
		if len(f.cuts) == 0 || position >= f.cuts[len(f.cuts)-1] {
			f.cuts = append(f.cuts, len(f.steps))
		}
		queued = false
	}
	if !queued {
		position = len(f.steps)
		f.positions[d.key] = position
		f.steps = append(f.steps, pending[T]{})
	}
	switch p := &f.steps[position]; {
	case !d.deleted:
		d.repeated = d.repeated && (p.live.repeated || !queued)
		d.changed = d.changed || p.live.changed
		p.live, p.alive = d, true
	case p.gone != nil:
		p.live, p.alive = delta[T]{}, false
	case p.alive && f.unknownLocked(d.key):
		f.forgetLocked(d.key, position)
	default:
		gone := d
		*p = pending[T]{gone: &gone}
	}
	f.mu.Unlock()
	f.signal()
}

// leave is add with the deletion of an object that the informer does not keep. Mostly nothing is known of the object,
// and there is nothing to do.
func (f *deltaFIFO[T]) leave(d delta[T], upTo string) {
	f.mu.Lock()
	_, queued := f.positions[d.key]
	known := queued || !f.unknownLocked(d.key)
	f.mu.Unlock()
	switch { // meanwhile nothing is added, for the caller is the only one that does
	case known:
		f.add(d, upTo)
	case upTo != "":
		f.advance(upTo)
	}
}

// unknownLocked reports whether the store knows nothing of a key, and will not before it has what waits for it here.
func (f *deltaFIFO[T]) unknownLocked(key Key) bool {
	if len(f.cuts) > 0 || f.comparing.Load() {
		return false
	}
	if f.poppedKeys == nil && len(f.popped) > 0 {
		f.poppedKeys = make(map[Key]struct{}, len(f.popped))
		for i := range f.popped {
			f.poppedKeys[f.popped[i].key] = struct{}{}
		}
	}
	if _, popped := f.poppedKeys[key]; popped {
		return false
	}
	s := f.stored(key)
	return !s.held && !s.rejected
}

// forgetLocked forgets the steps of a key. The last ones move into the gap.
func (f *deltaFIFO[T]) forgetLocked(key Key, position int) {
	last := len(f.steps) - 1
	f.steps[position] = f.steps[last]
	f.steps[last] = pending[T]{}
	f.steps = f.steps[:last]
	if position < last {
		f.positions[f.steps[position].key()] = position
	}
	delete(f.positions, key)
}

// arrived says when what is added from now on had come.
func (f *deltaFIFO[T]) arrived(now time.Time) {
	f.mu.Lock()
	f.now = now
	f.mu.Unlock()
}

// advance says that everything up to resourceVersion has been added.
func (f *deltaFIFO[T]) advance(resourceVersion string) {
	f.mu.Lock()
	f.resourceVersion, f.came = resourceVersion, f.now
	f.mu.Unlock()
	f.signal()
}

// listed says that all of the list of that epoch, which ended at resourceVersion, has been added. With sweeps, what it
// did not contain is gone.
func (f *deltaFIFO[T]) listed(epoch uint64, resourceVersion string, sweeps bool) {
	f.mu.Lock()
	f.complete, f.resourceVersion, f.came = epoch, resourceVersion, f.now
	if sweeps {
		f.sweep = epoch
	}
	f.mu.Unlock()
	f.signal()
}

// fill says that everything of the share's growth has been added.
func (f *deltaFIFO[T]) fill(growth uint64) {
	f.mu.Lock()
	f.growth = growth
	f.mu.Unlock()
	f.signal()
}

// rewind says that the cluster was found to have gone back in time by the list of that epoch, before anything of it
// is added.
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

// pop empties the FIFO, or returns false if there is nothing in it. It does not wait: receive from ready first. Give
// the batch back with release.
func (f *deltaFIFO[T]) pop() (batch[T], bool) {
	if !f.filled.Swap(false) {
		return batch[T]{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := batch[T]{outcome: f.outcome, deltas: slices.Grow(f.spare, len(f.steps))}
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
	// A map keeps the buckets of its largest size for ever, so the map of a first list is dropped, and so are the
	// arrays. Those of a burst are used again as long as more bursts come: until a batch is empty, or many in a row
	// are small.
	n := len(f.steps)
	f.small++
	if n >= cap(f.steps)/4 || cap(f.steps) <= leastSpare {
		f.small = 0
	}
	if n > mostSpare || f.small == mostSmall || n == 0 && f.small > 0 {
		f.positions, f.steps, f.small = make(map[Key]int), nil, 0
	}
	clear(f.positions)
	clear(f.steps) // or they would keep objects alive
	f.steps, f.cuts, f.spare, f.outcome = f.steps[:0], nil, nil, outcome{}
	f.popped, f.poppedKeys = b.deltas, nil
	return b, true
}

// Memory for leastSpare steps is always kept, for more than mostSpare never, and for a number in between until
// mostSmall batches in a row have needed little of it: a burst has small ones, too, and growing anew each time was a
// twentieth of all that it allocated.
const leastSpare, mostSpare, mostSmall = 512, 1024, 64

// release says that a batch is in the store, or dropped, and its memory may be used again.
func (f *deltaFIFO[T]) release(b batch[T]) {
	f.mu.Lock()
	f.popped, f.poppedKeys = nil, nil
	clear(b.deltas)
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
	f.filled.Store(true) // of a step that is in, it may not be true yet
	b, _ := f.pop()
	f.release(b)
}
