package informer

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// listener stands between the writer of the store and one handler: a buffer, and the goroutine that empties it.
// However slow a handler is, it delays no other handler, and what waits for it is bounded by what the store holds.
//
// An inline listener has neither: the goroutine that has the writer waits while its handler is called.
type listener[T any] struct {
	// These never change. every: no events are merged. crash: a panic ends the process.
	name                 string
	handler              Handler[T]
	inline, every, crash bool
	reached              func(namespace, resourceVersion string)  // may be nil
	invalid              func(key Key, before, now *InvalidError) // may be nil
	// wake holds a token whenever there may be something to do. synced is closed when the handler is through with the
	// initial state; ended, when it will not be called again.
	wake          chan struct{}
	synced, ended chan struct{}

	pulse pulse // safe for concurrent use; of the handler's goroutine

	// This belongs to the writer: whose turn it is; nil unless the handler wants a resync.
	resync *rotation

	// These belong to the handler's goroutine, or to the writer's if it is inline. hand is the rest of the batch that
	// the goroutine took last.
	hand    []Event[T]
	retries retries[T]

	// These guard themselves. inHand is len(hand); removed is written with mu held.
	inHand  atomic.Int64
	removed atomic.Bool
	panics  lifecycle.LogLimit

	mu sync.Mutex
	// Guarded by mu. batches[head:] are what the handler's goroutine has not taken yet, oldest first; what stands
	// before head is nil. They hold the number waiting of events. A batch is shared with the other listeners, so no
	// listener changes it: copying each event for each of ten handlers took a third of the time of an update. An
	// event of no type is a mark: all of the initial state stands before it.
	batches       [][]Event[T]
	head, waiting int
	// Guarded by mu. When more than limit events wait, and more than two for each object of the store, they are
	// merged. It is twice what the last merge left, so that the cost of merging stays in proportion to the events.
	limit int
	// Guarded by mu: events that were merged away, and whether run has been or will be called. Once removed is true,
	// nothing is buffered and the goroutine ends; it closes ended, or remove does if it was never started.
	merged  int
	started bool
}

// minBuffer is how many events may wait for a handler of a small store before they are merged.
const minBuffer = 1024

func newListener[T any](h Handler[T], opts HandlerOptions) *listener[T] {
	l := &listener[T]{
		name: cmp.Or(opts.Name, "handler"), handler: h, inline: opts.Inline, every: opts.Every,
		crash: opts.CrashOnPanic, reached: opts.Reached, invalid: opts.Invalid, limit: minBuffer,
		retries: newRetries[T](),
		wake:    make(chan struct{}, 1), synced: make(chan struct{}), ended: make(chan struct{}),
	}
	if opts.Resync > 0 {
		l.resync = newRotation(opts.Resync)
	}
	return l
}

// callInline calls the handler of an inline listener with events, on a goroutine that the handler may end: then another
// one goes on with the next event. That takes half a microsecond for all of the events. pulse is that of the writer.
func (l *listener[T]) callInline(log klog.Logger, pulse *pulse, events []Event[T]) {
	for len(events) > 0 {
		var goroutine sync.WaitGroup
		goroutine.Go(func() {
			for len(events) > 0 {
				e := events[0]
				events = events[1:]
				if !l.isRemoved() {
					pulse.does(storing)
					l.deliver(log, e)
				}
			}
		})
		goroutine.Wait()
	}
}

// push hands events to the listener, which keeps the slice and shares it with others: it is not changed any more. The
// writer calls it; stored is how many objects the store holds.
func (l *listener[T]) push(stored int, events ...Event[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isRemoved() || len(events) == 0 {
		return
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
		l.mergeLocked()
		l.limit = max(minBuffer, 2*l.waiting)
	}
	l.signal()
}

// mergeLocked merges what waits.
func (l *listener[T]) mergeLocked() {
	merged := merge(slices.Concat(l.batches[l.head:]...))
	l.merged += l.waiting - len(merged)
	l.batches, l.head, l.waiting = nil, 0, len(merged)
	for batch := range slices.Chunk(merged, chunk) {
		// each on its own, so that those that the handler is through with can go
		l.batches = append(l.batches, slices.Clone(batch))
	}
}

// next takes the oldest batch into hand, and reports whether there was one.
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

// start reports whether run is to be called: not for a listener that has been removed.
func (l *listener[T]) start() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = !l.isRemoved()
	return l.started
}

