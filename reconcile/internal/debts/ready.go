package debts

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// This file says which parts of a cache may be acted on, and lets keys wait until they may.

// listAfter lets nobody act on a part of the cache before a list is complete that begins from now on. It is for a part
// that cannot show something now, when nobody is to wait for that but the keys that need the part.
func (c *Cache) listAfter(place string) {
	c.afterMu.Lock()
	defer c.afterMu.Unlock()
	if c.after == nil {
		c.after = make(map[string]int)
	}
	c.after[place] = c.HealthIn(place).Lists
	c.awaitsLists.Store(true)
}

// Ready reports whether the cache may be acted on in a place. If all that is missing is a list for listAfter, it asks
// for one.
func (c *Cache) Ready(place string) bool {
	if c.Fresh(place) != nil {
		return false
	}
	if !c.awaitsLists.Load() {
		return true
	}
	c.afterMu.Lock()
	defer c.afterMu.Unlock()
	ready := true
	for part, begun := range c.after {
		h := c.HealthIn(part)
		switch {
		case h.State == "" || h.Listed > begun:
			delete(c.after, part)
			continue
		case !overlap(part, place):
			continue
		case h.Lists <= begun:
			c.Relist(part, nil)
		}
		ready = false
	}
	c.awaitsLists.Store(len(c.after) > 0)
	return ready
}

// barred reports whether the cache comes and goes, and the server refuses what it asks for, or does not know it.
func barred(c *Cache, place string) bool {
	h := c.HealthIn(place)
	return c.comes && (h.State == informer.Denied || h.State == informer.Missing)
}

// MayPass reports whether a key that needs the cache runs even so: only somebody else can let the server answer, and
// Reconcile can say so. When the cache may be acted on, the keys run again: then arrived is called.
func (c *Cache) MayPass() bool {
	if !barred(c, metav1.NamespaceAll) {
		return false
	}
	c.passed.Store(true) // before the key looks at the cache: it sees that the cache is ready, or arrives finds this
	return true
}

// Passed reports whether keys have run without the cache since it could be acted on last.
func (c *Cache) Passed() bool { return c.passed.Load() }

// arrives queues the keys that have run without the cache, if it may be acted on now.
func arrives(c *Cache) {
	if c.passed.Load() && c.Ready(metav1.NamespaceAll) && c.passed.Swap(false) {
		c.arrived()
	}
}

// Elsewhere cannot be the name of a namespace. A key that needs no namespace needs this one: caches of all namespaces,
// and of objects without one, answer for it, and caches of some namespaces have nothing to say.
const Elsewhere = "-"

// AwaitReady opens a debt, one per key and place, until the cache may be acted on there: until it is complete, which it
// is not yet after a namespace is added or a selector changes, and not older than the informer's MaxStaleness. The
// place is a namespace that the key needs, or all of them; if the informer follows single objects, one that its object
// names.
func (l *Ledger) AwaitReady(key Key, c *Cache, place Key) {
	here := object{c, place}
	l.mu.Lock()
	a, ok := l.accounts[key]
	same := func(d *debt) bool { return d.kind == status.DebtNotReady && d.object == here }
	waits := ok && slices.ContainsFunc(a.debts, same)
	l.mu.Unlock()
	if !waits {
		l.owe(&debt{owner: key, kind: status.DebtNotReady, object: here})
	}
}

// AwaitNamespaces lets a key wait for each cache that stays and may not be acted on in one of these namespaces, and no
// longer for those that it waits for in others. It reports whether the key waits for nothing since then, and is in the
// queue again.
func (l *Ledger) AwaitNamespaces(key Key, needed []string) (woken bool) {
	for _, c := range l.caches {
		for _, namespace := range needed {
			if !c.byName && !c.Ready(namespace) {
				l.AwaitReady(key, c, Key{Namespace: namespace})
				if !c.byNamespace.Load() {
					break // all of it is one place
				}
			}
		}
	}
	return l.Owes() && l.awaitNoLonger(key, func(place object) bool {
		return !place.cache.byName && !place.cache.comes && !slices.Contains(needed, place.key.Namespace)
	})
}

// AwaitNoLonger ends what AwaitReady has begun.
func (l *Ledger) AwaitNoLonger(key Key, c *Cache, place Key) {
	l.awaitNoLonger(key, func(other object) bool { return other == object{c, place} })
}

// awaitNoLonger lets a key wait no longer for some parts of the caches to be ready. It reports whether that has put the
// key into the queue.
func (l *Ledger) awaitNoLonger(key Key, of func(place object) bool) (woken bool) {
	l.mu.Lock()
	var keys []wokenKey
	if a, ok := l.accounts[key]; ok {
		for _, d := range slices.Clone(a.debts) {
			if d.kind == status.DebtNotReady && of(d.object) {
				keys = l.payLocked(keys, d, d.partition.progress())
			}
		}
	}
	l.mu.Unlock()
	l.wakeUp(keys)
	return len(keys) > 0
}

// unreadyNamespace returns the namespace for which a key of this one waits: a key without a namespace waits for all
// that the informer follows, and the first that may not be acted on is named.
func (c *Cache) unreadyNamespace(namespace string) string {
	scoped, ok := c.Informer.(interface{ Scope() informer.Scope })
	switch {
	case namespace == Elsewhere:
		return metav1.NamespaceAll
	case !ok || namespace != metav1.NamespaceAll:
		return namespace
	}
	for _, name := range scoped.Scope().Namespaces {
		if c.Fresh(name) != nil {
			return name
		}
	}
	return namespace
}

// PartOf describes a part of a cache, under a name of the caller's.
func PartOf(inf Informer, place, name string, withText bool) status.Namespace {
	h := inf.HealthIn(place)
	return status.Namespace{Name: name, ResourceVersion: inf.ResourceVersion(place), State: string(h.State),
		Since: h.Since, Reason: ReasonOf(h, withText), LastProgress: h.LastProgress}
}

// ReasonOf returns why a cache is not Live, or nil.
func ReasonOf(h informer.Health, withText bool) *status.Error {
	if h.State == informer.Live {
		return nil
	}
	return status.ErrorOf(h.LastError, withText)
}
