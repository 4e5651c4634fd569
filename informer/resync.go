package informer

import (
	"hash/maphash"
	"time"

	"k8s.io/klog/v2"
)

// resync reminds one handler of every object of the store, once per period: see HandlerOptions.Resync. A period is cut into turns, and the hash of a key
// says which turn is its own, always the same, so that a period lies between any two. What joins the store during a period has just been told of,
// and takes its first turn in the next one.
//
// It belongs to whoever holds the writer token. Only so does a reminder stand behind every change that was told before, and show the same state.
type resync struct {
	period time.Duration
	seed   maphash.Seed
	turns  [turns][]Key // the keys of this period, by turn; those that have been told are forgotten
	turn   int          // the next one
	due    time.Time    // when that is; zero: the store has not been complete yet
}

const turns = 256

// With minResync a turn takes 4 ms.
const minResync = time.Second

func newResync(period time.Duration) *resync {
	return &resync{period: period, seed: maphash.MakeSeed()}
}

// remind tells the listeners that want it of the objects whose turn has come, and sets the clock for the next turn. The store is complete, and the caller
// holds the writer token.
func (inf *SharedIndexInformer[T]) remind(log klog.Logger) {
	var next time.Time
	now := time.Now()
	for _, l := range inf.listeners {
		r := l.resync
		if r == nil || l.isRemoved() {
			continue
		}
		if r.due.IsZero() || now.Sub(r.due) > r.period { // it begins, or the machine was asleep: nothing is made up for
			r.due = now.Add(r.period / turns)
		}
		for ; !r.due.After(now); r.due = r.due.Add(r.period / turns) {
			inf.push(l, log, inf.store.len(), inf.reminders(r))
		}
		if next.IsZero() || r.due.Before(next) {
			next = r.due
		}
	}
	if !next.IsZero() {
		inf.reminder.Reset(time.Until(next))
	}
}

// reminders returns what there is to tell at the next turn.
func (inf *SharedIndexInformer[T]) reminders(r *resync) []Event[T] {
	entries := inf.store.entries
	if r.turn == 0 {
		for key := range entries {
			turn := maphash.Comparable(r.seed, key) % turns
			r.turns[turn] = append(r.turns[turn], key)
		}
	}
	var events []Event[T]
	for _, key := range r.turns[r.turn] {
		if e, held := entries[key]; held {
			events = append(events, repeated(e))
		}
	}
	r.turns[r.turn] = nil
	r.turn = (r.turn + 1) % turns
	return events
}
