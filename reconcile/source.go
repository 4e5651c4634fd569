package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
)

// Informer is what a Manager needs to know of an informer; *[informer.SharedIndexInformer] is one for every type of
// object.
type Informer interface {
	Name() string
	Run(ctx context.Context) error
	WaitForSync(ctx context.Context) error
	Health() informer.Health
}

// source is an informer that names keys for a controller to reconcile.
type source struct {
	name    string // as causes have it
	from    Informer
	cache   *debts.Cache
	subject bool // the keys are those of the informer's objects
	added   *informer.Registration
	invalid *invalidObjects
}

// invalidObject returns why the object of a key is invalid, or nil: the cache could not take its present state, or a
// condition of the source panicked on it.
func (s *source) invalidObject(key Key) error {
	if why := s.cache.Invalid(key); why != nil {
		return why
	}
	return s.invalid.of(key)
}

// For names, for each change of an object, the object's own key. With conditions it names the key for an update only if
// one of them holds: see [Condition].
//
// Reconcile is not called for a key whose object is invalid (see [informer.SharedIndexInformer.Invalid]): the key is
// named when the object becomes invalid, when it is valid again and when it is gone, and Options.Invalid says what is
// done meanwhile.
//
// Like [Owns], [Watches] and [DependsOn] it is called before [NewManager], and returns no error. NewManager reports a
// mistake, such as an informer that is nil. A source that comes later is a mistake, too: [Manager.Run] ends with it.
func For[T any](c *Controller, inf *informer.SharedIndexInformer[T], conditions ...Condition[T]) {
	addSource(c, "For", inf, &namer[T]{conditions: conditions, subject: true,
		nameInvalid: func(o *metav1.PartialObjectMetadata, named []Key) []Key {
			return append(named, informer.KeyOf(o))
		},
	})
}

// Owns names, for each change of an object, the key of its controller: the owner reference with controller: true, if
// that is of the given group and kind; the version does not matter. Where a change takes the object from one owner to
// another, both are named. The owner lives in the namespace of the object; for an owner that lives in none there is
// [ClusterOwns]. With conditions it names the keys for an update only if one of them holds: see [Condition].
//
// An object that becomes invalid (see [informer.SharedIndexInformer.Invalid]), or is valid again, names its controller,
// too.
func Owns[T informer.Object](c *Controller, inf *informer.SharedIndexInformer[T], owner schema.GroupVersionKind,
	conditions ...Condition[T]) {
	owns(c, "Owns", inf, owner, conditions, metav1.Object.GetNamespace)
}

// ClusterOwns is [Owns] for an owner that lives in no namespace, such as a Node, wherever its objects live.
func ClusterOwns[T informer.Object](c *Controller, inf *informer.SharedIndexInformer[T],
	owner schema.GroupVersionKind, conditions ...Condition[T]) {
	owns(c, "ClusterOwns", inf, owner, conditions, func(metav1.Object) string { return "" })
}

func owns[T informer.Object](c *Controller, verb string, inf *informer.SharedIndexInformer[T],
	owner schema.GroupVersionKind, conditions []Condition[T], namespace func(metav1.Object) string) {
	if owner.Kind == "" {
		c.mistake("%s: the owner has no kind", verb)
	}
	controller := func(o metav1.Object) []Key {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref == nil || ref.Kind != owner.Kind ||
			schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group != owner.Group {
			return nil
		}
		return []Key{{Namespace: namespace(o), Name: ref.Name}}
	}
	addSource(c, verb, inf, &namer[T]{conditions: conditions,
		keys: func(o T) []Key { return controller(o) },
		nameInvalid: func(o *metav1.PartialObjectMetadata, named []Key) []Key {
			return append(named, controller(o)...)
		},
	})
}

// Watches names other objects' keys for each change of an object: those that keys returns. keys is called
//
//	for a new object       with its state
//	for an update          with the old state, and then with the new one
//	for a deletion         with the last state that the cache had
//
// and cannot tell which of these it is. So it returns every key that an object in this state could matter to, such as
// the key in a label; whether anything is to be done Reconcile finds out. If keys has to look at other objects, it may
// read caches: that of inf shows the change already, and so does not have an object that was deleted.
//
// keys runs in the informer's goroutine: it must be quick and wait for nothing, and it must not change the object. With
// conditions it names the keys for an update only if one of them holds: see [Condition].
//
// An object on which keys panics is invalid for this source, since nobody knows which keys it names now. The log, Why
// and [Controller.Inspect] say so. Until keys returns, each change of the object names the keys that keys returned for
// its last state before that. It is called again when the object changes, and otherwise after 1 s, 2 s, 4 s ... 5 min,
// when the server sends something: a bookmark comes about once a minute. Once it returns, its keys are named. For an
// object that is gone it is called ten more times.
func Watches[T any](c *Controller, inf *informer.SharedIndexInformer[T], keys func(T) []Key,
	conditions ...Condition[T]) {
	if keys == nil {
		c.mistake("Watches: the function is nil")
		return
	}
	addSource(c, "Watches", inf, &namer[T]{conditions: conditions, keys: keys})
}

