package reconcile

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
)

// ledger holds a controller's debts: what its runs have written and its caches have not seen. A key that has debts is not reconciled: parking.go says how
// it waits, and what wakes it.
//
// A debt is settled when the cache holds the object at the written version or a later one, when the cache as a whole has reached that version, or
// when the object, by UID, is gone from it. For a deletion, an object that has a deletionTimestamp is as good as gone. Versions are compared within
// one resource only: across resources the order of versions is not promised. A write whose outcome is unknown has no version; its debt is settled when
// the informer has listed anew. And when the cluster has gone back to an older state nothing from before it is waited for, and neither is what was written
// in a namespace that the informer follows no longer.
//
// An informer may follow several namespaces, each by itself. A version is reached, a list complete, and the cluster found to have gone back in one namespace;
// the namespace of an object, or of a key, tells which.
type ledger struct {
	wake   func(Key)                // puts a key into the queue; called without mu
	waited func(Key, time.Duration) // is told how long a key was parked; called without mu
	caches []*cache                 // complete before the Manager starts

	// open is the number of debts, so that an event costs one load while there are none; opened holds a value if there is a new one.
	open   atomic.Int64
	opened chan struct{}
	// said has the names of what the log has been told of once.
	said sync.Map

	mu sync.Mutex
	// Guarded by mu. Each debt is in exactly one account and under exactly one object; neither map has an empty entry.
	accounts map[Key]*account
	objects  map[object][]*debt
}

// cache is an informer that a controller depends on, as its ledger sees it.
type cache struct {
	dependency
	learner *learner // set by the Manager before it starts the informer

	// Guarded by the ledger's mu; both by the namespace that is listed and watched, see part. doubted is the number of the last list that was asked for
	// because the cache was behind; written is what the next leader's cache has to have seen.
	doubted map[string]int
	written map[string]mark
}

// dependency is as much of an informer as the ledger uses; *[informer.SharedIndexInformer] is one for every type of object.
type dependency interface {
	Informer
	Version(Key) (informer.Version, bool)
	LiveVersion(context.Context, Key) (informer.Version, bool, error)
	ResourceVersion(namespace string) string
	HealthIn(namespace string) informer.Health
	Relist(namespace string, doubt error) int
	Fresh(namespace string) error
}

// mark is a version of one resource, in the count of rewinds at which it was one.
type mark struct {
	resourceVersion string
	rewinds         int
}

// moment is how far a cache has come in a namespace.
type moment struct {
	foreign         bool // the informer does not follow the namespace
	resourceVersion string
	listed, rewinds int
}

// now asks the informer; it may be called with the ledger's mu held.
func (c *cache) now(namespace string) moment {
	h := c.HealthIn(namespace)
	return moment{h.State == "", c.ResourceVersion(namespace), h.Listed, h.Rewinds}
}

// part returns what is listed and watched together with the objects of a namespace: that namespace alone, or none if it is all of them.
func (c *cache) part(namespace string) string {
	if s := c.learner.of(namespace); s != nil {
		return s.target.namespace
	}
	return namespace
}

// object is a place in a cache.
type object struct {
	cache *cache
	key   Key
}

// now is how far the cache has come around the object.
func (o object) now() moment { return o.cache.now(o.key.Namespace) }

// debt is one write that a cache has not seen.
type debt struct {
	owner           Key
	object          object
	uid             types.UID
	resourceVersion string
	deleted         bool
	list            int       // the number of the list that settles it, or anyList; zero if it is known what was written
	rewinds         int       // of the cache, when it was written
	ask             time.Time // when the server is asked next what became of it; guarded by the ledger's mu
	// after, unless nil, is the debt for an earlier write of an object that has been deleted since: as long as the cache has not seen that, it says nothing
	// that the object is not in it.
	after *debt
	paid  bool
}

// anyList is the number of a debt that no write has brought about: the cache has not been complete yet.
const anyList = -1

func newLedger(wake func(Key), waited func(Key, time.Duration)) *ledger {
	return &ledger{wake: wake, waited: waited, opened: make(chan struct{}, 1), accounts: make(map[Key]*account), objects: make(map[object][]*debt)}
}

// cacheOf returns the ledger's view of an informer; there is one for each, however many sources use it.
func (l *ledger) cacheOf(inf dependency) *cache {
	if c := l.find(inf); c != nil {
		return c
	}
	c := &cache{dependency: inf, doubted: make(map[string]int), written: make(map[string]mark)}
	l.caches = append(l.caches, c)
	return c
}

