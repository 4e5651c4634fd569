package reconcile

import (
	"slices"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/family"
)

// Needs lets the objects of an informer name those informers of a family that their keys need: the kinds that a spec
// names, or the namespaces of a tenant.
//
//	kinds, err := reconcile.NewDynamic("kinds of apps",
//		func(r schema.GroupVersionResource) (*informer.SharedIndexInformer[*unstructured.Unstructured], error) {
//			opts := informer.Options[*unstructured.Unstructured]{Name: r.GroupResource().String()}
//			kind, err := informer.NewCached(cfg, r, opts)
//			if err != nil {
//				return nil, err
//			}
//			return kind.Cache, nil
//		})
//	reconcile.For(c, apps)
//	reconcile.Needs(c, apps, kinds, (*v1.App).Kinds,
//		func(inf *informer.SharedIndexInformer[*unstructured.Unstructured]) { reconcile.Owns(c, inf, v1.AppKind) })
//
// The keys of the controller are those of the objects of from. Reconcile is not called for a key before each informer
// that the key's object names is complete and may be acted on: the key is parked, and [Controller.Why] says what it
// waits for. Other keys run on. In Reconcile [Dynamic.Get] returns the informer.
//
// A key does not wait where waiting would tell nobody anything: for an informer that cannot be made, and for one that
// the server refuses (403) or whose kind it does not know (404), as before a CustomResourceDefinition is installed.
// Then Reconcile is called, and Get returns an error that says why. So Reconcile can report it, do what needs no other
// informer, and let go of an object that is being deleted: there are no objects of a kind of which no version is
// installed. The informer keeps asking, and once it may be acted on each key whose object names it runs again, whatever
// Reconcile has returned. That a new informer is refused is noticed within a second or two. As long as another of the
// key's informers is on its way, or the server does not answer, the key waits. The example of Needs tells of a kind
// that is not installed, and has the client that writes objects of such a kind.
//
// sources is called with each informer before it runs, also with those that objects of other controllers name, and by
// several goroutines at once. It makes the informer a source of the controller by [Owns], [ClusterOwns], [Watches] or
// [DependsOn]. Nil, or a function that does none of it, stands for DependsOn. In each informer of the family that is
// complete the loop waits for what the controller writes, as in any other source, whichever key has written it.
//
// An informer is given up when no object of any controller names it. Its objects name no keys then. What keys have
// written to it is no longer waited for, as in a namespace that an informer no longer follows. Standbys follow what is
// named, too.
//
// So an object names what Reconcile still has to clean up. Where a spec may cease to name a kind, keep the kinds of
// what was made in the status: write a kind there before its first object is made, let names return those of spec and
// status, and take it out once its objects are gone, or when Get says that the kind is.
//
// Of names the rules of [informer.AddIndex] hold: it must be quick, and must say the same of the same object. A
// controller calls Needs once for a family, which several controllers of one Manager may share. Like For it returns no
// error: NewManager reports mistakes. Those of sources end the Manager, when an object first names an informer.
func Needs[R any, N comparable, T any](c *Controller, from *informer.SharedIndexInformer[R], to *Dynamic[N, T],
	names func(R) []N, sources func(*informer.SharedIndexInformer[T])) {
	switch {
	case from == nil:
		c.mistake("Needs: the informer is nil")
		return
	case to == nil:
		c.mistake("Needs: the Dynamic is nil")
		return
	case names == nil:
		c.mistake("Needs: the function is nil")
		return
	case c.manager != nil || to.manager != nil:
		c.mistake("Needs was called after NewManager")
		return
	case slices.Contains(to.users, c):
		c.mistake("Needs was called twice for %s", to.Name())
		return
	}
	index, err := informer.AddIndex(from, func(object R, add func(N)) { each(names(object), add) })
	if err != nil {
		c.mistake("Needs: %w", err)
		return
	}
	u := &family.User[N, T]{Ledger: c.ledger, Named: index.Has,
		Open: func(inf *informer.SharedIndexInformer[T], ca *debts.Cache) error {
			return openComer(c, inf, ca, sources)
		},
		Close: func(inf *informer.SharedIndexInformer[T], ca *debts.Cache) { c.comers.close(inf, ca) },
		Arrived: func(name N) {
			for _, key := range index.Keys(name) {
				c.enqueueFor(key, "Needs "+to.Name())
			}
		},
		Ready: func(ca *debts.Cache) {
			if err := c.manager.tracking.CheckComing(c.ledger, ca); err != nil {
				c.manager.failures.add(err)
			}
		},
		NamedBy: namedBy(from, names),
	}
	to.family.Use(u) // before the handler, which is told at once of what the informer holds
	_, err = from.AddHandler(func(e informer.Event[R]) {
		var before, now []N
		if e.Type != informer.Added {
			before = namesIn(names, e.Old)
		}
		if e.Type != informer.Deleted {
			now = namesIn(names, e.New)
		}
		u.Changed(e.Key, before, now)
	}, informer.HandlerOptions{Name: "Needs of controller " + c.name, Inline: true, CrashOnPanic: true})
	if err != nil {
		c.mistake("Needs: %w", err)
		return
	}
	to.users = append(to.users, c)
	c.needs = append(c.needs, need{from: from, family: to, await: u.Await, caches: u.Caches})
}

// need says which informers of a family the keys of a controller need.
type need struct {
	from   Informer
	family anyDynamic
	await  func(Key)                // opens a debt for each that may not be acted on
	caches func(Key) []*debts.Cache // of those that run
}
