package reconcile

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// ledger holds a controller's debts: what its runs have written and its caches have not seen. A key that has debts is
// not reconciled. The doc of the package has a picture of a debt's life. This file says what a debt is, and what
// settles it; place.go finds the debts that a new version settles; parking.go says how a key waits; prober.go asks the
// server about debts that nothing settles.
//
// Versions are compared within one resource only: across resources the order of versions is not promised. When the
// cluster has gone back to an older state nothing from before it is waited for, and neither is what was written in a
// namespace that the informer does not follow any more.
//
// An informer may follow several namespaces, each by itself. A version is reached, a list complete, and the cluster
// found to have gone back in one namespace; the namespace of an object, or of a key, tells which.
type ledger struct {
	enqueue  func(Key)                // puts a key into the queue; called without mu
	unparked func(Key, time.Duration) // is told how long a key was parked; called without mu
	caches   []*cache                 // complete before the Manager starts

	// open is the number of debts, so that an event costs one load while there are none.
	open atomic.Int64
	// news holds a value if the prober has to look at the places before its alarm rings.
	rescan chan struct{}
	// said has the names of what the log has been told of once.
	loggedOnce sync.Map

	mu sync.Mutex
	// Guarded by mu. Each open debt is in one account and in one place, and, unless it is a list that settles it, under
	// one object; neither map has an empty entry.
	accounts map[Key]*account
	objects  map[object][]*debt
	nextScan time.Time // when the prober looks at the places next; zero: not before there is news
}

// cache is an informer that a controller depends on, as its ledger sees it.
type cache struct {
	trackedInformer
	learner *learner // set by the Manager before it starts the informer

	// apart is true if the informer follows namespaces by themselves. It is changed with the ledger's mu held.
	apart atomic.Bool
	// Guarded by the ledger's mu. places has those with debts, and those that the prober has not done with, by what
	// placeName says; gone are the objects that have left the cache last. written and shown are by the namespace that
	// is listed and watched, see part: written is what the next leader's cache has to have seen; shown is how far the
	// cache had come when it first showed what no version tells, which the next one has to have reached, too, or to
	// list anew.
	partitions map[string]*partition
	gone       recentlyGone
	written    map[string]mark
	shown      map[string]mark
}

