package reconcile

import (
	"slices"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/naming"
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
	ca := c.ledger.CacheOf(to.SharedIndexInformer)
	named := func(keys []Key) []Key {
		return slices.DeleteFunc(keys, func(key Key) bool { return key.Name == "" })
	}
	by := namedBy(from, names)
	c.references = append(c.references, reference{c, ca, from, func(key Key) []Key { return named(by(key)) }})
	// A key that waits for what its object no longer names goes on.
	_, err = from.AddHandler(func(e informer.Event[R]) {
		if e.Type == informer.Added {
			return
		}
		for _, key := range named(namesIn(names, e.Old)) {
			c.stillNeeds(e.Key, ca, key)
		}
	}, informer.HandlerOptions{Name: "References of controller " + c.name, Inline: true, CrashOnPanic: true})
	if err != nil {
		c.mistake("References: %w", err)
		return
	}
	addSource(c, "References", to.SharedIndexInformer, nil, &naming.Namer[T]{Referrers: index.Keys})
}

// reference says which objects of a cache a key needs, as its own object names them.
type reference struct {
	*Controller
	to      *debts.Cache
	from    Informer
	namedBy func(Key) []Key // what the object of a key names; calls user code
}

// await opens a debt for each object that the object of a key names and of which the cache does not know enough.
func (r reference) await(key Key) {
	for _, named := range r.namedBy(key) {
		if r.to.Fresh(r.to.PlaceOf(named)) != nil {
			r.ledger.AwaitReady(key, r.to, named)
			r.stillNeeds(key, r.to, named) // or nothing would tell of a change that came before the debt
		}
	}
}

// stillNeeds lets a key wait no longer for an object that its own object does not name any more. It calls user code.
func (c *Controller) stillNeeds(key Key, in *debts.Cache, named Key) {
	if c.ledger.Owes() && !slices.ContainsFunc(c.references, func(r reference) bool {
		return r.to == in && slices.Contains(r.namedBy(key), named)
	}) {
		c.ledger.AwaitNoLonger(key, in, named)
	}
}
