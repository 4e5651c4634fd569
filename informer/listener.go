package informer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// listener stands between the writer of the store and one handler: a buffer, and the goroutine that empties it. However
// slow a handler is, it delays nobody else, and what waits for it is bounded by what the store holds.
//
// An inline listener has neither: the writer calls its handler.
type listener[T any] struct {
	name    string
	handler Handler[T]
	inline  bool
	every   bool                                    // nothing is merged
	crash   bool                                    // a panic is nobody's to recover
	reached func(namespace, resourceVersion string) // nil if nobody wants to know
	resync  *rotation                               // nil if nobody wants it; the writer's

	mu sync.Mutex
	// Guarded by mu. batches[head:] are the events that the handler's goroutine has not taken yet, waiting of them,
	// oldest first; what stands before head is nil. A batch is shared with the other listeners, so nobody changes it:
	// copying each event for each of ten handlers took a third of the time of an update. An event of no type is a mark:
	// all of the initial state stands before it.
	batches [][]Event[T]
	head    int
	waiting int
	// Guarded by mu. The number of events from which on they are merged, unless the store holds more than half as many
	// objects: twice what the last merge left, so that the cost of merging stays in proportion to the events.
	limit int
	// Written with mu held. Once removed is true, nothing is buffered and the goroutine ends; ended is closed by it, or
	// by remove if it never started.
	started bool
	removed atomic.Bool
	// hand is what the goroutine has taken and not called the handler with; it alone looks at it, and everybody at the
	// number, which is inHand.
	hand   []Event[T]
	inHand atomic.Int64
	// Guarded by mu: how many keys stand in redelivery, and how many events were merged away.
	owed, merged int

	redelivery redelivery[T]

	// wake holds a token whenever there may be something to do.
	wake chan struct{}
	// synced is closed when the handler is through with the initial state; ended, when it will not be called again.
	synced, ended chan struct{}

	panics lifecycle.LogLimit
}

// minBuffer is how many events may wait for a handler of a small store before they are merged.
const minBuffer = 1024

func newListener[T any](h Handler[T], opts HandlerOptions) *listener[T] {
	l := &listener[T]{
		name: opts.Name, handler: h, inline: opts.Inline, every: opts.Every, crash: opts.CrashOnPanic,
		reached: opts.Reached, limit: minBuffer,
		wake: make(chan struct{}, 1), synced: make(chan struct{}), ended: make(chan struct{}),
		redelivery: newRedelivery[T](),
	}
	if l.name == "" {
		l.name = "handler"
	}
	if opts.Resync > 0 {
		l.resync = newRotation(opts.Resync)
	}
	return l
}

// reach tells the listener that the store has reached a version in a namespace. The writer calls it.
func (l *listener[T]) reach(log klog.Logger, namespace, resourceVersion string) {
	if l.reached == nil || l.isRemoved() {
		return
	}
	l.attempt(func() { l.reached(namespace, resourceVersion) }, func(err error) {
		if held, ok := l.panics.Allow(linesPerMinute); ok {
			about := withStack([]any{"handler", l.name, "notLogged", held}, err)
			log.Error(err, "HandlerOptions.Reached panicked", about...)
		}
	})
}

// push hands events to the listener and reports whether it still wants more. They are the listener's from now on, and
// may be those of others, too: nobody changes them. The writer calls it; stored is how many objects the store holds.
func (l *listener[T]) push(log klog.Logger, stored int, events ...Event[T]) bool {
	if l.inline {
		lifecycle.Each(len(events), func(i int) {
			if !l.isRemoved() {
				l.deliver(log, events[i])
			}
		})
		return !l.isRemoved()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isRemoved() {
		return false
	}
	if len(events) == 0 {
		return true
	}
	if l.head > len(l.batches)/2 {
		// Most of it has been taken: move the rest to the front, or a handler that is never quite done would let the
		// array grow for ever.
		rest := copy(l.batches, l.batches[l.head:])
		clear(l.batches[rest:])
		l.batches, l.head = l.batches[:rest], 0
	}
	l.batches = append(l.batches, events)
	l.waiting += len(events)
	if l.waiting > max(l.limit, 2*stored) && !l.every {
		l.merge()
		l.limit = max(minBuffer, 2*l.waiting)
	}
	l.signal()
	return true
}

// merge merges what waits. mu is held.
func (l *listener[T]) merge() {
	merged := merge(slices.Concat(l.batches[l.head:]...))
	l.merged += l.waiting - len(merged)
	l.batches, l.head, l.waiting = nil, 0, len(merged)
	for batch := range slices.Chunk(merged, chunk) {
		// each on its own, so that those that the handler is through with can go
		l.batches = append(l.batches, slices.Clone(batch))
	}
}

// next takes the oldest batch in hand, and reports whether there was one.
func (l *listener[T]) next() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head == len(l.batches) {
		return false
	}
	l.hand, l.batches[l.head] = l.batches[l.head], nil
	l.head++
	l.waiting -= len(l.hand)
	l.inHand.Store(int64(len(l.hand)))
	if l.head == len(l.batches) {
		l.batches, l.head, l.limit = l.batches[:0], 0, minBuffer
		if cap(l.batches) > minBuffer {
			l.batches = nil // a burst has passed, its memory goes
		}
	}
	return true
}

