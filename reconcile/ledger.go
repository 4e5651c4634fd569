package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
)

// parkingTime is how long a key waits for a cache before the server is asked what became of the write.
const parkingTime = 10 * time.Second

// ledger holds a controller's debts: what its runs have written and its caches have not seen. A key that has debts is not reconciled; it is parked,
// without a worker, and woken by the event, or by the version that the cache reaches, which settles the last one.
//
// A debt is settled when the cache holds the object at the written version or a later one, when the cache as a whole has reached that version, or
// when the object, by UID, is gone from it. For a deletion, an object that has a deletionTimestamp is as good as gone. Versions are compared within
// one resource only: across resources the order of versions is not promised. A write whose outcome is unknown has no version; its debt is settled when
// the informer has listed anew. And when the cluster has gone back to an older state nothing from before it is waited for.
type ledger struct {
	wake   func(Key)                // puts a key into the queue; called without mu
	waited func(Key, time.Duration) // is told how long a key was parked; called without mu
	caches []*cache                 // complete before the Manager starts

	// open is the number of debts, so that an event costs one load while there are none; opened holds a value if there is a new one.
	open   atomic.Int64
	opened chan struct{}
	// unheard is done once a write has been reported of which no cache can be expected to hear.
	unheard sync.Once

	mu sync.Mutex
	// Guarded by mu. Each debt is in exactly one account and under exactly one object; neither map has an empty entry.
	accounts map[Key]*account
	objects  map[object][]*debt
}

// cache is an informer that a controller depends on, as its ledger sees it.
type cache struct {
	dependency
	learner *learner // set by the Manager before it starts the informer

	// Guarded by the ledger's mu. doubted is the number of the last list that was asked for because the cache was behind; written is what the
	// next leader's cache has to have seen.
	doubted int
	written mark
}

// dependency is as much of an informer as the ledger uses; *[informer.SharedIndexInformer] is one for every type of object.
type dependency interface {
	Informer
	Version(Key) (informer.Version, bool)
	LiveVersion(context.Context, Key) (informer.Version, bool, error)
	Relist(doubt error) int
	Fresh() error
}

// mark is a version of one resource, in the count of rewinds at which it was one.
type mark struct {
	resourceVersion string
	rewinds         int
}

// moment is how far a cache has come.
type moment struct {
	resourceVersion string
	listed, rewinds int
}

func (c *cache) now() moment {
	h := c.Health()
	return moment{c.ResourceVersion(), h.Listed, h.Rewinds}
}

// object is a place in a cache.
type object struct {
	cache *cache
	key   Key
}

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

type debt struct {
	owner           Key
	object          object
	uid             types.UID
	resourceVersion string
	deleted         bool
	list            int       // the number of the list that settles it; zero if it is known what was written
	rewinds         int       // of the cache, when it was written
	ask             time.Time // when the server is asked next what became of it; guarded by the ledger's mu
	// after, unless nil, is the debt for an earlier write of an object that has been deleted since: as long as the cache has not seen that, it says nothing
	// that the object is not in it.
	after *debt
	paid  bool
}

func newLedger(wake func(Key), waited func(Key, time.Duration)) *ledger {
	return &ledger{wake: wake, waited: waited, opened: make(chan struct{}, 1), accounts: make(map[Key]*account), objects: make(map[object][]*debt)}
}