// dependency is as much of an informer as the ledger uses; *[informer.SharedIndexInformer] is one for every type of
// object.
type trackedInformer interface {
	Informer
	Version(Key) (informer.Version, bool)
	Invalid(Key) error
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

// moment is how far a cache has come in a namespace. begun is the number of the latest list that was begun, and listed
// that of the latest one that is complete.
type progress struct {
	unfollowed             bool // the informer does not follow the namespace
	resourceVersion        string
	begun, listed, rewinds int
}

// now asks the informer; it may be called with the ledger's mu held.
func (c *cache) progress(namespace string) progress {
	h := c.HealthIn(namespace)
	return progress{h.State == "", c.ResourceVersion(namespace), h.Lists, h.Listed, h.Rewinds}
}

// part returns what is listed and watched together with the objects of a namespace: that namespace alone, or none if it
// is all of them.
func (c *cache) scopeName(namespace string) string {
	if s := c.learner.scopeOf(namespace); s != nil {
		return s.target.namespace
	}
	return namespace
}

// object is a place in a cache.
type object struct {
	cache *cache
	key   Key
}

// debt is one write that a cache has not seen, or something else that a key has to wait for in a cache.
type debt struct {
	owner           Key
	object          object
	uid             types.UID
	resourceVersion string // of a deletion: one at which the object still was, or was going; empty if none is known
	deleted         bool
	list            int // the number of the list that settles it, newList or freshCache; zero: a known write

	// Set by owe, and not changed after. begun is the number of the latest list that had been begun: any later one
	// shows the write. rewinds is of the cache.
	openedAt time.Time
	begun    int
	rewinds  int

	// Guarded by the ledger's mu. met is true of a deletion if the cache has ever held the object: where it does not
	// any more, it has seen the deletion. place is nil once the debt is settled; the rest says where it stands in the
	// account, and in the place by age and by version: -1 if the version has been reached, or is no number.
	onceHeld  bool
	partition *partition
	slot      int
	age       *list.Element
	rank      int
}

const (
	// freshCache is the list of a debt that no write has brought about: the cache may not be acted on, since it is not
	// complete, or too old.
	freshCache = -1
	// newList stands, until the debt is owed, for the number of the next list: the write may have happened or not.
	newList = -2
)

func newLedger(wake func(Key), waited func(Key, time.Duration)) *ledger {
	return &ledger{
		enqueue: wake, unparked: waited, rescan: make(chan struct{}, 1),
		accounts: make(map[Key]*account), objects: make(map[object][]*debt),
	}
}

// cacheOf returns the ledger's view of an informer; there is one for each, however many sources use it.
func (l *ledger) cacheOf(inf trackedInformer) *cache {
	if c := l.find(inf); c != nil {
		return c
	}
	c := &cache{
		trackedInformer: inf, partitions: make(map[string]*partition), written: make(map[string]mark), shown: make(map[string]mark),
	}
	l.caches = append(l.caches, c)
	return c
}

func (l *ledger) find(inf Informer) *cache {
	for _, c := range l.caches {
		if Informer(c.trackedInformer) == inf {
			return c
		}
	}
	return nil
}

// lost records a write that may have happened or not: the answer has been lost. Only a list that begins now can tell,
// and the prober asks for it: those who want one share it.
func (l *ledger) lostAnswer(log klog.Logger, key Key, t target) {
	for _, c := range l.caches {
		for _, s := range c.learner.allScopes() {
			if !s.sameResource(t) || !s.mayHold(t) {
				continue
			}
			log.V(4).Info("It is unknown whether a write has happened", "informer", c.Name(),
				"resource", t.resource, "namespace", t.namespace, "name", t.name)
			where := Key{Namespace: cmp.Or(t.namespace, s.target.namespace), Name: t.name}
			l.owe(&debt{owner: key, object: object{c, where}, list: newList})
		}
	}
}

// owe adds a debt, unless it is settled already.
func (l *ledger) owe(d *debt) {
	c := d.object.cache
	l.mu.Lock()
	defer l.mu.Unlock()
	// Judged with the lock held: an event that settles it and came before is seen in the cache, one that comes later
	// finds the debt. It looks for one only if open says that there are any, so the debt is counted before the cache is
	// looked at.
	l.open.Add(1)
	now := c.progress(c.partitionName(d.object.key.Namespace))
	d.openedAt, d.begun, d.rewinds = time.Now(), now.begun, now.rewinds
	unknown := d.list == newList
	if unknown {
		d.list = now.begun + 1
	}
	c.noteWritten(d.object.key.Namespace, mark{d.resourceVersion, now.rewinds})
	if d.deleted {
		l.recall(d)
	}
	if d.settled(now) {
		if d.deleted || d.list > 0 {
			c.noteShown(d.object.key.Namespace, mark{now.resourceVersion, now.rewinds})
		}
		l.open.Add(-1)
		return
	}
	a, ok := l.accounts[d.owner]
	if !ok {
		a = &account{}
		l.accounts[d.owner] = a
	}
	d.slot = len(a.debts)
	a.debts = append(a.debts, d)
	if d.list == 0 {
		l.objects[d.object] = append(l.objects[d.object], d)
	}
	p := c.partitionOf(d.object.key.Namespace, now)
	p.add(d)
	if unknown {
		p.listWanted = max(p.listWanted, d.list)
	}
	if unknown || l.nextScan.IsZero() || d.openedAt.Add(doubtAfter).Before(l.nextScan) {
		l.scanNow()
	}
}

// ring lets the prober look at the places.
func (l *ledger) scanNow() {
	select {
	case l.rescan <- struct{}{}:
	default: // it has not taken the last news yet
	}
}

// trace finds out what is known of an object that has been deleted: whether the cache has ever held it, and, if not, a
// version at which it still was. The ledger's mu is held.
func (l *ledger) recall(d *debt) {
	c := d.object.cache
	h, held := c.Version(d.object.key)
	d.onceHeld = held && h.UID == d.uid || c.gone.has(d.uid)
	for _, earlier := range l.objects[d.object] {
		if earlier.uid == d.uid && !kube.AtLeast(d.resourceVersion, earlier.resourceVersion) {
			d.resourceVersion = earlier.resourceVersion
		}
	}
}

// passes moves the mark of what was written in a namespace on. The ledger's mu is held.
func (c *cache) noteWritten(namespace string, m mark) { m.advance(c.written, c.scopeName(namespace)) }

// shows moves the mark of what no version tells on. The ledger's mu is held.
func (c *cache) noteShown(namespace string, m mark) { m.advance(c.shown, c.scopeName(namespace)) }

// moves puts the mark in the place of an earlier one.
func (m mark) advance(marks map[string]mark, part string) {
	last := marks[part]
	if m.resourceVersion != "" && (m.rewinds != last.rewinds || !kube.AtLeast(last.resourceVersion, m.resourceVersion)) {
		marks[part] = m
	}
}

// settled reports whether the cache, which has come this far, shows the write or something later. The ledger's mu is
// held.
func (d *debt) settled(now progress) bool {
	switch {
	case now.unfollowed:
		return true // it will never be seen
	case now.rewinds != d.rewinds:
		return true // what was written is in a future that the cluster has gone back from
	case d.list == freshCache:
		return d.object.cache.Fresh(d.object.key.Namespace) == nil
	case d.list > 0:
		return now.listed >= d.list
	}
	h, held := d.object.cache.Version(d.object.key)
	switch {
	case held && h.UID == d.uid && d.deleted:
		return h.Deleting
	case held && h.UID == d.uid && kube.AtLeast(h.ResourceVersion, d.resourceVersion):
		return true
	case d.onceHeld:
		return true // and the cache does not hold it any more
	}
	// The cache shows nothing of the write. Either it has gone past it, or it has not got there yet.
	passed := now.listed > d.begun && (d.deleted || !kube.Ordered(now.resourceVersion, d.resourceVersion))
	if d.resourceVersion != "" {
		passed = passed || kube.AtLeast(now.resourceVersion, d.resourceVersion) ||
			held && kube.AtLeast(h.ResourceVersion, d.resourceVersion)
	}
	return passed && !d.invalid()
}

// rejected reports whether the cache knows of an object of that name whose present state it could not take. Then the
// cache may have gone past the write, and still nobody who reads it sees what was written.
func (d *debt) invalid() bool { return d.object.cache.Invalid(d.object.key) != nil }

// pay removes a debt that is settled, unless it has been removed before, of a place that has come as far as now says.
// undone says that what was written is no more. It adds the key to those that are to go on, if this was the last debt
// of a key that is parked, or that has to be reconciled since a write of its is undone. The ledger's mu is held.
func (l *ledger) pay(keys []wokenKey, d *debt, now progress, undone bool) []wokenKey {
	if d.partition == nil {
		return keys
	}
	d.partition.remove(d)
	l.open.Add(-1)
	if d.list > 0 && now.listed >= d.list {
		d.object.cache.noteShown(d.object.key.Namespace, mark{now.resourceVersion, now.rewinds})
	}
	a := l.accounts[d.owner]
	last := len(a.debts) - 1
	a.debts[d.slot] = a.debts[last]
	a.debts[d.slot].slot = d.slot
	a.debts[last] = nil
	a.debts = a.debts[:last]
	a.mustRun = a.mustRun || undone || d.rewinds != now.rewinds
	if last == 0 {
		delete(l.accounts, d.owner)
		if a.allPaid != nil {
			close(a.allPaid)
		}
		if d.owner != heir && (!a.parkedSince.IsZero() || a.mustRun) {
			keys = append(keys, wokenKey{d.owner, a.parkedSince})
		}
	}
	if d.list != 0 {
		return keys
	}
	others := slices.DeleteFunc(l.objects[d.object], func(other *debt) bool { return other == d })
	if l.objects[d.object] = others; len(others) == 0 {
		delete(l.objects, d.object)
	}
	return keys
}

// settle pays those of the debts that are settled, and returns the keys that are to go on. The ledger's mu is held.
func (l *ledger) settle(debts []*debt, settled func(*debt) bool) (keys []wokenKey) {
	for _, d := range debts {
		if d.partition != nil && settled(d) {
			keys = l.pay(keys, d, d.partition.progress(), false)
		}
	}
	return keys
}

// saw settles what an event of a cache settles, and wakes the keys that have no debts left. The store has changed
// before.
func (l *ledger) saw(c *cache, key Key, uid types.UID, resourceVersion string, deleted bool) {
	if !deleted && l.open.Load() == 0 {
		return
	}
	l.mu.Lock()
	if deleted {
		c.gone.add(uid) // for a deletion whose answer is slower than its event
	}
	debts := l.objects[object{c, key}]
	if len(debts) == 0 {
		l.mu.Unlock()
		return
	}
	now := c.progress(c.partitionName(key.Namespace))
	var keys []wokenKey
	for _, d := range slices.Clone(debts) {
		own := d.deleted && d.uid == uid
		if own && deleted {
			c.noteWritten(key.Namespace, mark{resourceVersion, now.rewinds})
		}
		d.onceHeld = d.onceHeld || own
		if own && deleted || d.settled(now) {
			keys = l.pay(keys, d, now, false)
		}
	}
	l.mu.Unlock()
	l.wakeUp(keys)
}

// maxGone is how many of the objects that have left a cache are remembered: those of the time between the event of a
// deletion and its answer.
const maxGone = 1024

// departed are the UIDs of the objects that have left a cache last.
type recentlyGone struct {
	uids []types.UID
	next int // where the next one is put once there are maxGone
}

func (g *recentlyGone) add(uid types.UID) {
	if len(g.uids) < maxGone {
		g.uids = append(g.uids, uid)
		return
	}
	g.uids[g.next] = uid
	g.next = (g.next + 1) % maxGone
}

func (g *recentlyGone) has(uid types.UID) bool { return slices.Contains(g.uids, uid) }
