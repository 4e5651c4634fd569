package informer

import (
	"time"
)

// With minResync a turn of the rotation takes 4 ms.
const minResync = time.Second

// remind tells the listeners that want a resync of the objects whose turn has come, looks for mutated ones among
// those that are due, and sets the timer for the next turn. The store is complete. A resync is told after every
// change that was told before it, and shows the same state, since only the writer tells of either.
func (w *writer[T]) remind() {
	// The clock is read once. What becomes due while turns are taken has to wait for the next call, which the timer
	// makes at once: otherwise turns that take longer than they are apart would keep the writer for good.
	now := time.Now()
	var soonest time.Time
	takeTurns := func(r *rotation, do func(keys []Key)) {
		for {
			keys, due := r.next(now, w.store.Keys)
			if !due {
				break
			}
			do(keys)
		}
		if soonest.IsZero() || r.due.Before(soonest) {
			soonest = r.due
		}
	}
	ended := false
	defer func() {
		if !ended {
			w.reminder.Reset(0) // an inline handler has ended the goroutine: the next one goes on
		}
	}()
	for _, l := range w.listeners {
		if l.resync == nil || l.isRemoved() {
			continue
		}
		takeTurns(l.resync, func(keys []Key) {
			var events []Event[T]
			for _, key := range keys {
				if row, held := w.store.Find(key); held {
					events = append(events, repeated(w.store.item(row)))
				}
			}
			w.push(l, w.store.Len(), events)
		})
	}
	if w.detector != nil {
		takeTurns(w.detector.rotation, func(keys []Key) {
			for _, key := range keys {
				w.detector.check(key, w.health)
			}
		})
	}
	ended = true
	if !soonest.IsZero() {
		w.reminder.Reset(soonest.Sub(now))
	}
}
