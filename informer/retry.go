package informer

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// redelivery is what a handler owes: the events that it panicked on, or ended its goroutine on, which is the same. Each
// key is delivered again after 1 s, 2 s, 4 s ... 5 min. What happens to the key meanwhile waits behind, and is merged,
// so that the handler sees the rounds and the Old of [Event] as if it had never been called in vain.
//
// A Deleted of a handler that never takes it would wait for ever, and the next one, and so on: those are given up after
// maxTries.
//
// It belongs to the listener's goroutine.
type redelivery[T any] struct {
	failing map[Key]*failure[T]
	due     *time.Timer // fires at dueAt, when somebody's time has come
	dueAt   time.Time   // zero: it is not running
}

type failure[T any] struct {
	events []Event[T] // one, or a Deleted and an Added
	tries  int        // how often that was in vain, for a Deleted since it came
	next   time.Time
}

const maxTries = 10

func newRedelivery[T any]() redelivery[T] {
	due := time.NewTimer(0)
	due.Stop()
	return redelivery[T]{failing: make(map[Key]*failure[T]), due: due}
}

// wake lets due fire at that time, if not before.
func (r *redelivery[T]) wake(at time.Time) {
	if r.dueAt.IsZero() || at.Before(r.dueAt) {
		r.dueAt = at
		r.due.Reset(time.Until(at))
	}
}

// deliver calls the handler with an event, unless one of its key is owed: then the event waits with that.
func (l *listener[T]) deliver(log klog.Logger, e Event[T]) {
	if e.Type == 0 {
		select {
		case <-l.synced: // it has been through with a smaller scope
		default:
			close(l.synced) // with or without panics, the handler has been called with everything before
		}
		return
	}
	r := &l.redelivery
	if f, failing := r.failing[e.Key]; failing {
		before := f.events[0].Type
		f.events = merge(append(f.events, e))
		switch {
		case len(f.events) == 0:
			delete(r.failing, e.Key)
		case f.events[0].Type == Deleted && before != Deleted:
			f.tries = 0
		}
		l.owe(len(r.failing))
		return
	}
	l.call(log, e)
}

// redeliver calls the handler with what it owes, as far as its time has come, until ctx ends or the listener is
// removed.
func (l *listener[T]) redeliver(ctx context.Context, log klog.Logger) {
	r := &l.redelivery
	r.dueAt = time.Time{}
	now := time.Now()
	lifecycle.OrExit(func() {
		for key, f := range r.failing {
			if f.next.After(now) {
				r.wake(f.next)
			} else {
				l.retry(ctx, log, key, f)
			}
		}
	}, func() { r.wake(now) }) // the goroutine that follows this one goes on with the others
}

// retry calls the handler with what it owes of one key.
func (l *listener[T]) retry(ctx context.Context, log klog.Logger, key Key, f *failure[T]) {
	settled := func() {
		if len(f.events) > 0 && f.events[0].Type == Deleted && f.tries == maxTries {
			log.Error(nil, "A handler panics again and again on a deletion, which is given up", "handler", l.name,
				"key", key)
			f.events = f.events[1:]
		}
		if len(f.events) == 0 {
			delete(l.redelivery.failing, key)
			l.owe(len(l.redelivery.failing))
			return
		}
		l.postpone(f)
	}
	lifecycle.OrExit(func() {
		for len(f.events) > 0 {
			if l.isOver(ctx) {
				return
			}
			if !l.call(log, f.events[0]) {
				break
			}
			f.events = f.events[1:]
		}
		settled()
	}, settled)
}

func (l *listener[T]) postpone(f *failure[T]) {
	f.next = time.Now().Add(retryDelay(f.tries))
	f.tries++
	l.redelivery.wake(f.next)
}

// call calls the handler, and reports whether it has returned. If it has not, its event is owed, unless it is inline.
func (l *listener[T]) call(log klog.Logger, e Event[T]) (returned bool) {
	return l.attempt(func() { l.handler(e) }, func(err error) { l.failed(log, e, err) })
}

// failed lets an event on which the handler has failed be owed.
func (l *listener[T]) failed(log klog.Logger, e Event[T], err error) {
	again := !l.inline && !l.crash
	if held, ok := l.panics.Allow(linesPerMinute); ok {
		log.Error(err, "A handler panicked", withStack([]any{"handler", l.name, "event", e.Type.String(), "key", e.Key,
			"again", again, "notLogged", held}, err)...)
	}
	if _, failing := l.redelivery.failing[e.Key]; failing || !again {
		return
	}
	f := &failure[T]{events: []Event[T]{e}}
	l.redelivery.failing[e.Key] = f
	l.owe(len(l.redelivery.failing))
	l.postpone(f)
}

// owe makes the number of keys that are owed known to pending.
func (l *listener[T]) owe(keys int) {
	l.mu.Lock()
	l.owed = keys
	l.mu.Unlock()
}
