package debts

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Ledger says which keys of a controller must wait, and for what: a key that has debts is parked, and not reconciled.
//
// A key owes each write of its runs until the caches show it. When a worker takes a key that has debts, it parks the
// key: it ends its claim and takes the next key. Parked keys hold no worker, and nothing polls them. The key is put
// back into the queue when the last of its debts is paid. A write that is under way parks its key, too.
//
// Versions are compared within one resource only: Kubernetes promises no order across resources.
type Ledger struct {
	// Not changed once the Manager has started.
	Controller string // its name, for messages

	table    *keys.Table            // holds the keys that are parked; its lock may be taken with mu held
	enqueue  func(Key)              // puts a key into the queue; called without mu
	unparked func(Key, status.Wait) // the same for a key that was parked, and how long it was; called without mu
	caches   []*Cache               // those that stay
	relister relister
	all      Ledgers // of the process

	// Safe without a lock.
	open   atomic.Int64 // the number of debts and writes under way: while there are none an event costs one load
	once   onces        // what is logged once
	coming coming       // its mu may be taken with mu held

	mu sync.Mutex
	// Guarded by mu. Each open debt is in one account and in one partition, and, if it is about one object, under that
	// object. Neither map has an empty entry.
	accounts map[Key]*account
	objects  map[object][]*debt
	// unanswered are the parked keys that have a write under way, or had when the relister last looked.
	unanswered []wokenKey
	// underWay counts the writes of the whole Manager that have been sent and not been answered, by their targets.
	underWay map[writes.Target]int
}

// account is what one key waits for. The ledger's mu guards it.
type account struct {
	debts       []*debt       // in no order
	underWay    int           // writes that have been sent and not been answered
	sentAt      time.Time     // when the first of those was
	watched     bool          // the account is in unanswered
	notAnswered bool          // and the log says so
	parked      bool          // a worker has taken the key, and the table holds it
	wait        status.Wait   // how the key was parked, once the account is closed
	mustRun     bool          // reconcile the key even if nothing names it: a write of its may be undone
	allPaid     chan struct{} // is closed when there are no debts left, unless it is nil
}

// New makes the ledger of a controller. enqueue puts a key into the queue, and so does unparked with a key that was
// parked.
func New(table *keys.Table, enqueue func(Key), unparked func(Key, status.Wait)) *Ledger {
	l := &Ledger{
		table: table, enqueue: enqueue, unparked: unparked,
		accounts: make(map[Key]*account), objects: make(map[object][]*debt), underWay: make(map[writes.Target]int),
	}
	l.relister = relister{ledger: l, rescan: make(chan struct{}, 1)}
	l.all = Ledgers{l}
	return l
}

// Ledgers are those of all controllers of a process.
type Ledgers []*Ledger

// Together makes the ledgers know each other, before any of them is used: what one controller writes, the cache of
// another may have to show to the next leader.
func Together(all ...*Ledger) Ledgers {
	for _, l := range all {
		l.all = all
	}
	return all
}

// Key is the namespace and name of an object.
type Key = informer.Key

// Owes reports whether any key waits for something.
func (l *Ledger) Owes() bool { return l.open.Load() > 0 }

// Caches returns the caches that stay.
func (l *Ledger) Caches() []*Cache { return l.caches }

// CacheOf returns the ledger's view of an informer. There is one for each informer, however many sources use it.
func (l *Ledger) CacheOf(inf Informer) *Cache {
	if c := l.Find(inf); c != nil {
		return c
	}
	c := newCache(inf)
	l.caches = append(l.caches, c)
	return c
}

// Find returns the ledger's view of an informer, or nil if the controller does not depend on it.
func (l *Ledger) Find(inf any) *Cache {
	for c := range everyCache(l) {
		if any(c.Informer) == inf {
			return c
		}
	}
	return nil
}

// States returns the states in which the caches of a resource have an object.
func (l *Ledger) States(t writes.Target) (states []any) {
	for c := range everyCache(l) {
		if !c.Learner.Follows(t) {
			continue
		}
		if o, ok := c.Object(Key{Namespace: t.Namespace, Name: t.Name}); ok {
			states = append(states, o)
		}
	}
	return states
}

