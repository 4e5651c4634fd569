package reconcile

import (
	"cmp"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// debtor is who has made a write: a key, or ManagerOptions.WhileLeading. The transport tells it what becomes of each
// write, and it decides which caches must show that. A key waits for the caches of its controller. The caches that only
// other controllers have note the write for the next leader: see handover.go. An informer's requests tell what the
// informer selects, see scope.go; the answer to the write tells the rest. Where that is not enough the key waits all
// the same.
type debtor struct {
	owner  Key
	ledger *ledger   // in which the key waits; nil: no key does
	all    []*ledger // of the Manager
}

// targetOf reads the address of a write. If an informer of the Manager's controllers follows the resource, followed is
// true and the target exact; otherwise the target is a guess that is good enough for logs.
func (d debtor) targetOf(log klog.Logger, address string) (t target, followed bool) {
	if d.ledger != nil {
		if t, followed = d.ledger.targetOf(log, address); followed {
			return t, true
		}
	}
	for _, l := range d.all {
		if t, followed = l.follows(address); followed {
			return t, true
		}
	}
	return guessTarget(address), false
}

// sends says that a write is sent: the key waits until it is answered, even if the call that made it has returned.
func (d debtor) sends(t target) {
	for _, l := range d.all {
		l.mu.Lock()
		l.underWay[t]++
		l.mu.Unlock()
	}
	l := d.ledger
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.Add(1)
	a := l.account(d.owner)
	if a.underWay++; a.underWay == 1 {
		a.sentAt = time.Now()
	}
	l.relister.awaitAnswer(d.owner, a)
}

// answered ends what sends has begun. What the answer says has been recorded before.
func (d debtor) answered(t target) {
	if l := d.ledger; l != nil {
		l.mu.Lock()
		l.open.Add(-1)
		a := l.accounts[d.owner]
		if a.underWay--; a.notAnswered {
			l.relister.scanNow()
		}
		keys := l.closeAccount(nil, d.owner, a)
		l.mu.Unlock()
		l.wakeUp(keys)
	}
	for _, l := range d.all {
		l.mu.Lock()
		if l.underWay[t]--; l.underWay[t] == 0 {
			delete(l.underWay, t)
		}
		l.mu.Unlock()
	}
}

// note calls fn for each cache that the key's controller does not have. The mu of the cache's ledger is held.
func (d debtor) note(fn func(*cache)) {
	own := make(map[trackedInformer]bool)
	if d.ledger != nil && len(d.all) > 1 {
		for c := range everyCache(d.ledger) {
			own[c.trackedInformer] = true
		}
	}
	for _, l := range d.all {
		if l == d.ledger {
			continue
		}
		l.mu.Lock()
		for c := range everyCache(l) {
			if !own[c.trackedInformer] {
				fn(c)
			}
		}
		l.mu.Unlock()
	}
}

// noteWrite records what a write that the cache may show leaves for the next leader. The ledger's mu is held.
func (c *cache) noteWrite(w write) {
	at := c.progress(c.placeOf(w.object))
	if w.deleted && !w.final {
		c.noteUnversioned(w.object.Namespace, at)
	} else {
		c.noteWritten(w.object.Namespace, w.resourceVersion, at)
	}
}

// leaves is note for a cache of the key's controller in which nothing is waited for, since it has never been complete,
// and comes and goes: the keys that need it wait for its first list, which then has to be one that begins from now on.
// It reports whether the cache is one.
func (d debtor) leaves(c *cache, place string, note func()) bool {
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
func (d debtor) leave(t target, what handoverEntry) {
	for _, l := range d.all {
		l.coming.wrote(t, what)
	}
}

// wrote opens the debts of a write that a run of the key has made: one in each cache of the resource. Only an object
// that is new, and not selected, has never been in a cache and is not about to be.
//
// A cache that does not select the object may have selected it a moment ago, and not show that yet. So the key waits
// until the cache has come past the write: see [unexpectedAfter].
func (d debtor) wrote(log klog.Logger, w write) {
	if w.object.Name == "" || w.uid == "" || w.resourceVersion == "" && !w.deleted {
		d.lostAnswer(log, w.target) // the answer does not tell what has been written
		return
	}
	// The last thing, so that a cache that is given up meanwhile has noted the write, or has left its resource behind.
	defer d.leave(w.target, handoverEntry{ResourceVersion: w.resourceVersion, Relist: w.deleted && !w.final})
	d.note(func(c *cache) {
		if s := c.learner.scopeOf(w.object.Namespace); s != nil && s.mayShow(w) {
			c.noteWrite(w)
		}
	})
	l := d.ledger
	if l == nil {
		return
	}
	for c := range everyCache(l) {
		s := c.learner.scopeOf(w.object.Namespace)
		if s == nil || !s.mayShow(w) || d.leaves(c, s.target.namespace, func() { c.noteWrite(w) }) {
			continue
		}
		l.owe(&debt{owner: d.owner, kind: w.debtKind(), object: object{c, w.object}, uid: w.uid,
			resourceVersion: w.resourceVersion, final: w.final, mayStay: w.mayStay, unsure: w.unsure,
			selective: !s.labels.Empty() || s.needsFields(),
			outside:   !s.selects(w) || s.needsFields() && !w.created,
			expected:  s.selects(w) && !s.needsFields()})
		if s.needsFields() {
			l.once.do(c.Name()+" "+s.fieldSelector, func() {
				log.Info("The answer to a write does not tell whether it matches the informer's field selector, "+
					"so the key waits until the cache has passed the write's version, or has listed anew",
					"resource", w.resource, "informer", c.Name(), "fieldSelector", s.fieldSelector)
			})
		}
	}
}

// wroteUnversioned is told of a write that has changed an object to a version which the answer does not tell. No key
// waits for it, and the next leader's caches list anew, unless this one has listed since, and they have come as far.
func (d debtor) wroteUnversioned(t target) {
	defer d.leave(t, handoverEntry{Relist: true})
	debtor{all: d.all}.note(func(c *cache) { c.noteUnknown(t) })
}

// lostAnswer opens the debts of a write that may have happened or not, since its answer was lost. Only a list that
// begins from now on can tell. The relister asks for one list, which all such debts of a partition share.
func (d debtor) lostAnswer(log klog.Logger, t target) {
	defer d.leave(t, handoverEntry{Relist: true})
	d.note(func(c *cache) { c.noteUnknown(t) })
	l := d.ledger
	if l == nil {
		return
	}
	for c := range everyCache(l) {
		for _, namespace := range c.learner.mayHold(t) {
			if d.leaves(c, namespace, func() { c.noteUnknown(t) }) {
				continue
			}
			log.V(4).Info("It is unknown whether a write has happened", "informer", c.Name(), "resource", t.resource,
				"namespace", t.namespace, "name", t.name)
			l.owe(&debt{owner: d.owner, kind: status.DebtUnknown,
				object: object{c, Key{Namespace: cmp.Or(t.namespace, namespace), Name: t.name}}})
		}
	}
}
