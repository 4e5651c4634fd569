package reconcile

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
)

// parkingTime is how long a key waits for a cache before the server is asked what became of the write.
const parkingTime = 10 * time.Second

// ledger holds a controller's debts: what its runs have written and its caches have not seen. A key that has debts is not reconciled; it is parked,
// without a worker, and woken by the event, or by the version that the cache reaches, which settles the last one.
//
// A debt is settled when the cache holds the object at the written version or a later one, when the cache as a whole has reached that version, or
// when the object, by UID, is gone from it. For a deletion, an object that has a deletionTimestamp is as good as gone. Versions are compared within
// one resource only: across resources the order of versions is not promised.
type ledger struct {
	wake   func(Key) // puts a key into the queue; called without mu
	caches []*cache  // complete before the Manager starts

	// open is the number of debts, so that an event costs one load while there are none.
	open atomic.Int64

	mu sync.Mutex
	// Guarded by mu. Each debt is in exactly one account and under exactly one object; neither map has an empty entry.
	accounts map[Key]*account
	objects  map[object][]*debt
}

// cache is an informer as the ledger of one controller sees it.
type cache struct {
	informer Informer
	look     func(Key) held
	live     func(context.Context, Key) (held, error)
	learner  *learner // set by the Manager before it starts the informer
}

// object is a place in a cache.
type object struct {
	cache *cache
	key   Key
}

// account is what one key waits for.
type account struct {
	debts []*debt
	// parked is when the key was last found waiting; zero while no worker has come for it.
	parked time.Time
}

type debt struct {
	owner           Key
	object          object
	uid             types.UID
	resourceVersion string
	deleted         bool
}

func newLedger(wake func(Key)) *ledger {
	return &ledger{wake: wake, accounts: make(map[Key]*account), objects: make(map[object][]*debt)}
}

// cacheOf returns the ledger's view of an informer; there is one for each, however many sources use it.
func (l *ledger) cacheOf(inf Informer, look func(Key) held, live func(context.Context, Key) (held, error)) *cache {
	for _, c := range l.caches {
		if c.informer == inf {
			return c
		}
	}
	c := &cache{informer: inf, look: look, live: live}
	l.caches = append(l.caches, c)
	return c
}

// wrote records a write of the key's run, if one of the caches is going to see it.
func (l *ledger) wrote(key Key, w write) {
	if w.uid == "" || (w.resourceVersion == "" && !w.deleted) {
		return // no object: nothing to recognise it by
	}
	for _, c := range l.caches {
		s := c.learner.scope.Load()
		if s == nil || !s.about(w) {
			continue
		}
		if !s.includes(w) {
			if h := c.look(w.object); !h.exists || h.UID != w.uid {
				continue
			}
		}
		d := &debt{owner: key, object: object{c, w.object}, uid: w.uid, resourceVersion: w.resourceVersion, deleted: w.deleted}
		l.mu.Lock()
		// Judged with the lock held: an event that settles it and came before is seen in the cache, one that comes later finds the debt.
		if !d.settled() {
			a, ok := l.accounts[key]
			if !ok {
				a = &account{}
				l.accounts[key] = a
			}
			a.debts = append(a.debts, d)
			l.objects[d.object] = append(l.objects[d.object], d)
			l.open.Add(1)
		}
		l.mu.Unlock()
	}
}

