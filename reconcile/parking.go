package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// A key that has debts is not reconciled, however often it is named: it is parked, without a worker. It is woken by what settles the last of its debts, be
// that an event of the object or the version that the cache as a whole has reached. If nothing does within parkingTime, a worker asks the server what became
// of the write, whether anybody names the key meanwhile or not: either nobody will ever see it, and the wait is over, or the cache is behind, and its
// informer lists anew.

// parkingTime is how long a key waits for a cache before the server is asked what became of the write.
const parkingTime = 10 * time.Second

// account is what one key waits for.
type account struct {
	debts []*debt
	// since is when the key was first found waiting; it is zero while no worker has come for it.
	since time.Time
	// woken is true if the key was put into the queue because nobody came for it, and undone if a write of its may have been undone by a restore: then
	// it is reconciled again, whether anybody names it or not.
	woken, undone bool
	// settled, unless nil, is closed when there are no debts left.
	settled chan struct{}
}

// fresh returns nil if, in the key's namespace, none of the caches is too old to be acted on. For one that is not complete there, because that namespace has
// been added or the selectors have been changed, the key has a debt: it is parked, and woken at once. A key without a namespace needs all of them.
func (l *ledger) fresh(key Key) error {
	for _, c := range l.caches {
		err := c.Fresh(key.Namespace)
		if err == nil {
			continue
		}
		if c.now(key.Namespace).listed > 0 {
			return err
		}
		l.await(key, c)
	}
	return nil
}

// await lets a key owe that a cache becomes complete in its namespace, once.
func (l *ledger) await(key Key, c *cache) {
	here := object{c, Key{Namespace: key.Namespace}}
	l.mu.Lock()
	a, ok := l.accounts[key]
	awaited := ok && slices.ContainsFunc(a.debts, func(d *debt) bool { return d.object == here && d.list == anyList })
	l.mu.Unlock()
	if !awaited {
		l.owe(&debt{owner: key, object: here, list: anyList})
	}
}

// enter says how long the key has to be parked before it may be reconciled; zero means now. The longest wait is parkingTime: then the caller has to ask
// again, and the server is asked in turn. log has no key yet: it is seldom needed.
func (l *ledger) enter(ctx context.Context, log klog.Logger, key Key) time.Duration {
	if l.open.Load() == 0 {
		return 0
	}
	l.mu.Lock()
	a, ok := l.accounts[key]
	if !ok {
		l.mu.Unlock()
		return 0
	}
	log = log.WithValues("key", key)
	keys := l.settle(slices.Clone(a.debts), func(d *debt) bool { return d.settled(d.object.now()) })
	if a.since.IsZero() {
		a.since = time.Now()
	}
	open, overdue := len(a.debts), a.overdue()
	wait := time.Until(a.ask())
	l.mu.Unlock()
	switch {
	case open == 0:
		l.report(keys)
		return 0
	case len(overdue) == 0:
		log.V(4).Info("Parked until the caches have seen what the last run wrote", "writes", open)
		return wait
	}

	void := l.examine(ctx, log, overdue)
	l.mu.Lock()
	keys = l.settle(slices.Clone(a.debts), func(d *debt) bool { return void[d] || d.settled(d.object.now()) })
	for _, d := range overdue {
		d.ask = time.Now().Add(parkingTime)
	}
	open, wait = len(a.debts), time.Until(a.ask())
	l.mu.Unlock()
	l.report(keys)
	if open == 0 {
		return 0
	}
	return max(wait, time.Millisecond) // one may have come due meanwhile
}

// ask returns when the server is asked next about one of the debts. The ledger's mu is held.
func (a *account) ask() (first time.Time) {
	for _, d := range a.debts {
		if first.IsZero() || d.ask.Before(first) {
			first = d.ask
		}
	}
	return first
}

// overdue returns the debts that the server is to be asked about now. The ledger's mu is held.
func (a *account) overdue() (debts []*debt) {
	for _, d := range a.debts {
		if !time.Now().Before(d.ask) {
			debts = append(debts, d)
		}
	}
	return debts
}

// examine asks the server about debts that have been open for long, and returns those that nobody will ever settle. A cache that turns out to be behind is
// not asked about twice: its informer lists anew, and that settles everything.
func (l *ledger) examine(ctx context.Context, log klog.Logger, debts []*debt) (void map[*debt]bool) {
	// A server that does not answer must not keep the worker; the key is asked for again soon enough.
	ctx, cancel := context.WithTimeout(ctx, parkingTime)
	defer cancel()
	void = make(map[*debt]bool)
	type place struct {
		cache *cache
		part  string
	}
	behind := make(map[place]bool)
	for _, d := range debts {
		c, namespace := d.object.cache, d.object.key.Namespace
		here := place{c, c.part(namespace)}
		if behind[here] || ctx.Err() != nil {
			continue
		}
		log := log.WithValues("informer", c.Name(), "object", d.object.key)
		switch {
		case d.list == anyList:
			log.V(4).Info("Parked: the informer has no complete list yet", "health", c.HealthIn(namespace))
			continue
		case d.list > 0:
			behind[here] = true
			log.Error(nil, "Parked: the informer has not been able to list since a write whose outcome is unknown", "health", c.HealthIn(namespace))
			continue
		}
		h, exists, err := c.LiveVersion(ctx, d.object.key)
		switch {
		case err != nil:
			log.Error(err, "Parked, and the server does not say what became of a write")
		case !d.deleted && (!exists || h.UID != d.uid): // gone, replaced, or no longer what the informer asks for: it will never be seen
			void[d] = true
		case !d.deleted && !atLeast(h.ResourceVersion, d.resourceVersion): // the server was restored from before the write, or its versions cannot be compared
			void[d] = true
		case d.deleted && exists && h.UID == d.uid && !h.Deleting: // the deletion was undone in the same way
			void[d] = true
		default:
			behind[here] = true
			log.Error(nil, "Parked: the cache is behind an own write; its informer lists anew", "health", c.HealthIn(namespace), "for", parkingTime)
			l.doubt(c, namespace, fmt.Errorf("the cache has not seen for %s what the server has of %s", parkingTime, d.object.key))
		}
	}
	return void
}

