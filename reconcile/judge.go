package reconcile

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// Which caches will see a write is judged by what is known: by the collection that an informer has been seen to ask
// for, and by what the answer tells of the object. What is not known is owed all the same, and something settles it: an
// event, the version that the cache has reached, or the server, when it is asked.

// target reads an address that is written to. It is exact, and followed is true, if one of the caches follows what is
// there; if none does, it is good for names. What a user may take for tracked, and is not, is said once.
func (l *ledger) targetOf(log klog.Logger, address string) (t target, followed bool) {
	passed := false
	for _, c := range l.caches {
		if t, ok := c.learner.targetOf(address); ok {
			if what := t.resource + "/" + t.subresource; ownAnswer[t.subresource] {
				l.once(what, func() {
					log.Info("Writes to this subresource are not waited for: "+
						"the answers do not tell what has become of the object", "resource", what)
				})
			}
			return t, true
		}
		heard, _ := c.learner.tracked()
		passed = passed || heard
	}
	t = guessTarget(address)
	if !passed {
		l.once("", func() {
			log.Error(nil, "Writes are tracked, but no informer of this controller makes its requests through "+
				"TrackWrites, so nothing is waited for: call cfg.Wrap(reconcile.TrackWrites) on the rest.Config that "+
				"the informers' clients are made from, too")
		})
	}
	for _, c := range l.caches {
		if at := c.learner.hostOf(t); at != "" {
			l.once(t.host+" "+t.group+"/"+t.resource, func() {
				log.Info("Writes to this resource are not waited for, as the informer follows it at another server. "+
					"If that is the same server by another name, one name has to do for all clients",
					"resource", t.resource, "group", t.group, "server", t.host, "informer", c.Name(), "follows", at)
			})
		}
	}
	return t, false
}

// once calls fn unless it has been called for something of that name.
func (l *ledger) once(name string, fn func()) {
	if _, before := l.loggedOnce.LoadOrStore(name, true); !before {
		fn()
	}
}

// wrote records a write of the key's run, for each of the caches that are going to see it, or may.
//
// What is outside of an informer's labels now was inside before if the cache has it, or is about to since there is a
// debt for it: then it has to be seen to go. Else it is taken for something that has never been inside. Of what was
// deleted at once the answer does not tell the labels; there, too, the caches decide that know the object, and if none
// does, any of them may see it.
func (l *ledger) wrote(log klog.Logger, key Key, w write) {
	if w.object.Name == "" || w.resourceVersion == "" && !w.deleted {
		l.lostAnswer(log, key, w.target) // the answer does not tell what has been written
		return
	}
	var debts, others []*debt
	known := false
	for _, c := range l.caches {
		s := c.learner.scopeOf(w.object.Namespace)
		if s == nil || !s.sameResource(w.target) || !s.admitsName(w.object) {
			continue
		}
		d := &debt{owner: key, object: object{c, w.object}, uid: w.uid, deleted: w.deleted}
		d.resourceVersion = w.resourceVersion
		knows := l.hasOrExpects(d)
		known = known || knows
		switch {
		case d.uid == "" && d.deleted:
			l.lostAnswer(log, key, w.target) // the answer does not tell which object it was
			return
		case knows || s.labels.Empty() || w.labelsKnown && s.labels.Matches(labels.Set(w.labels)):
			debts = append(debts, d)
		case !w.labelsKnown:
			others = append(others, d)
		}
		if s.needsFields() {
			l.once(c.Name()+" "+s.asked[1], func() {
				log.Info("The answer to a write does not tell whether this informer will see it, so the key waits "+
					"until the cache has passed its version, or the server has been asked",
					"resource", w.resource, "informer", c.Name(), "fieldSelector", s.asked[1])
			})
		}
	}
	if !known {
		debts = append(debts, others...)
	}
	for _, d := range debts {
		l.owe(d)
	}
}

// knows reports whether a cache has the object that was written, or is about to. If the answer has not told its UID,
// the object in the cache does.
func (l *ledger) hasOrExpects(d *debt) bool {
	l.mu.Lock()
	about := func(other *debt) bool { return other.uid == d.uid && other.list == 0 }
	owed := slices.ContainsFunc(l.objects[d.object], about)
	l.mu.Unlock()
	if owed {
		return true // looked at first: a debt that is settled leaves the object in the cache
	}
	h, exists := d.object.cache.Version(d.object.key)
	if exists && d.uid == "" && d.deleted {
		d.uid = h.UID
	}
	return exists && h.UID == d.uid
}