// cacheOf returns the ledger's view of an informer; there is one for each, however many sources use it.
func (l *ledger) cacheOf(inf dependency) *cache {
	if c := l.find(inf); c != nil {
		return c
	}
	c := &cache{dependency: inf}
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

// wrote records a write of the key's run, if one of the caches is going to see it.
func (l *ledger) wrote(log klog.Logger, key Key, w write) {
	if w.uid == "" || (w.resourceVersion == "" && !w.deleted) {
		return // no object: nothing to recognise it by
	}
	learned := false
	for _, c := range l.caches {
		s := c.learner.scope.Load()
		learned = learned || s != nil
		if s == nil || !s.about(w.target) {
			continue
		}
		if !s.includes(w) {
			if h, exists := c.Version(w.object); !exists || h.UID != w.uid {
				continue
			}
		}
		l.owe(&debt{owner: key, object: object{c, w.object}, uid: w.uid, resourceVersion: w.resourceVersion, deleted: w.deleted})
	}
	if !learned {
		l.unheard.Do(func() {
			log.Error(nil, "Writes are tracked, but no informer of this controller makes its requests through TrackWrites, so nothing is waited for: "+
				"call cfg.Wrap(reconcile.TrackWrites) on the rest.Config that the informers' clients are made from, too")
		})
	}
}

// lost records a write that may have happened or not: the answer has been lost. Only a list that begins now can tell.
func (l *ledger) lost(log klog.Logger, key Key, t target) {
	for _, c := range l.caches {
		if s := c.learner.scope.Load(); s != nil && s.about(t) && s.reaches(t) {
			log.Info("It is unknown whether a write has happened; the informer lists anew before the key is reconciled again", "informer", c.Name(),
				"resource", t.resource, "namespace", t.namespace, "name", t.name)
			l.owe(&debt{owner: key, object: object{c, Key{Namespace: t.namespace, Name: t.name}}, list: c.Relist(nil)})
		}
	}
}

// owe adds a debt, unless it is settled already.
func (l *ledger) owe(d *debt) {
	c := d.object.cache
	l.mu.Lock()
	defer l.mu.Unlock()
	// Judged with the lock held: an event that settles it and came before is seen in the cache, one that comes later finds the debt.
	now := c.now()
	d.rewinds = now.rewinds
	if d.owner != heir {
		c.passes(mark{d.resourceVersion, now.rewinds})
	}
	if d.deleted {
		for _, earlier := range l.objects[d.object] {
			if earlier.uid == d.uid {
				d.after = earlier
			}
		}
	}
	if d.settled(now) {
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
	l.open.Add(1)
	select {
	case l.opened <- struct{}{}:
	default: // there is one that has not been taken
	}
}

// passes moves the mark of what was written on. The ledger's mu is held.
func (c *cache) passes(m mark) {
	if m.resourceVersion != "" && (m.rewinds != c.written.rewinds || !atLeast(c.written.resourceVersion, m.resourceVersion)) {
		c.written = m
	}
}

// fresh returns nil if none of the caches is too old to be acted on.
func (l *ledger) fresh() error {
	for _, c := range l.caches {
		if err := c.Fresh(); err != nil {
			return err
		}
	}
	return nil
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
	keys := l.settle(slices.Clone(a.debts), func(d *debt) bool { return d.settled(d.object.cache.now()) })
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
	keys = l.settle(slices.Clone(a.debts), func(d *debt) bool { return void[d] || d.settled(d.object.cache.now()) })
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

// examine asks the server about debts that have been open for long, and returns those that nobody will ever settle. A cache that turns out to be behind is
// not asked about twice: its informer lists anew, and that settles everything.
func (l *ledger) examine(ctx context.Context, log klog.Logger, debts []*debt) (void map[*debt]bool) {
	// A server that does not answer must not keep the worker; the key is asked for again soon enough.
	ctx, cancel := context.WithTimeout(ctx, parkingTime)
	defer cancel()
	void = make(map[*debt]bool)
	behind := make(map[*cache]bool)
	for _, d := range debts {
		c := d.object.cache
		if behind[c] || ctx.Err() != nil {
			continue
		}
		log := log.WithValues("informer", c.Name(), "object", d.object.key)
		if d.list > 0 {
			behind[c] = true
			log.Error(nil, "Parked: the informer has not been able to list since a write whose outcome is unknown", "health", c.Health())
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
			behind[c] = true
			log.Error(nil, "Parked: the cache is behind an own write; its informer lists anew", "health", c.Health(), "for", parkingTime)
			l.doubt(c, fmt.Errorf("the cache has not seen for %s what the server has of %s", parkingTime, d.object.key))
		}
	}
	return void
}

// doubt makes the informer of a cache that is behind list anew, unless it is about to.
func (l *ledger) doubt(c *cache, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Health().Listed >= c.doubted {
		c.doubted = c.Relist(reason)
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
	now := c.now()
	keys := l.settle(slices.Clone(debts), func(d *debt) bool {
		if d.deleted && deleted && d.uid == uid {
			c.passes(mark{resourceVersion, now.rewinds})
			return true
		}
		return d.settled(now)
	})
	l.mu.Unlock()
	l.resume(keys)
}

// reached settles what the cache of an informer shows now that it has reached a version, and wakes the keys that have no debts left. It finds the
// writes that no event is told of: the object came and went between two looks, or cannot be taken into the store.
func (l *ledger) reached(c *cache) {
	if l.open.Load() == 0 {
		return
	}
	l.mu.Lock()
	now := c.now()
	var passed []*debt
	for o, debts := range l.objects {
		if o.cache == c {
			passed = append(passed, debts...)
		}
	}
	keys := l.settle(passed, func(d *debt) bool {
		if !d.settled(now) {
			return false
		}
		if d.deleted {
			c.passes(mark{now.resourceVersion, now.rewinds})
		}
		return true
	})
	l.mu.Unlock()
	l.resume(keys)
}

// resumed is a key that has no debts left and is to be reconciled for that reason.
type resumed struct {
	key   Key
	since time.Time // when it was parked; zero if it was not
}

func (l *ledger) report(keys []resumed) {
	for _, k := range keys {
		if !k.since.IsZero() {
			l.waited(k.key, time.Since(k.since))
		}
	}
}

func (l *ledger) resume(keys []resumed) {
	l.report(keys)
	for _, k := range keys {
		l.wake(k.key)
	}
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
		a.undone = a.undone || d.rewinds != d.object.cache.now().rewinds
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

// settled reports whether the cache, which has come this far, shows the write or something later.
func (d *debt) settled(now moment) bool {
	switch {
	case now.rewinds != d.rewinds:
		return true // what was written is in a future that the cluster has gone back from
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

// atLeast reports whether version a is b or later. Versions that are no numbers, as some aggregated API servers give, can only be equal.
func atLeast(a, b string) bool {
	if a == b {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