// DependsOn lets the controller depend on an informer that names no keys: Reconcile reads it, and what Reconcile
// writes to it is waited for. It is a source like the others, so a controller whose keys are named by
// [Controller.Enqueue] alone needs no other.
func DependsOn[T any](c *Controller, inf *informer.SharedIndexInformer[T]) {
	addSource(c, "DependsOn", inf, &namer[T]{})
}

// WatchesChan names, for each value from a channel, the keys that keys returns for it: for triggers that are not
// objects, such as a webhook or a timer. name stands for the channel in logs and causes, and must not be empty. The
// Manager reads the channel while it runs, whether it leads or not, until the channel is closed. After that a sender
// must not wait for it. A value on which keys panics is logged and dropped: it is no object that could be looked at
// again.
//
//	names := func(name string) []reconcile.Key { return []reconcile.Key{{Name: name}} }
//	reconcile.WatchesChan(c, "webhook", events, names)
func WatchesChan[E any](c *Controller, name string, events <-chan E, keys func(E) []Key) {
	switch {
	case name == "":
		c.mistake("WatchesChan: the name is empty")
		return
	case events == nil:
		c.mistake("WatchesChan %s: the channel is nil", name)
		return
	case keys == nil:
		c.mistake("WatchesChan %s: the function is nil", name)
		return
	case c.manager != nil:
		c.mistake("WatchesChan %s was called after NewManager", name)
		return
	}
	cause := "WatchesChan " + name
	c.channels = append(c.channels, channel{name, func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case e, open := <-events:
				if !open {
					return
				}
				var named []Key
				if err := lifecycle.Try(func() { named = keys(e) }); err != nil {
					klog.FromContext(ctx).Error(err, "Naming the keys of a value panicked; they are not reconciled "+
						"for it", "controller", c.name, "channel", name, "stack", lifecycle.StackOf(err))
				}
				for _, key := range named {
					c.enqueueFor(key, cause)
				}
			}
		}
	}})
}

// channel is a source that is no informer.
type channel struct {
	name string
	read func(context.Context) // until ctx ends or the channel is closed
}

// addSource adds a handler that is inline: it sees every change of the store and only fills a set of keys, so nothing
// is ever dropped and nothing grows.
func addSource[T any](c *Controller, verb string, inf *informer.SharedIndexInformer[T], n *namer[T]) {
	if inf == nil {
		c.mistake("%s: the informer is nil", verb)
		return
	}
	comer, comes := c.comers.opening(inf)
	switch {
	case c.manager != nil && !comes:
		c.mistake("%s was called after NewManager", verb)
		return
	case n.subject && comes:
		c.mistake("%s: informer %s comes and goes, and the objects that the keys are of do not", verb, inf.Name())
		return
	case slices.ContainsFunc(n.conditions, func(holds Condition[T]) bool { return holds == nil }):
		c.mistake("%s: a condition is nil", verb)
		return
	}
	ca := c.ledger.CacheOf(inf)
	ca.Subject = ca.Subject || n.subject
	ca.Object = func(key Key) (any, bool) { return inf.Get(key) }
	n.Controller, n.cache, n.cause, n.invalid = c, ca, verb+" "+inf.Name(), &invalidObjects{}
	var resync time.Duration
	if n.subject {
		resync = c.resyncEvery
	}
	added, err := inf.AddHandler(n.handle, informer.HandlerOptions{
		Name: verb + " of controller " + c.name, Inline: true, Resync: resync, CrashOnPanic: true,
		Reached: func(namespace, _ string) {
			n.askAgain()
			c.ledger.Reached(ca, namespace)
		},
		Invalid: n.handleInvalid,
	})
	switch {
	case err != nil && comes:
		comer.failed = cmp.Or(comer.failed, fmt.Errorf("%s: %w", verb, err))
		return
	case err != nil:
		c.mistake("%s: %w", verb, err)
		return
	}
	s := source{n.cause, inf, ca, n.subject, added, n.invalid}
	if comes {
		comer.sources = append(comer.sources, s)
		return
	}
	c.sources = append(c.sources, s)
}