// run calls the handler until ctx ends or the listener is removed. If the handler ends the goroutine, another one
// calls run again.
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
		l.pulse.does(resting)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-l.retries.due.C:
			l.retry(ctx, log)
		}
	}
}

// work calls the handler with what is in hand, and in between with what it is time to try again, until ctx ends or
// the listener is removed.
func (l *listener[T]) work(ctx context.Context, log klog.Logger) {
	for len(l.hand) > 0 {
		if len(l.retries.failing) > 0 { // looking at the timer takes longer than all the rest
			select {
			case <-l.retries.due.C:
				l.retry(ctx, log)
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
		l.pulse.does(handling)
		l.deliver(log, e)
	}
	l.inHand.Store(0)
}

// deliver calls the handler with an event, unless it is to be called again with an earlier one of the same key: then
// the event waits behind that.
func (l *listener[T]) deliver(log klog.Logger, e Event[T]) {
	if e.Type == 0 {
		if !closed(l.synced) { // a mark may come again, after a Rescope
			close(l.synced) // with or without panics, the handler has been called with everything before
		}
		return
	}
	if f, failing := l.retries.failing[e.Key]; failing {
		l.retries.addBehind(f, e)
		return
	}
	l.call(log, e)
}

// call calls the handler, and reports whether it has returned. If it has not, it is called again later, unless it is
// inline.
func (l *listener[T]) call(log klog.Logger, e Event[T]) (returned bool) {
	return l.guard(func() { l.handler(e) }, func(err error) {
		again := !l.inline && !l.crash
		if dropped, ok := l.panics.Allow(linesPerMinute); ok {
			log.Error(err, "A handler panicked", withStack([]any{"handler", l.name, "event", e.Type.String(),
				"key", e.Key, "again", again, "notLogged", dropped}, err)...)
		}
		if _, failing := l.retries.failing[e.Key]; again && !failing {
			l.retries.add(e)
		}
	})
}

// guard calls the user's code and reports whether it has returned; if not, it calls failed with the reason. With
// crash, a panic is left to end the process.
func (l *listener[T]) guard(fn func(), failed func(error)) (returned bool) {
	if !l.crash {
		return lifecycle.Guard(fn, func(p *lifecycle.PanicError) { failed(p) })
	}
	lifecycle.OrExit(fn, func() { failed(lifecycle.ErrExited) })
	return true
}

// reach tells the listener that the store has reached a version in a namespace. The writer calls it.
func (l *listener[T]) reach(log klog.Logger, namespace, resourceVersion string) {
	if l.reached == nil || l.isRemoved() {
		return
	}
	l.callBack(log, "HandlerOptions.Reached", func() { l.reached(namespace, resourceVersion) })
}

// callBack calls a function of HandlerOptions.
func (l *listener[T]) callBack(log klog.Logger, name string, fn func()) {
	l.guard(fn, func(err error) {
		if dropped, ok := l.panics.Allow(linesPerMinute); ok {
			log.Error(err, name+" panicked", withStack([]any{"handler", l.name, "notLogged", dropped}, err)...)
		}
	})
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

// isOver reports whether the handler must not be called any more. Its goroutine looks before each call.
func (l *listener[T]) isOver(ctx context.Context) bool { return ctx.Err() != nil || l.isRemoved() }

func (l *listener[T]) pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting + int(l.inHand.Load()+l.retries.keys.Load())
}

func (l *listener[T]) mergedAway() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.merged
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
			gone := events[s.deleted]
			gone.Left = gone.Left && (exists || last.Left)
			merged = append(merged, gone)
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
