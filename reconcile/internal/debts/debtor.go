package debts

import (
	"cmp"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Debtor is who has made a write: a key, or ManagerOptions.WhileLeading. The transport tells it what becomes of each
// write, and it decides which caches must show that. A key waits for the caches of its controller. The caches that only
// other controllers have note the write for the next leader: see handover.go. An informer's requests tell what the
// informer selects, and the answer to the write tells the rest: see package internal/writes. Where that is not enough
// the key waits all the same.
type Debtor struct {
	owner  Key
	ledger *Ledger // in which the key waits; nil: no key does
	all    Ledgers // of the process
}

// TargetOf reads the address of a write. If an informer of the Manager's controllers follows the resource, followed is
// true and the target exact; otherwise the target is a guess that is good enough for logs.
func (d Debtor) TargetOf(log klog.Logger, address string) (t writes.Target, followed bool) {
	if d.ledger != nil {
		if t, followed = d.targetOf(log, address); followed {
			return t, true
		}
	}
	for _, l := range d.all {
		if t, followed = follows(l, address); followed {
			return t, true
		}
	}
	return writes.GuessTarget(address), false
}

// follows reads the address of a write to a resource that an informer of the controller follows.
func follows(l *Ledger, address string) (t writes.Target, followed bool) {
	for c := range everyCache(l) {
		if t, followed = c.Learner.TargetOf(address); followed {
			return t, true
		}
	}
	if t = writes.GuessTarget(address); l.coming.knows(t) { // it may come back before the answer
		return t, true
	}
	return writes.Target{}, false
}

// targetOf is follows for a key of the controller. What a user might expect to be tracked, and is not, is logged once.
func (d Debtor) targetOf(log klog.Logger, address string) (t writes.Target, followed bool) {
	l := d.ledger
	if t, followed = follows(l, address); followed {
		what := t.Resource + "/" + t.Subresource
		if t.Untold() {
			l.once.do(what, func() {
				log.Info("Writes to this subresource are not waited for: "+
					"the answers do not tell what has become of the object", "resource", what)
			})
		}
		return t, true
	}
	requested := false
	t = writes.GuessTarget(address)
	for c := range everyCache(l) {
		seen, _ := c.Learner.Tracked()
		requested = requested || seen
		if host := c.Learner.HostOf(t); host != "" {
			l.once.do(t.Host+" "+t.Group+"/"+t.Resource, func() {
				log.Info("Writes to this resource are not waited for, as the informer follows it at another server. "+
					"If both names are of one server, use the same name in all clients",
					"resource", t.Resource, "group", t.Group, "server", t.Host, "informer", c.Name(), "follows", host)
			})
		}
	}
	if !requested {
		l.once.do("", func() {
			log.Error(nil, "Writes are tracked, but no informer of this controller makes its requests through "+
				"TrackWrites, so no write is waited for: make the informers' clients from what "+
				"reconcile.ClientConfig returns, too")
		})
	}
	return t, false
}

// Debtor returns who the transport tells of what a key writes.
func (l *Ledger) Debtor(owner Key) Debtor { return Debtor{owner, l, l.all} }

// Debtor returns who the transport tells of writes that no key waits for, but the next leader does.
func (all Ledgers) Debtor() Debtor { return Debtor{all: all} }

// Report is Wrote for a write that the transport has not seen: the key waits for one cache. deleted says that it was a
// deletion.
func (d Debtor) Report(c *Cache, o metav1.Object, deleted bool) {
	debt := &debt{owner: d.owner, kind: status.DebtChange, object: object{c, informer.KeyOf(o)}, uid: o.GetUID(),
		resourceVersion: o.GetResourceVersion(), expected: true}
	if gone := writes.IsGone(o); deleted || gone {
		debt.kind, debt.mayStay = status.DebtDeletion, !gone
	}
	d.ledger.owe(debt)
}

// onces are the names of what has been done once.
type onces struct{ names sync.Map }

// do calls fn unless it has been called under this name before.
func (o *onces) do(name string, fn func()) {
	if _, before := o.names.LoadOrStore(name, true); !before {
		fn()
	}
}

// Sends says that a write is sent: the key waits until it is answered, even if the call that made it has returned.
func (d Debtor) Sends(t writes.Target) {
	d.count(t, 1)
	l := d.ledger
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.Add(1)
	a := l.accountLocked(d.owner)
	if a.underWay++; a.underWay == 1 {
		a.sentAt = time.Now()
	}
	l.relister.awaitAnswerLocked(d.owner, a)
}

// Answered ends what Sends has begun. What the answer says has been recorded before.
func (d Debtor) Answered(t writes.Target) {
	if l := d.ledger; l != nil {
		l.mu.Lock()
		l.open.Add(-1)
		a := l.accounts[d.owner]
		a.underWay--
		if a.notAnswered {
			l.relister.scanNow()
		}
		keys := l.closeAccountLocked(nil, d.owner, a)
		l.mu.Unlock()
		l.wakeUp(keys)
	}
	d.count(t, -1)
}

// count changes the number of writes to a target that are under way.
func (d Debtor) count(t writes.Target, by int) {
	for _, l := range d.all {
		l.mu.Lock()
		if l.underWay[t] += by; l.underWay[t] == 0 {
			delete(l.underWay, t)
		}
		l.mu.Unlock()
	}
}

// note calls fn, with the lock of the cache's ledger held, for each cache that the key's controller does not have.
func (d Debtor) note(fn func(*Cache)) {
	if len(d.all) == 0 || len(d.all) == 1 && d.all[0] == d.ledger {
		return
	}
	own := make(map[Informer]bool)
	if d.ledger != nil {
		for c := range everyCache(d.ledger) {
			own[c.Informer] = true
		}
	}
	for _, l := range d.all {
		if l == d.ledger {
			continue
		}
		l.mu.Lock()
		for c := range everyCache(l) {
			if !own[c.Informer] {
				fn(c)
			}
		}
		l.mu.Unlock()
	}
}

// noteWriteLocked records what a write that the cache may show leaves for the next leader.
func (c *Cache) noteWriteLocked(w writes.Write) {
	at := c.progress(c.PlaceOf(w.Object))
	if w.Deleted && !w.Final {
		c.noteUnversionedLocked(w.Object.Namespace, at)
	} else {
		c.noteWrittenLocked(w.Object.Namespace, w.ResourceVersion, at)
	}
}

// leaves is note for a cache of the key's controller in which nothing is waited for, since it has never been complete,
// and comes and goes: the keys that need it wait for its first list, which then has to be one that begins from now on.
// It reports whether the cache is one.
func (d Debtor) leaves(c *Cache, place string, note func()) bool {
	if !c.comes || c.complete() {
		return false
	}
	c.listAfter(place)
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	note()
	return true
}

// leave tells of a write to a resource of which a cache was given up: the next leader may follow it still.
func (d Debtor) leave(t writes.Target, what Legacy) {
	for _, l := range d.all {
		l.coming.wrote(t, what)
	}
}

// Wrote opens the debts of a write that a run of the key has made: one in each cache of the resource. Only an object
// that is new, and not selected, has never been in a cache and is not about to be.
//
// A cache that does not select the object may have selected it a moment ago, and not show that yet. So the key waits
// until the cache has come past the write: see [unexpectedAfter].
func (d Debtor) Wrote(log klog.Logger, w writes.Write) {
	if w.Object.Name == "" || w.UID == "" || w.ResourceVersion == "" && !w.Deleted {
		d.LostAnswer(log, w.Target) // the answer does not tell what has been written
		return
	}
	// The last thing, so that a cache that is given up meanwhile has noted the write, or has left its resource behind.
	defer d.leave(w.Target, Legacy{ResourceVersion: w.ResourceVersion, Relist: w.Deleted && !w.Final})
	d.note(func(c *Cache) {
		if s := c.Learner.ScopeOf(w.Object.Namespace); s != nil && s.MayShow(w) {
			c.noteWriteLocked(w)
		}
	})
	l, kind := d.ledger, status.DebtChange
	if l == nil {
		return
	}
	if w.Deleted {
		kind = status.DebtDeletion
	}
	for c := range everyCache(l) {
		s := c.Learner.ScopeOf(w.Object.Namespace)
		if s == nil || !s.MayShow(w) || d.leaves(c, s.Target.Namespace, func() { c.noteWriteLocked(w) }) {
			continue
		}
		selects := s.Selects(w) && c.keeps(w)
		l.owe(&debt{owner: d.owner, kind: kind, object: object{c, w.Object}, uid: w.UID,
			resourceVersion: w.ResourceVersion, final: w.Final, mayStay: w.MayStay, unsure: w.Unsure,
			selective: s.Selective() || c.changesShare(),
			outside:   !selects || s.NeedsFields() && !w.Created,
			expected:  selects && !s.NeedsFields()})
		if s.NeedsFields() {
			l.once.do(c.Name()+" "+s.FieldSelector, func() {
				log.Info("The answer to a write does not tell whether it matches the informer's field selector, "+
					"so the key waits until the cache has passed the write's version, or has listed anew",
					"resource", w.Resource, "informer", c.Name(), "fieldSelector", s.FieldSelector)
			})
		}
	}
}

// WroteUnversioned is told of a write that has changed an object to a version which the answer does not tell. No key
// waits for it, and the next leader's caches list anew, unless this one has listed since, and they have come as far.
func (d Debtor) WroteUnversioned(t writes.Target) {
	defer d.leave(t, Legacy{Relist: true})
	Debtor{all: d.all}.note(func(c *Cache) { c.noteUnknownLocked(t) })
}

// LostAnswer opens the debts of a write that may have happened or not, since its answer was lost. Only a list that
// begins from now on can tell. The relister asks for one list, which all such debts of a partition share.
func (d Debtor) LostAnswer(log klog.Logger, t writes.Target) {
	defer d.leave(t, Legacy{Relist: true})
	d.note(func(c *Cache) { c.noteUnknownLocked(t) })
	l := d.ledger
	if l == nil {
		return
	}
	for c := range everyCache(l) {
		for _, namespace := range c.Learner.MayHold(t) {
			if d.leaves(c, namespace, func() { c.noteUnknownLocked(t) }) {
				continue
			}
			log.V(4).Info("It is unknown whether a write has happened", "informer", c.Name(), "resource", t.Resource,
				"namespace", t.Namespace, "name", t.Name)
			l.owe(&debt{owner: d.owner, kind: status.DebtUnknown,
				object: object{c, Key{Namespace: cmp.Or(t.Namespace, namespace), Name: t.Name}}})
		}
	}
}
