package informer

import (
	"hash/maphash"
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
	if !soonest.IsZero() {
		w.reminder.Reset(soonest.Sub(now))
	}
}

// rotation lets each key of the store have a turn once in a period. A period is cut into turns, and the hash of a key
// says which turn is its own, always the same: so a period lies between any two of them, and no moment has to bear many
// keys. What joins the store during a period takes its first turn in the next one.
//
// It costs a second list of the keys, and belongs to whoever holds the writer token.
type rotation struct {
	period time.Duration
	seed   maphash.Seed
	turns  [turns][]Key // the keys of this period, by turn; those that had theirs are forgotten
	turn   int          // the next one
	due    time.Time    // when that is; zero: it has not begun
}

const turns = 256

func newRotation(period time.Duration) *rotation {
	return &rotation{period: period, seed: maphash.MakeSeed()}
}

// next returns the keys whose turn has come by now, and true; or nothing and false if none is due, and then the next
// turn is after now, at due. all returns every key. When the machine was asleep for longer than a period, nothing is
// made up for.
//
// Whoever takes several turns at once asks with one now, so that it comes to an end.
func (r *rotation) next(now time.Time, all func() []Key) ([]Key, bool) {
	if r.due.IsZero() || now.Sub(r.due) > r.period {
		r.due = now.Add(r.period / turns)
	}
	if r.due.After(now) {
		return nil, false
	}
	if r.turn == 0 {
		for _, key := range all() {
			turn := maphash.Comparable(r.seed, key) % turns
			r.turns[turn] = append(r.turns[turn], key)
		}
	}
	keys := r.turns[r.turn]
	r.turns[r.turn] = nil
	r.turn = (r.turn + 1) % turns
	r.due = r.due.Add(r.period / turns)
	return keys, true
}
