package reconcile

import (
	"slices"
	"time"
)

// A key that has debts is not reconciled, however often it is named. A worker that takes it parks it: it ends its
// claim, and goes on with other keys. The key is woken by what settles the last of its debts. It asks for nothing
// itself, and nobody polls it: the prober asks for all keys whose debts are in one place.

// parkingTime is how long a debt is open before the server is asked what became of the write.
const doubtAfter = 10 * time.Second

// account is what one key waits for. It is guarded by the ledger's mu.
type account struct {
	debts []*debt // in no order
	// since is when a worker first took the key and parked it; it is zero while none has.
	parkedSince time.Time
	// undone is true if a write of the key may have been undone, or never seen: then the key is reconciled again,
	// whether anybody names it or not.
	mustRun bool
	// settled, unless nil, is closed when there are no debts left.
	allPaid chan struct{}
}

// parks reports whether a key that a worker has taken has to wait. Then it is parked from now on. It is woken as soon
// as it need not wait any more: so the worker ends its claim without a verdict, and without a time.
func (l *ledger) park(key Key) bool {
	for _, c := range l.caches {
		if c.Fresh(key.Namespace) != nil {
			l.awaitReady(key, c)
		}
	}
	if l.open.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.accounts[key]
	if ok && a.parkedSince.IsZero() {
		a.parkedSince = time.Now()
	}
	return ok
}

// await lets a key owe, once, that a cache may be acted on in its namespace: that it is complete there, which it is not
// yet if that namespace has been added or the selectors have been changed, and not older than MaxStaleness. A key
// without a namespace needs all of them.
func (l *ledger) awaitReady(key Key, c *cache) {
	here := object{c, Key{Namespace: key.Namespace}}
	awaits := func(d *debt) bool { return d.object == here && d.list == freshCache }
	l.mu.Lock()
	a, ok := l.accounts[key]
	awaited := ok && slices.ContainsFunc(a.debts, awaits)
	l.mu.Unlock()
	if !awaited {
		l.owe(&debt{owner: key, object: here, list: freshCache})
	}
}

// resumed is a key that has no debts left and is to be reconciled for that reason.
type wokenKey struct {
	key         Key
	parkedSince time.Time // when it was parked; zero if it was not
}

// report tells for how long the keys were parked.
func (l *ledger) report(keys []wokenKey) {
	for _, k := range keys {
		if !k.parkedSince.IsZero() {
			l.unparked(k.key, time.Since(k.parkedSince))
		}
	}
}

// resume lets the keys be reconciled.
func (l *ledger) wakeUp(keys []wokenKey) {
	l.report(keys)
	for _, k := range keys {
		l.enqueue(k.key)
	}
}

// parked counts the keys that are parked, and says for how long the first of them has been.
func (l *ledger) parked() (n int, longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, a := range l.accounts {
		if !a.parkedSince.IsZero() {
			n++
			longest = max(longest, now.Sub(a.parkedSince))
		}
	}
	return n, longest
}