func (l *listener[T]) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // a token is there already
	}
}

// start claims the right to run, which a listener that has been removed no longer has.
func (l *listener[T]) start() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = !l.isRemoved()
	return l.started
}

// run calls the handler until ctx ends or the listener is removed. If the handler ends the goroutine, it is to be
// called again, on another one.
func (l *listener[T]) run(ctx context.Context, log klog.Logger) {
	for {
		l.work(ctx, log)
		for !l.isOver(ctx) && l.next() {
			l.work(ctx, log)
		}
		if l.isOver(ctx) {
			close(l.ended)
			return
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-l.redelivery.due.C:
			l.redeliver(ctx, log)
		}
	}
}

// work calls the handler with what is in hand, and in between with what it owes, until ctx ends or the listener is
// removed.
func (l *listener[T]) work(ctx context.Context, log klog.Logger) {
	for len(l.hand) > 0 {
		if len(l.redelivery.failing) > 0 { // asking the timer takes longer than all the rest
			select {
			case <-l.redelivery.due.C:
				l.redeliver(ctx, log)
			default:
			}
		}
		if l.isOver(ctx) {
			l.hand = nil
			break
		}
		e := l.hand[0]
		l.hand = l.hand[1:]
		l.inHand.Add(-1)
		l.deliver(log, e)
	}
	l.inHand.Store(0)
}

// remove makes the listener deaf. It does not wait for a call of the handler that is under way.
func (l *listener[T]) remove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isRemoved() && !l.started {
		close(l.ended)
	}
	l.removed.Store(true)
	l.batches, l.head, l.waiting = nil, 0, 0
	l.signal()
}

func (l *listener[T]) isRemoved() bool { return l.removed.Load() }

// isOver reports whether the handler is not to be called any more. Its goroutine looks before each call.
func (l *listener[T]) isOver(ctx context.Context) bool { return ctx.Err() != nil || l.isRemoved() }

func (l *listener[T]) pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting + int(l.inHand.Load()) + l.owed
}

func (l *listener[T]) mergedAway() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.merged
}

// attempt calls the user's code and reports whether it has returned; if not, failed is told why. A panic is the end, if
// the user wants that.
func (l *listener[T]) attempt(fn func(), failed func(error)) bool {
	if !l.crash {
		return lifecycle.Guard(fn, func(p *lifecycle.PanicError) { failed(p) })
	}
	lifecycle.OrExit(fn, func() { failed(lifecycle.ErrExited) })
	return true
}

// merge reduces events to at most two per key, and keeps the promise of [Event]. Per key only the outermost states
// matter: what the handler saw last (the first event tells: the Old of an Updated or Deleted, nothing if it is an
// Added) and what is true now (the last event tells).
//
// Keys keep the order of their first event, and a mark its place among them. So a handler that is always behind still
// comes to the mark.
func merge[T any](events []Event[T]) []Event[T] {
	type span struct {
		first, last int
		deleted     int  // the first Deleted, which ends the round that the first event belongs to; -1 if there is none
		news        bool // not all of them are resyncs
	}
	spans := make(map[Key]*span)
	for i, e := range events {
		if e.Type == 0 {
			continue
		}
		s, ok := spans[e.Key]
		if !ok {
			s = &span{first: i, deleted: -1}
			spans[e.Key] = s
		}
		s.last = i
		s.news = s.news || !e.Resync
		if e.Type == Deleted && s.deleted < 0 {
			s.deleted = i
		}
	}

	merged := make([]Event[T], 0, len(spans)+1)
	for i, first := range events {
		if first.Type == 0 {
			merged = append(merged, first)
			continue
		}
		s := spans[first.Key]
		if s.first != i {
			continue
		}
		last := events[s.last]
		known, exists := first.Type != Added, last.Type != Deleted
		if known && exists && s.deleted < 0 {
			last.Type, last.Old, last.Resync = Updated, first.Old, !s.news
			merged = append(merged, last)
			continue
		}
		if known {
			merged = append(merged, events[s.deleted])
		}
		if exists {
			var none T
			last.Type, last.Old, last.Resync = Added, none, false
			last.Initial = first.Initial && s.deleted < 0
			merged = append(merged, last)
		}
		// Neither known nor existing: the handler never saw it and never will.
	}
	return merged
}