// doubt makes the informer of a cache that is behind list anew, unless it is about to.
func (l *ledger) doubt(c *cache, namespace string, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if part := c.part(namespace); c.HealthIn(part).Listed >= c.doubted[part] {
		c.doubted[part] = c.Relist(part, reason)
	}
}

// saw settles what an event of a cache settles, and wakes the keys that have no debts left. The store has changed before.
func (l *ledger) saw(c *cache, key Key, uid types.UID, resourceVersion string, deleted bool) {
	if l.open.Load() == 0 {
		return
	}
	l.mu.Lock()
	debts := l.objects[object{c, key}]
	if len(debts) == 0 {
		l.mu.Unlock()
		return
	}
	now := c.now(key.Namespace)
	keys := l.settle(slices.Clone(debts), func(d *debt) bool {
		if d.deleted && deleted && d.uid == uid {
			c.passes(key.Namespace, mark{resourceVersion, now.rewinds})
			return true
		}
		return d.settled(now)
	})
	l.mu.Unlock()
	l.resume(keys)
}

// reached settles what the cache of an informer shows now that it has reached a version in a namespace, or follows that no longer, and wakes the keys that
// have no debts left. It finds the writes that no event is told of: the object came and went between two looks, or cannot be taken into the store.
func (l *ledger) reached(c *cache, namespace string) {
	if l.open.Load() == 0 {
		return
	}
	l.mu.Lock()
	reached := c.now(namespace)
	var passed []*debt
	for o, debts := range l.objects {
		if o.cache == c && (namespace == metav1.NamespaceAll || o.key.Namespace == metav1.NamespaceAll || o.key.Namespace == namespace) {
			passed = append(passed, debts...)
		}
	}
	keys := l.settle(passed, func(d *debt) bool {
		now := reached
		if d.object.key.Namespace != namespace && (namespace != metav1.NamespaceAll || reached.resourceVersion == "") {
			now = d.object.now() // it is about all namespaces, or the list of all has given way to those of some
		}
		if !d.settled(now) {
			return false
		}
		if d.deleted {
			c.passes(d.object.key.Namespace, mark{now.resourceVersion, now.rewinds})
		}
		return true
	})
	l.mu.Unlock()
	l.resume(keys)
}

// remindEvery bounds how often the accounts are looked through.
const remindEvery = time.Second

// remind puts keys into the queue that nobody names although the server is to be asked about their writes, until ctx ends. Of a key that a worker has come
// for since, it is known when it comes back.
func (l *ledger) remind(ctx context.Context) {
	for ctx.Err() == nil {
		var next <-chan time.Time
		if due := l.wakeOverdue(); !due.IsZero() {
			next = time.After(max(time.Until(due), remindEvery))
		}
		opened := l.opened
		if next != nil {
			opened = nil // what is new is due later than that
		}
		select {
		case <-opened:
		case <-next:
		case <-ctx.Done():
		}
	}
}

// wakeOverdue wakes the keys that are overdue and that no worker has come for, and returns when the next one will be; zero: there is none.
func (l *ledger) wakeOverdue() (next time.Time) {
	if l.open.Load() == 0 {
		return next
	}
	var keys []Key
	l.mu.Lock()
	for key, a := range l.accounts {
		if !a.since.IsZero() || a.woken {
			continue
		}
		switch ask := a.ask(); {
		case !time.Now().Before(ask):
			a.woken = true
			keys = append(keys, key)
		case next.IsZero() || ask.Before(next):
			next = ask
		}
	}
	l.mu.Unlock()
	for _, key := range keys {
		l.wake(key)
	}
	return next
}

// resumed is a key that has no debts left and is to be reconciled for that reason.
type resumed struct {
	key   Key
	since time.Time // when it was parked; zero if it was not
}

// report tells for how long the keys were parked.
func (l *ledger) report(keys []resumed) {
	for _, k := range keys {
		if !k.since.IsZero() {
			l.waited(k.key, time.Since(k.since))
		}
	}
}

// resume lets the keys be reconciled.
func (l *ledger) resume(keys []resumed) {
	l.report(keys)
	for _, k := range keys {
		l.wake(k.key)
	}
}

// parked counts the keys that are parked, and says for how long the first of them has been.
func (l *ledger) parked() (n int, longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		if !a.since.IsZero() {
			n++
			longest = max(longest, time.Since(a.since))
		}
	}
	return n, longest
}
