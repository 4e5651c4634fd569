package reconcile

import (
	"cmp"
	"time"

	"k8s.io/klog/v2"
)

// debtor is who waits for writes: a key, in the ledger of its controller, or ManagerOptions.WhileLeading, in those of
// all controllers. The transport tells it what becomes of each write, and it decides which caches must show that. An
// informer's requests tell what the informer selects, see scope.go; the answer to the write tells the rest. Where that
// is not enough the key waits all the same.
type debtor struct {
	owner   Key
	ledgers []*ledger
}

// sends says that a write is sent: the key waits until it is answered, even if the call that made it has returned.
func (d debtor) sends() {
	for _, l := range d.ledgers {
		l.mu.Lock()
		l.open.Add(1)
		a := l.account(d.owner)
		if a.underWay++; a.underWay == 1 {
			a.sentAt = time.Now()
		}
		l.mu.Unlock()
	}
}

// answered ends what sends has begun. The debts that come from the answer have been opened before.
func (d debtor) answered() {
	for _, l := range d.ledgers {
		l.mu.Lock()
		l.open.Add(-1)
		a := l.accounts[d.owner]
		a.underWay--
		keys := l.closeAccount(nil, d.owner, a)
		l.mu.Unlock()
		l.wakeUp(keys)
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
	for _, l := range d.ledgers {
		for _, c := range l.caches {
			s := c.learner.scopeOf(w.object.Namespace)
			if s == nil || !s.mayShow(w) {
				continue
			}
			l.owe(&debt{owner: d.owner, kind: w.debtKind(), object: object{c, w.object}, uid: w.uid,
				resourceVersion: w.resourceVersion, final: w.final, mayStay: w.mayStay, unsure: w.unsure,
				selective: !s.labels.Empty() || s.needsFields(),
				outside:   !s.selects(w) || s.needsFields() && !w.created,
				expected:  s.selects(w) && !s.needsFields()})
			if s.needsFields() {
				l.once(c.Name()+" "+s.fieldSelector, func() {
					log.Info("The answer to a write does not tell whether it matches the informer's field selector, "+
						"so the key waits until the cache has passed the write's version, or has listed anew",
						"resource", w.resource, "informer", c.Name(), "fieldSelector", s.fieldSelector)
				})
			}
		}
	}
}

// wroteUnversioned is told of a write that has changed an object to a version which the answer does not tell. No key
// waits for it, and the next leader's caches list anew unless this one has listed since.
func (d debtor) wroteUnversioned(t target) {
	for _, l := range d.ledgers {
		l.mu.Lock()
		for _, o := range placesOf(l, t) {
			c, scope := o.cache, o.key.Namespace
			c.unversioned[scope] = c.progress(scope).begun + 1
		}
		l.mu.Unlock()
	}
}

// lostAnswer opens the debts of a write that may have happened or not, since its answer was lost. Only a list that
// begins from now on can tell. The relister asks for one list, which all such debts of a partition share.
func (d debtor) lostAnswer(log klog.Logger, t target) {
	for _, l := range d.ledgers {
		for _, o := range placesOf(l, t) {
			log.V(4).Info("It is unknown whether a write has happened", "informer", o.cache.Name(),
				"resource", t.resource, "namespace", t.namespace, "name", t.name)
			o.key = Key{Namespace: cmp.Or(t.namespace, o.key.Namespace), Name: t.name}
			l.owe(&debt{owner: d.owner, kind: unknownOutcome, object: o})
		}
	}
}

// placesOf returns the caches that may show what a request is about, with the namespaces that their informers ask for.
func placesOf(l *ledger, t target) (places []object) {
	for _, c := range l.caches {
		for _, s := range c.learner.allScopes() {
			if s.sameResource(t) && s.mayHold(t) {
				places = append(places, object{c, Key{Namespace: s.target.namespace}})
			}
		}
	}
	return places
}
