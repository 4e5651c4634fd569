package debts

import (
	"slices"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Legacy is what a leader leaves to the next one about the writes to one resource, in one namespace, if its informer
// follows namespaces one by one, or in all: how far the next leader's cache must have come. The names of the fields are
// part of the Lease's format.
type Legacy struct {
	Host      string `json:"host,omitempty"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Informer is the name of an informer whose requests do not pass TrackWrites, in place of the resource.
	Informer        string `json:"informer,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Relist says that there is a write which no version covers: an unseen deletion, or a write of unknown outcome.
	Relist bool `json:"relist,omitempty"`
	// Listed is the version of a list that has covered such a write. A cache that has not reached it lists anew.
	Listed string `json:"listed,omitempty"`
}

// entryOf returns an entry about the scope of a request, with nothing else.
func entryOf(t writes.Target) Legacy {
	return Legacy{Host: t.Host, Group: t.Group, Resource: t.Resource, Namespace: t.Namespace}
}

// subject returns the entry with nothing but what it is about.
func (l Legacy) subject() Legacy {
	return Legacy{Host: l.Host, Group: l.Group, Resource: l.Resource, Namespace: l.Namespace,
		Informer: l.Informer}
}

// merge returns what two entries about one subject say together.
func (l Legacy) merge(other Legacy) Legacy {
	l.Relist = l.Relist || other.Relist
	type pair struct{ mine, others *string }
	for _, v := range []pair{{&l.ResourceVersion, &other.ResourceVersion}, {&l.Listed, &other.Listed}} {
		switch {
		case *v.others == "" || kube.AtLeast(*v.mine, *v.others):
		case *v.mine == "" || kube.AtLeast(*v.others, *v.mine):
			*v.mine = *v.others
		default: // the two cannot be compared
			l.Relist = true
		}
	}
	return l
}

// Merge returns the entries with those about one subject made one.
func Merge(entries []Legacy) []Legacy {
	all := []Legacy{}
	for _, e := range entries {
		i := slices.IndexFunc(all, func(other Legacy) bool { return e.subject() == other.subject() })
		if i < 0 {
			all = append(all, e)
		} else {
			all[i] = all[i].merge(e)
		}
	}
	return all
}

// concerns reports whether a scope may show what the entry is about.
func (l Legacy) concerns(s *writes.Scope) bool {
	return l.Group == s.Target.Group && l.Resource == s.Target.Resource &&
		(l.Namespace == s.Target.Namespace || l.Namespace == "" || s.Target.Namespace == "")
}

// Left returns what the next leader's caches must have seen.
func (all Ledgers) Left() (left []Legacy) {
	for _, l := range all {
		left = append(left, l.left()...)
	}
	return left
}

// Writers returns the keys with a write that is under way, or that a cache does not show yet.
func (all Ledgers) Writers() (writers []Key) {
	for _, l := range all {
		l.mu.Lock()
		for owner := range l.accounts {
			if owner != handoverOwner {
				writers = append(writers, owner)
			}
		}
		l.mu.Unlock()
	}
	return writers
}

// LeftBy returns what the caches of the next process that reconciles some keys must have seen. The runs of these keys
// have ended here, and keys has those of them that Writers has returned since then. The versions of all that this
// process wrote are among it, and what no key waits for.
func (all Ledgers) LeftBy(keys map[Key]bool) (left []Legacy) {
	unanswered := false
	for _, l := range all {
		l.mu.Lock()
		for owner, a := range l.accounts {
			unanswered = unanswered || keys[owner] && a.underWay > 0
		}
		l.mu.Unlock()
	}
	for _, l := range all {
		left = append(left, leftBy(l, keys, unanswered)...)
	}
	return left
}

// left returns what the next leader's caches must have seen.
func (l *Ledger) left() []Legacy { return leftBy(l, nil, false) }

// leftBy is Ledger.left with the debts of these keys only, unless keys is nil. unanswered says that one of them has a
// write under way.
func leftBy(l *Ledger, keys map[Key]bool, unanswered bool) (all []Legacy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range everyCache(l) {
		all = append(all, c.leftLocked(l, keys, unanswered)...)
	}
	return append(all, l.coming.entries()...)
}

// leftLocked returns what the next leader's cache must have seen: see leftBy.
func (c *Cache) leftLocked(l *Ledger, keys map[Key]bool, unanswered bool) (all []Legacy) {
	for _, left := range c.followedScopes() {
		part := left.Namespace
		now := c.progress(part)
		if now.unfollowed && !c.byName { // what is named may be another matter in the next leader's process
			continue
		}
		// A write to one namespace may have been followed with all namespaces at that time, or the other way round.
		here := func(of string) bool { return overlap(of, part) }
		for of, written := range c.written {
			if here(of) && !now.rewound(written) {
				left = left.merge(Legacy{ResourceVersion: written.resourceVersion})
			}
		}
		for of, shown := range c.shown {
			if here(of) && !now.rewound(shown) {
				left = left.merge(Legacy{Listed: shown.resourceVersion})
			}
		}
		for of := range c.unversioned {
			if here(of) {
				left.Relist = true
			}
		}
		left.Relist = left.Relist || unanswered
		for t := range l.underWay {
			if keys == nil && c.mayShow(t, part) {
				left.Relist = true
			}
		}
		for owner, a := range l.accounts {
			if keys != nil && !keys[owner] {
				continue
			}
			left.Relist = left.Relist || slices.ContainsFunc(a.debts, func(d *debt) bool {
				return d.object.cache == c && (d.kind == status.DebtDeletion || d.kind == status.DebtUnknown) &&
					here(c.scopeName(c.PlaceOf(d.object.key)))
			})
		}
		if left != left.subject() {
			all = append(all, left)
		}
	}
	return all
}

// followedScopes returns an entry without versions for each scope that the informer lists and watches. If its requests
// do not pass TrackWrites, only its name is known.
func (c *Cache) followedScopes() (all []Legacy) {
	for _, s := range c.Learner.Scopes() {
		all = append(all, entryOf(s.Target))
	}
	if len(all) == 0 {
		return []Legacy{{Informer: c.Name()}}
	}
	return all
}

// mayShow reports whether a scope of the cache may show a write to the target. If the informer's requests do not pass
// TrackWrites, it may show any.
func (c *Cache) mayShow(t writes.Target, scope string) bool {
	return !c.Learner.HasScope() || slices.Contains(c.Learner.MayHold(t), scope)
}