// owe opens a debt, unless it is settled already.
func (l *Ledger) owe(d *debt) {
	c, namespace := d.object.cache, d.object.cache.PlaceOf(d.object.key)
	l.mu.Lock()
	defer l.mu.Unlock()
	// The lock decides which of the debt and an event that settles it comes first: the cache shows an earlier event,
	// and a later one finds the debt. Saw looks for debts only if open is not zero, so open counts this one before the
	// cache is looked at.
	l.open.Add(1)
	at := c.progress(c.partitionName(namespace))
	d.openedAt, d.begun = time.Now(), at.begun
	c.noteWrittenLocked(namespace, d.resourceVersion, at)
	if d.ofObject() {
		d.recallLocked(l)
	}
	if d.settledLocked(at) {
		if d.kind == status.DebtDeletion || d.kind == status.DebtUnknown {
			c.noteShownLocked(namespace, at)
		}
		if a, ok := l.accounts[d.owner]; ok { // the answer was slower than the end of what was written
			a.mustRun = a.mustRun || d.undone(at)
		}
		l.open.Add(-1)
		return
	}
	a := l.accountLocked(d.owner)
	d.slot = len(a.debts)
	a.debts = append(a.debts, d)
	if d.byObject() {
		l.objects[d.object] = append(l.objects[d.object], d)
	}
	p := c.partitionOfLocked(namespace, at)
	p.addLocked(d)
	l.relister.scanByLocked(p.dueAtLocked())
}

// accountLocked returns the account of a key, which is a new one if the key has none.
func (l *Ledger) accountLocked(owner Key) *account {
	a, ok := l.accounts[owner]
	if !ok {
		a = &account{}
		l.accounts[owner] = a
	}
	return a
}

// Park reports whether a key that a worker has taken must wait. If so, it is parked from now on, and wakeUp puts it
// back into the queue as soon as it need not wait any more: the worker ends its claim without an outcome.
func (l *Ledger) Park(key Key) bool {
	if l.open.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.accounts[key]
	if ok && !a.parked {
		a.parked = true
		wait := status.Wait{For: status.WaitParked, From: time.Now()}
		wait.Debts, wait.MoreDebts = a.describeLocked(maxDebtsShown)
		l.table.Hold(key, wait)
		l.relister.awaitAnswerLocked(key, a)
	}
	return ok
}

// Saw pays what an event of a cache settles. The store has changed before the event. The version is empty if the object
// was found to be gone, and nothing tells at which version.
func (l *Ledger) Saw(c *Cache, key Key, uid types.UID, resourceVersion string, deleted bool) {
	if !deleted && l.open.Load() == 0 {
		return
	}
	l.mu.Lock()
	if deleted {
		c.gone.add(uid, time.Now()) // for a deletion whose answer is slower than its event
	}
	debts := l.objects[object{c, key}]
	if len(debts) == 0 {
		l.mu.Unlock()
		return
	}
	at := c.progress(c.partitionName(c.PlaceOf(key)))
	var keys []wokenKey
	for _, d := range slices.Clone(debts) {
		deletion := d.kind == status.DebtDeletion
		d.onceShown = d.onceShown || deletion && d.uid == uid
		switch {
		case !d.settledLocked(at):
			continue
		case deletion && resourceVersion != "":
			c.noteWrittenLocked(c.PlaceOf(key), resourceVersion, at)
		case deletion:
			c.noteUnversionedLocked(c.PlaceOf(key), at)
		}
		keys = l.payLocked(keys, d, at)
	}
	l.mu.Unlock()
	l.wakeUp(keys)
}

// Reached pays what is settled now that a cache has reached a version in a namespace, or no longer follows the
// namespace. It finds the writes that no event tells of: the object came and went between two looks of the informer, is
// outside of the selectors, or cannot be taken into the store.
func (l *Ledger) Reached(c *Cache, namespace string) {
	arrives(c)
	byNamespace := namespace != metav1.NamespaceAll
	if l.open.Load() == 0 && c.byNamespace.Load() == byNamespace && !c.unlisted.Load() {
		return
	}
	l.mu.Lock()
	c.noteListedLocked()
	byNamespace = byNamespace || c.ResourceVersion(metav1.NamespaceAll) == ""
	var keys []wokenKey
	if c.byNamespace.Load() != byNamespace {
		c.repartitionLocked(byNamespace)
		l.relister.scanNow()
		for _, p := range c.partitions {
			keys = l.paySettledLocked(keys, p.oldestLocked(all), p.progress())
		}
	} else {
		if p, ok := c.partitions[namespace]; ok && byNamespace {
			keys = l.payReachedLocked(keys, p)
		}
		if p, ok := c.partitions[metav1.NamespaceAll]; ok {
			keys = l.payReachedLocked(keys, p)
		}
	}
	l.mu.Unlock()
	l.wakeUp(keys)
}