// namer is the handler of a source. It allocates nothing for an event (BenchmarkNaming): a program starts with one
// event for each object.
type namer[T any] struct {
	*Controller
	cache      *debts.Cache
	cause      string
	subject    bool            // each object names its own key
	keys       func(T) []Key   // returns the keys of a state. Nil: there are none but that
	referrers  func(Key) []Key // returns the keys that name an object. Nil: there are none
	conditions []Condition[T]  // of an update, one of which has to hold
	// nameInvalid appends the keys of an object whose state, with this metadata, cannot be taken into the store. Nil:
	// there are none.
	nameInvalid func(*metav1.PartialObjectMetadata, []Key) []Key
	invalid     *invalidObjects

	// The following belong to the informer's goroutine: an inline handler is called by one at a time.
	named     []Key // space for the keys of one event
	panicking map[Key]*panicking[T]
	askAt     time.Time // the first of their times
	panics    lifecycle.LogLimit
}

// handle adds the keys first and tells the ledger second: so a key that was parked is queued once.
func (n *namer[T]) handle(e informer.Event[T]) {
	all, earlier := e, n.panicking[e.Key]
	if earlier != nil {
		all = earlier.with(e)
	}
	worth, err := n.ask(all, earlier != nil)
	switch {
	case err != nil:
		n.panicked(all, 0, err)
	case earlier != nil:
		n.forget(e.Key, returned)
	}
	if worth {
		v := keys.Sighting{WriteID: keys.WriteID{UID: e.UID, ResourceVersion: e.ResourceVersion},
			Created: e.Type == informer.Added, Updated: e.Type == informer.Updated}
		switch {
		case e.Type == informer.Deleted:
			v.ResourceVersion = "" // whoever deletes an object does not learn the version of its end
		case e.Resync:
			v = keys.Sighting{} // no write has named the key
		}
		n.addNamed(e, v)
	}
	version := e.ResourceVersion
	if e.FinalStateUnknown {
		version = ""
	}
	n.ledger.Saw(n.cache, e.Key, e.UID, version, e.Type == informer.Deleted)
}

// addNamed adds the keys that an event has named.
func (n *namer[T]) addNamed(e informer.Event[T], v keys.Sighting) {
	for _, key := range n.named {
		if n.Controller.keys.Named(key, n.cause, e.Key, e.ResourceVersion, v) {
			keys.Compare(n.Controller.keys, key, n.cause, v, e)
		}
		n.add(key, e.Initial || e.Resync)
	}
	if cap(n.named) > 1024 {
		n.named = nil // this was an uncommon event
	}
}

// ask reports whether an event is worth a look, and puts its keys into named if it is: those of the object's old state
// and of its new one. Nearly always they are the same, in the same order. With always it is worth a look whatever the
// conditions say. The error is the panic of a function of the user's; then named has the keys of the other state.
func (n *namer[T]) ask(e informer.Event[T], always bool) (worth bool, err error) {
	n.named = n.named[:0]
	if e.Type == informer.Updated && len(n.conditions) > 0 && !e.Resync {
		worth, err = n.wants(e)
		if err == nil && !worth && !always {
			return false, nil
		}
	}
	if n.subject {
		n.named = append(n.named, e.Key)
	}
	if n.referrers != nil {
		n.named = append(n.named, n.referrers(e.Key)...)
	}
	if n.keys == nil {
		return true, err
	}
	var old, now []Key
	var failed error
	if e.Type != informer.Added {
		old, failed = n.keysOf(e.Old)
		err = cmp.Or(err, failed)
		n.named = append(n.named, old...)
	}
	if e.Type != informer.Deleted {
		now, failed = n.keysOf(e.New)
		err = cmp.Or(err, failed)
		for i, k := range now {
			if i >= len(old) || k != old[i] {
				n.named = append(n.named, k)
			}
		}
	}
	return true, err
}

func (n *namer[T]) keysOf(state T) (keys []Key, err error) {
	err = lifecycle.Try(func() { keys = n.keys(state) })
	return keys, err
}

// handleInvalid names the keys of an object that cannot be taken, or can be again: those of both of its states, if it
// has two. A key that is parked because the cache could not take what it wrote may go on.
func (n *namer[T]) handleInvalid(key Key, before, now *informer.InvalidError) {
	defer n.ledger.Saw(n.cache, key, "", "", false)
	var named []Key
	for _, state := range []*informer.InvalidError{before, now} {
		if state == nil || n.nameInvalid == nil {
			continue
		}
		o, from := state.Object, len(named)
		named = n.nameInvalid(o, named)
		for i := from; i < len(named); i++ {
			if !slices.Contains(named[:i], named[i]) {
				n.Controller.keys.Named(named[i], n.cause, informer.KeyOf(o), o.ResourceVersion,
					keys.Sighting{WriteID: keys.WriteID{UID: o.UID, ResourceVersion: o.ResourceVersion}})
				n.add(named[i], false)
			}
		}
	}
}