func (l *ledger) find(inf Informer) *cache {
	for _, c := range l.caches {
		if Informer(c.dependency) == inf {
			return c
		}
	}
	return nil
}

// lost records a write that may have happened or not: the answer has been lost. Only a list that begins now can tell.
func (l *ledger) lost(log klog.Logger, key Key, t target) {
	for _, c := range l.caches {
		for _, s := range c.learner.all() {
			if !s.about(t) || !s.reaches(t) {
				continue
			}
			log.Info("It is unknown whether a write has happened; the informer lists anew before the key is reconciled again", "informer", c.Name(),
				"resource", t.resource, "namespace", t.namespace, "name", t.name)
			where := Key{Namespace: cmp.Or(t.namespace, s.target.namespace), Name: t.name}
			l.owe(&debt{owner: key, object: object{c, where}, list: c.Relist(where.Namespace, nil)})
		}
	}
}

// owe adds a debt, unless it is settled already.
func (l *ledger) owe(d *debt) {
	c := d.object.cache
	l.mu.Lock()
	defer l.mu.Unlock()
	// Judged with the lock held: an event that settles it and came before is seen in the cache, one that comes later finds the debt. It looks for one only if
	// open says that there are any, so the debt is counted before the cache is looked at.
	l.open.Add(1)
	now := d.object.now()
	d.rewinds = now.rewinds
	if d.owner != heir {
		c.passes(d.object.key.Namespace, mark{d.resourceVersion, now.rewinds})
	}
	if d.deleted {
		for _, earlier := range l.objects[d.object] {
			if earlier.uid == d.uid {
				d.after = earlier
			}
		}
	}
	if d.settled(now) {
		l.open.Add(-1)
		return
	}
	a, ok := l.accounts[d.owner]
	if !ok {
		a = &account{}
		l.accounts[d.owner] = a
	}
	d.ask = time.Now().Add(parkingTime)
	a.debts = append(a.debts, d)
	l.objects[d.object] = append(l.objects[d.object], d)
	select {
	case l.opened <- struct{}{}:
	default: // there is one that has not been taken
	}
}

// passes moves the mark of what was written in a namespace on. The ledger's mu is held.
func (c *cache) passes(namespace string, m mark) {
	part := c.part(namespace)
	written := c.written[part]
	if m.resourceVersion != "" && (m.rewinds != written.rewinds || !atLeast(written.resourceVersion, m.resourceVersion)) {
		c.written[part] = m
	}
}

// settled reports whether the cache, which has come this far, shows the write or something later.
func (d *debt) settled(now moment) bool {
	switch {
	case now.foreign:
		return true // it will never be seen
	case now.rewinds != d.rewinds:
		return true // what was written is in a future that the cluster has gone back from
	case d.list == anyList:
		return now.listed > 0
	case d.list > 0:
		return now.listed >= d.list
	case d.after != nil && !d.after.paid:
		return false
	}
	h, exists := d.object.cache.Version(d.object.key)
	if d.deleted {
		return !exists || h.UID != d.uid || h.Deleting
	}
	return exists && atLeast(h.ResourceVersion, d.resourceVersion) || atLeast(now.resourceVersion, d.resourceVersion)
}

// settle removes the debts that are settled, and returns the keys that have none left and were parked, or have to be reconciled because of a restore. The
// caller holds mu.
func (l *ledger) settle(debts []*debt, settled func(*debt) bool) (keys []resumed) {
	for _, d := range debts {
		if !settled(d) {
			continue
		}
		is := func(other *debt) bool { return other == d }
		a := l.accounts[d.owner]
		if a == nil || !slices.ContainsFunc(a.debts, is) {
			continue // settled by somebody else in between
		}
		l.open.Add(-1)
		d.paid = true
		a.debts = slices.DeleteFunc(a.debts, is)
		a.undone = a.undone || d.rewinds != d.object.now().rewinds
		if len(a.debts) == 0 {
			delete(l.accounts, d.owner)
			if a.settled != nil {
				close(a.settled)
			}
			if d.owner != heir && (!a.since.IsZero() || a.undone) {
				keys = append(keys, resumed{d.owner, a.since})
			}
		}
		l.objects[d.object] = slices.DeleteFunc(l.objects[d.object], is)
		if len(l.objects[d.object]) == 0 {
			delete(l.objects, d.object)
		}
	}
	return keys
}

// atLeast reports whether version a is b or later. Versions that are no numbers, as some aggregated API servers give, can only be equal.
func atLeast(a, b string) bool {
	if a == b {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
