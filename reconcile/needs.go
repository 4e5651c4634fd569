package reconcile

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/status"
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
	case c.manager != nil || to.manager != nil:
		c.mistake("Needs was called after NewManager")
		return
	case slices.ContainsFunc(to.users, func(u *user[N, T]) bool { return u.Controller == c }):
		c.mistake("Needs was called twice for %s", to.name)
		return
	}
	index, err := informer.AddIndex(from, names)
	if err != nil {
		c.mistake("Needs: %w", err)
		return
	}
	namesIn := func(object R) (list []N) {
		_ = lifecycle.Try(func() { list = slices.Clone(names(object)) }) // the informer holds none that names panics on
		return list
	}
	u := &user[N, T]{Controller: c, to: to, sources: sources,
		named: index.Has, naming: index.Keys,
		namedBy: func(key Key) []N {
			if object, exists := from.Get(key); exists {
				return namesIn(object)
			}
			return nil
		}}
	_, err = from.AddHandler(func(e informer.Event[R]) {
		var before, now []N
		if e.Type != informer.Added {
			before = namesIn(e.Old)
		}
		if e.Type != informer.Deleted {
			now = namesIn(e.New)
		}
		u.changed(e.Key, before, now)
	}, informer.HandlerOptions{Name: "Needs of controller " + c.name, Inline: true, CrashOnPanic: true})
	if err != nil {
		c.mistake("Needs: %w", err)
		return
	}
	to.users = append(to.users, u)
	c.needs = append(c.needs, need{from: from, family: to, await: u.await, comers: u.comers})
}

// need says which informers of a family the keys of a controller need.
type need struct {
	from   Informer
	family anyDynamic
	await  func(Key)          // opens a debt for each that may not be acted on
	comers func(Key) []*comer // those that run
}

// anyDynamic is a [Dynamic], whatever its types.
type anyDynamic interface {
	Informer
	parts(withText bool) []status.Namespace
	belongTo(*Manager) *Manager
	controllers() []*Controller
}

// user is a controller that uses a family.
type user[N comparable, T any] struct {
	*Controller
	to      *Dynamic[N, T]
	named   func(N) bool  // whether an object names the informer
	naming  func(N) []Key // the keys whose objects do
	namedBy func(Key) []N // what the object of a key names; calls user code
	sources func(*informer.SharedIndexInformer[T])
}

// changed is told what the object of a key named before, and what it names now. A key that waits for what its object no
// longer names goes on.
func (u *user[N, T]) changed(key Key, before, now []N) {
	for _, name := range now {
		if !slices.Contains(before, name) && u.to.running(name) == nil {
			u.to.look(name)
		}
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			u.to.look(name)
			u.needsNoLonger(key, name)
		}
	}
}

// arrived queues the keys whose objects name an informer, which they have run without.
func (u *user[N, T]) arrived(name N) {
	for _, key := range u.naming(name) {
		u.enqueueFor(key, "Needs "+u.to.name)
	}
}

func (u *user[N, T]) needsNoLonger(key Key, name N) {
	if !u.ledger.Owes() {
		return
	}
	if m := u.to.running(name); m != nil {
		u.ledger.AwaitNoLonger(key, m.comers[u.Controller].Cache, Key{})
	}
}

// await lets a key wait for each informer that its object names and that may not be acted on. It does not wait for one
// that cannot be made, or that the server refuses: Get says why.
func (u *user[N, T]) await(key Key) {
	for _, name := range u.namedBy(key) {
		for {
			m, err := u.to.member(name)
			if err != nil {
				break
			}
			switch ca := m.comers[u.Controller].Cache; {
			case ca.Ready(metav1.NamespaceAll):
				u.manager.checkTracked(u.name, ca)
			case !ca.MayPass():
				u.ledger.AwaitReady(key, ca, Key{})
			}
			if !slices.Contains(u.namedBy(key), name) { // or nothing would tell of a change that came before the debt
				u.needsNoLonger(key, name)
				break
			}
			if u.to.running(name) == m { // else it was given up, and came again
				break
			}
		}
	}
}

// comers returns the informers that the object of a key names, of those that run.
func (u *user[N, T]) comers(key Key) (list []*comer) {
	for _, name := range u.namedBy(key) {
		if m := u.to.running(name); m != nil {
			list = append(list, m.comers[u.Controller])
		}
	}
	return list
}

// addSources makes an informer a source of the controller.
func (u *user[N, T]) addSources(inf *informer.SharedIndexInformer[T], in *comer) error {
	defer in.opened.Store(true)
	if u.sources != nil {
		if err := lifecycle.Try(func() { u.sources(inf) }); err != nil {
			return fmt.Errorf("the function given to Needs of controller %s: %w", u.name, err)
		}
	}
	if len(in.sources) == 0 && in.failed == nil {
		DependsOn(u.Controller, inf)
	}
	return in.failed
}