// enter says how long the key has to be parked before it may be reconciled; zero means now. The longest wait is parkingTime: then the caller has to ask
// again, and the server is asked in turn.
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
	l.settle(slices.Clone(a.debts), (*debt).settled)
	switch now := time.Now(); {
	case len(a.debts) == 0:
		l.mu.Unlock()
		return 0
	case a.parked.IsZero():
		a.parked = now
		fallthrough
	case now.Sub(a.parked) < parkingTime:
		wait, writes := parkingTime-now.Sub(a.parked), len(a.debts)
		l.mu.Unlock()
		log.V(4).Info("Parked until the caches have seen what the last run wrote", "writes", writes)
		return wait
	}
	debts := slices.Clone(a.debts)
	l.mu.Unlock()

	// A server that does not answer must not keep the worker; the key is asked for again soon enough.
	ctx, cancel := context.WithTimeout(ctx, parkingTime)
	defer cancel()
	void := make(map[*debt]bool)
	for _, d := range debts {
		h, err := d.object.cache.live(ctx, d.object.key)
		switch {
		case err != nil:
			log.Error(err, "Parked, and the server does not say what became of a write", "object", d.object.key)
		case !h.exists || h.UID != d.uid: // gone, replaced, or no longer what the informer asks for: it will never be seen
			void[d] = true
		case !d.deleted && !atLeast(h.ResourceVersion, d.resourceVersion): // the server was restored from before the write, or its versions cannot be compared
			void[d] = true
		case d.deleted && !h.Deleting: // the deletion was undone in the same way
			void[d] = true
		default:
			log.Error(nil, "Parked: the cache is behind an own write", "informer", d.object.cache.informer.Name(), "object", d.object.key,
				"health", d.object.cache.informer.Health(), "for", parkingTime)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(debts, func(d *debt) bool { return void[d] || d.settled() })
	if len(a.debts) == 0 {
		return 0
	}
	a.parked = time.Now()
	return parkingTime
}

// saw settles what an event of a cache settles, and wakes the keys that have no debts left. The store has changed before.
func (l *ledger) saw(c *cache, key Key, uid types.UID, deleted bool) {
	if l.open.Load() == 0 {
		return
	}
	l.mu.Lock()
	woken := l.settle(slices.Clone(l.objects[object{c, key}]), func(d *debt) bool { return deleted && d.uid == uid || d.settled() })
	l.mu.Unlock()
	for _, k := range woken {
		l.wake(k)
	}
}

// reached settles what the cache of an informer shows now that it has reached a version, and wakes the keys that have no debts left. It finds the
// writes that no event is told of: the object came and went between two looks, or cannot be taken into the store.
func (l *ledger) reached(c *cache, resourceVersion string) {
	if l.open.Load() == 0 {
		return
	}
	l.mu.Lock()
	var passed []*debt
	for o, debts := range l.objects {
		if o.cache == c {
			passed = append(passed, debts...)
		}
	}
	woken := l.settle(passed, func(d *debt) bool {
		return !d.deleted && atLeast(resourceVersion, d.resourceVersion) || d.deleted && d.settled()
	})
	l.mu.Unlock()
	for _, k := range woken {
		l.wake(k)
	}
}

// settle removes the debts that are settled, and returns the keys that were parked and have none left. The caller holds mu.
func (l *ledger) settle(debts []*debt, settled func(*debt) bool) (woken []Key) {
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
		a.debts = slices.DeleteFunc(a.debts, is)
		if len(a.debts) == 0 {
			delete(l.accounts, d.owner)
			if !a.parked.IsZero() {
				woken = append(woken, d.owner)
			}
		}
		l.objects[d.object] = slices.DeleteFunc(l.objects[d.object], is)
		if len(l.objects[d.object]) == 0 {
			delete(l.objects, d.object)
		}
	}
	return woken
}

// parked counts the keys that are parked.
func (l *ledger) parked() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		if !a.parked.IsZero() {
			n++
		}
	}
	return n
}

// settled reports whether the cache shows the write, or something later.
func (d *debt) settled() bool {
	h := d.object.cache.look(d.object.key)
	if d.deleted {
		return !h.exists || h.UID != d.uid || h.Deleting
	}
	if h.exists && atLeast(h.ResourceVersion, d.resourceVersion) {
		return true
	}
	return atLeast(d.object.cache.informer.ResourceVersion(), d.resourceVersion)
}

// atLeast reports whether version a is b or later. Versions that are no numbers, as some aggregated API servers give, can only be equal.
func atLeast(a, b string) bool {
	if a == b {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
