package reconcile

import (
	"slices"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// References lets the objects of an informer name objects of another resource, of which the cache holds only those that
// are named: the Secrets that a Website names, of all in the cluster.
//
//	secrets, err := informer.NewReferenced(resource.In, informer.Options[*corev1.Secret]{})
//	reconcile.For(c, sites)
//	reconcile.References(c, sites, secrets, func(s *v1.Website) []reconcile.Key {
//		return []reconcile.Key{{Namespace: s.Namespace, Name: s.Spec.Secret}}
//	})
//
// The keys of the controller are those of the objects of from. Reconcile is not called for a key before the cache knows
// each object that the key's object names, or knows that there is none. So an error of [informer.Referenced.Get] in
// Reconcile means that names has not returned the name, or that the key's object has changed since the call began:
// return the error. If the server does not let the program see an object, the keys whose objects name it wait, and no
// others. Each change of a named object, its creation and its deletion name the keys of the objects that name it. The
// loop waits for what the controller writes to a named object. It does not wait for a write to an object that nothing
// names, since the cache never shows it.
//
// Of names the rules of [informer.AddIndex] hold: it must be quick and must not change the object, and an object on
// which it panics is invalid. A controller may have several References, also to one cache.
func References[R, T any](c *Controller, from *informer.SharedIndexInformer[R], to *informer.Referenced[T],
	names func(R) []Key) {
	switch {
	case from == nil || to == nil:
		c.mistake("References: the informer is nil")
		return
	case c.manager != nil:
		c.mistake("References was called after NewManager")
		return
	}
	index, err := informer.AddReferences(from, to, names)
	if err != nil {
		c.mistake("References: %w", err)
		return
	}
	ca := c.ledger.cacheOf(to.SharedIndexInformer)
	ca.references = append(ca.references, reference{from, func(key Key) []Key {
		object, exists := from.Get(key)
		if !exists {
			return nil
		}
		return namesIn(names, object)
	}})
	// A key that waits for what its object no longer names goes on.
	_, err = from.AddHandler(func(e informer.Event[R]) {
		if e.Type == informer.Added {
			return
		}
		for _, named := range namesIn(names, e.Old) {
			c.ledger.stillNeeds(e.Key, ca, named)
		}
	}, informer.HandlerOptions{Name: "References of controller " + c.name, Inline: true, CrashOnPanic: true})
	if err != nil {
		c.mistake("References: %w", err)
		return
	}
	addSource(c, "References", to.SharedIndexInformer, &namer[T]{referrers: index.Keys})
}

// namesIn returns the keys that an object names. The informer holds no object that names panics on.
func namesIn[R any](names func(R) []Key, object R) (keys []Key) {
	_ = lifecycle.Try(func() { keys = names(object) })
	return slices.DeleteFunc(slices.Clone(keys), func(key Key) bool { return key.Name == "" })
}

// reference says which objects of a cache a key needs, as its own object names them.
type reference struct {
	from    Informer
	namedBy func(Key) []Key // what the object of a key names; calls user code
}

// needs reports whether the object of a key names an object of the cache. It calls user code.
func (c *cache) needs(key, named Key) bool {
	return slices.ContainsFunc(c.references, func(r reference) bool { return slices.Contains(r.namedBy(key), named) })
}

// awaitNamed opens a debt for each object that the object of a key names and of which the cache does not know enough.
func (c *cache) awaitNamed(key Key, l *ledger) {
	for _, r := range c.references {
		for _, named := range r.namedBy(key) {
			if c.Fresh(c.placeOf(named)) != nil {
				l.awaitReady(key, object{c, named})
				l.stillNeeds(key, c, named) // or nothing would tell of a change that came before the debt
			}
		}
	}
}

// stillNeeds lets a key wait no longer for an object that its own object does not name any more.
func (l *ledger) stillNeeds(key Key, c *cache, named Key) {
	if l.open.Load() > 0 && !c.needs(key, named) {
		l.awaitNoLonger(key, func(place object) bool { return place == object{c, named} })
	}
}

// followsByName reports whether an informer follows single objects.
func followsByName(inf any) bool {
	scoped, ok := inf.(interface{ Scope() informer.Scope })
	return ok && scoped.Scope().ByName
}
