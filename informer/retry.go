package informer

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// retries holds the events that a handler has failed on: it panicked, or ended its goroutine, which is the same. Each
// key is tried again after 1 s, 2 s, 4 s ... 5 min. What happens to the key meanwhile waits behind and is merged, so
// that the handler sees the rounds and the Old of [Event] as if the failed calls had not been made.
//
// A Deleted that the handler fails on every time would wait for ever, and so would that of the next object of the
// same name: so a Deleted is given up after maxTries.
type retries[T any] struct {
	// These belong to the listener's goroutine.
	failing map[Key]*failure[T]
	alarm   // fires when the first key is to be tried again

	keys atomic.Int64 // len(failing), for every goroutine
}

type failure[T any] struct {
	events []Event[T] // one, or a Deleted and an Added
	tries  int        // failed calls, of a Deleted since it came
	next   time.Time
}

const maxTries = 10

func newRetries[T any]() retries[T] {
	return retries[T]{failing: make(map[Key]*failure[T]), alarm: newAlarm()}
}

// add lets an event be tried again that the handler has failed on.
func (r *retries[T]) add(e Event[T]) {
	f := &failure[T]{events: []Event[T]{e}}
	r.failing[e.Key] = f
	r.keys.Store(int64(len(r.failing)))
	r.postpone(f)
}

// addBehind lets an event wait behind those of its key that the handler has failed on.
func (r *retries[T]) addBehind(f *failure[T], e Event[T]) {
	before := f.events[0].Type
	f.events = merge(append(f.events, e))
	switch {
	case len(f.events) == 0:
		r.forget(e.Key)
	case f.events[0].Type == Deleted && before != Deleted:
		f.tries = 0
	}
}

func (r *retries[T]) forget(key Key) {
	delete(r.failing, key)
	r.keys.Store(int64(len(r.failing)))
}

func (r *retries[T]) postpone(f *failure[T]) {
	f.next = time.Now().Add(retryDelay(f.tries))
	f.tries++
	r.wake(f.next)
}

// alarm is a timer for the first of several times.
type alarm struct {
	due *time.Timer // fires at that time
	at  time.Time   // zero: the timer is not running
}

func newAlarm() alarm {
	due := time.NewTimer(0)
	due.Stop()
	return alarm{due: due}
}

// wake lets due fire at that time, if not before.
func (a *alarm) wake(at time.Time) {
	if a.at.IsZero() || at.Before(a.at) {
		a.at = at
		a.due.Reset(time.Until(at))
	}
}

// What failed is tried again after 1 s, 2 s, 4 s ... 5 min.
const firstRetry, lastRetry = time.Second, 5 * time.Minute

// retryDelay is how long to wait after that many failures before.
func retryDelay(failures int) time.Duration {
	return lifecycle.Doubled(firstRetry, failures, lastRetry)
}

// retry calls the handler again for the keys whose time has come, until ctx ends or the listener is removed.
func (l *listener[T]) retry(ctx context.Context, log klog.Logger) {
	r := &l.retries
	r.alarm.at = time.Time{}
	now := time.Now()
	lifecycle.OrExit(func() {
		for key, f := range r.failing {
			if f.next.After(now) {
				r.wake(f.next)
			} else {
				l.retryKey(ctx, log, key, f)
			}
		}
	}, func() { r.wake(now) }) // the goroutine that follows this one goes on with the others
}

// retryKey calls the handler again for one key.
func (l *listener[T]) retryKey(ctx context.Context, log klog.Logger, key Key, f *failure[T]) {
	done := func() { // forgets the key if all of its events are done with
		if len(f.events) > 0 && f.events[0].Type == Deleted && f.tries == maxTries {
			log.Error(nil, "A handler panics again and again on a deletion, which is given up", "handler", l.name,
				"key", key)
			f.events = f.events[1:]
		}
		if len(f.events) == 0 {
			l.retries.forget(key)
		} else {
			l.retries.postpone(f)
		}
	}
	lifecycle.OrExit(func() {
		for len(f.events) > 0 {
			if l.isOver(ctx) {
				return
			}
			l.pulse.does(handling)
			if !l.call(log, f.events[0]) {
				break
			}
			f.events = f.events[1:]
		}
		done()
	}, done)
}
