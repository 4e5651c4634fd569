package informer

import (
	"time"

	"k8s.io/klog/v2"
)

// With minResync a turn of the rotation takes 4 ms.
const minResync = time.Second

// remind tells the listeners that want a resync of the objects whose turn has come, looks for mutated ones among those
// that are due, and sets the clock for the next turn. The store is complete.
//
// The caller holds the writer token: only so does a reminder stand behind every change that was told before, and show
// the same state.
func (inf *SharedIndexInformer[T]) remind(log klog.Logger) {
	// The clock is read once. What becomes due while turns are taken has to wait for the next call, which the timer
	// makes at once: otherwise turns that take longer than they are apart would keep the writer token for good.
	now := time.Now()
	var soonest time.Time
	takeTurns := func(r *rotation, do func(keys []Key)) {
		for {
			keys, due := r.next(now, inf.store.Keys)
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
			inf.reminder.Reset(0) // an inline handler has ended the goroutine: the next one goes on
		}
	}()
	for _, l := range inf.listeners {
		if l.resync == nil || l.isRemoved() {
			continue
		}
		takeTurns(l.resync, func(keys []Key) {
			var events []Event[T]
			for _, key := range keys {
				if row, held := inf.store.Find(key); held {
					events = append(events, repeated(inf.store.item(row)))
				}
			}
			inf.push(l, log, inf.store.Len(), events)
		})
	}
	if inf.detector != nil {
		takeTurns(inf.detector.rotation, func(keys []Key) {
			for _, key := range keys {
				inf.detector.check(key, inf.health)
			}
		})
	}
	ended = true
	if !soonest.IsZero() {
		inf.reminder.Reset(soonest.Sub(now))
	}
}