// payReachedLocked pays what the latest progress of a partition has settled, and adds the keys to wake.
func (l *Ledger) payReachedLocked(keys []wokenKey, p *partition) []wokenKey {
	var few [4]*debt // so that most versions cost no allocation
	at := p.progress()
	return l.paySettledLocked(keys, p.perhapsSettledLocked(few[:0], at), at)
}

// paySettledLocked pays those of the debts, all of one partition, that are settled, and adds the keys to wake. A debt
// may stay open although the cache has reached its version: the store could not take the object, or the object is still
// to be deleted. Then an event or a list settles it.
func (l *Ledger) paySettledLocked(keys []wokenKey, debts []*debt, at progress) []wokenKey {
	for _, d := range debts {
		if d.partition == nil || !d.settledLocked(at) {
			continue
		}
		if d.kind == status.DebtDeletion {
			d.partition.noteReachedLocked(d, at)
		}
		keys = l.payLocked(keys, d, at)
	}
	return keys
}

// payLocked removes a debt. at is the progress of its partition. If the write is undone, the key must run even if
// nothing names it.
func (l *Ledger) payLocked(keys []wokenKey, d *debt, at progress) []wokenKey {
	if d.kind == status.DebtUnknown && at.listed > d.begun {
		d.partition.noteReachedLocked(d, at)
	}
	d.partition.removeLocked(d)
	l.open.Add(-1)
	a := l.accounts[d.owner]
	last := len(a.debts) - 1
	a.debts[d.slot] = a.debts[last]
	a.debts[d.slot].slot = d.slot
	a.debts[last] = nil
	a.debts = a.debts[:last]
	a.mustRun = a.mustRun || d.undone(at)
	if d.byObject() {
		others := slices.DeleteFunc(l.objects[d.object], func(other *debt) bool { return other == d })
		l.objects[d.object] = others
		if len(others) == 0 {
			delete(l.objects, d.object)
		}
	}
	return l.closeAccountLocked(keys, d.owner, a)
}

// closeAccountLocked closes the account of a key that waits for nothing any more. It adds the key to those to wake, if
// it is parked or must run.
func (l *Ledger) closeAccountLocked(keys []wokenKey, owner Key, a *account) []wokenKey {
	if len(a.debts) > 0 || a.underWay > 0 {
		return keys
	}
	delete(l.accounts, owner)
	if a.allPaid != nil {
		close(a.allPaid)
	}
	if a.parked {
		a.wait, _, _ = l.table.Free(owner, status.WaitParked)
	}
	if owner != handoverOwner && (a.parked || a.mustRun) {
		keys = append(keys, wokenKey{owner, a})
	}
	return keys
}

// handoverOwner owes what the last leader's handover says. No object has such a name.
var handoverOwner = Key{Name: "\x00the last leader"}

// wokenKey is a key with its account, which may be closed: then it is to be reconciled for that reason.
type wokenKey struct {
	key Key
	*account
}

// wakeUp puts the keys into the queue. It is called without mu.
func (l *Ledger) wakeUp(keys []wokenKey) {
	for _, k := range keys {
		if k.parked {
			l.unparked(k.key, k.wait)
		} else {
			l.enqueue(k.key)
		}
	}
}

// maxDebtsShown is how many debts the record of a wait has.
const maxDebtsShown = 4

// describeLocked returns the first debts, at most that many, and how many there are besides.
func (a *account) describeLocked(most int) (list []status.Debt, more int) {
	for _, d := range a.debts[:min(len(a.debts), most)] {
		list = append(list, d.recordLocked())
	}
	if a.underWay > 0 && len(list) < most {
		list = append(list, status.Debt{Kind: status.DebtUnderWay, Since: a.sentAt})
	}
	return list, len(a.debts) + min(a.underWay, 1) - len(list)
}

// Owed returns the debts of a key. withText adds the texts of errors.
func (l *Ledger) Owed(key Key, withText bool) (list []status.Debt) {
	var caches []*Cache
	l.mu.Lock()
	if a, ok := l.accounts[key]; ok {
		list, _ = a.describeLocked(len(a.debts) + 1)
		for _, d := range a.debts {
			caches = append(caches, d.object.cache)
		}
	}
	l.mu.Unlock()
	for i, c := range caches {
		place := c.PlaceOf(Key{Namespace: list[i].Namespace, Name: list[i].Name})
		list[i].CacheReason = ReasonOf(c.HealthIn(place), withText)
	}
	return list
}
