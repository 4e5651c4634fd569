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
	"github.com/thermostat-go/thermostat/reconcile/internal/naming"
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
	others  bool // its objects name keys that may be those of other objects
	reads   bool // what an object names may depend on more than the object
	added   *informer.Registration
	invalid *naming.Invalid
	each    func(name func(Key)) // calls name with each key that the objects of the cache name now
}

// invalidObject returns why the object of a key is invalid, or nil: the cache could not take its present state, or a
// condition of the source panicked on it.
func (s *source) invalidObject(key Key) error {
	if why := s.cache.Invalid(key); why != nil {
		return why
	}
	return s.invalid.Of(key)
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
	addSource(c, "For", inf, conditions, &naming.Namer[T]{Subject: true,
		NameInvalid: func(o *metav1.PartialObjectMetadata, named []Key) []Key {
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
	addSource(c, verb, inf, conditions, &naming.Namer[T]{
		Keys: func(o T) []Key { return controller(o) },
		NameInvalid: func(o *metav1.PartialObjectMetadata, named []Key) []Key {
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
// shards it is also called for all objects when a slice comes, from another goroutine, at the same time. With
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
	addSource(c, "Watches", inf, conditions, &naming.Namer[T]{Keys: keys, Reads: true})
}

// DependsOn lets the controller depend on an informer that names no keys: Reconcile reads it, and what Reconcile
// writes to it is waited for. It is a source like the others, so a controller whose keys are named by
// [Controller.Enqueue] alone needs no other.
func DependsOn[T any](c *Controller, inf *informer.SharedIndexInformer[T]) {
	addSource(c, "DependsOn", inf, nil, &naming.Namer[T]{})
}

// WatchesChan names, for each value from a channel, the keys that keys returns for it: for triggers that are not
// objects, such as a webhook or a timer. name stands for the channel in logs and causes, and must not be empty. The
// Manager reads the channel while it runs, whether it leads or not, until the channel is closed. After that a sender
// must not wait for it. With the Shards of package sharding each value has to come to all processes, as to Enqueue:
// only the one that leads a key runs it. A process that is told to end reads no more, also while it still runs its
// keys: a value for one of these waits until the next owner has it. A value on which keys panics is logged and dropped:
// it is no object that could be looked at again.
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
func addSource[T any](c *Controller, verb string, inf *informer.SharedIndexInformer[T], conditions []Condition[T],
	n *naming.Namer[T]) {
	if inf == nil {
		c.mistake("%s: the informer is nil", verb)
		return
	}
	comer, comes := c.comers.opening(inf)
	switch {
	case c.manager != nil && !comes:
		c.mistake("%s was called after NewManager", verb)
		return
	case n.Subject && comes:
		c.mistake("%s: informer %s comes and goes, and the objects that the keys are of do not", verb, inf.Name())
		return
	case slices.ContainsFunc(conditions, func(holds Condition[T]) bool { return holds == nil }):
		c.mistake("%s: a condition is nil", verb)
		return
	}
	ca := c.ledger.CacheOf(inf)
	ca.Subject = ca.Subject || n.Subject
	ca.Object = func(key Key) (any, bool) { return inf.Get(key) }
	n.Wants, n.Controller, n.Cause = anyOf(conditions), c.name, verb+" "+inf.Name()
	n.Table, n.Ledger, n.Cache, n.Add, n.Invalid = c.keys, c.ledger, ca, c.add, &naming.Invalid{}
	var resync time.Duration
	if n.Subject {
		resync = c.resyncEvery
	}
	added, err := inf.AddHandler(n.Handle, informer.HandlerOptions{
		Name: verb + " of controller " + c.name, Inline: true, Resync: resync, CrashOnPanic: true,
		Reached: func(namespace, _ string) {
			n.AskAgain()
			c.ledger.Reached(ca, namespace)
		},
		Invalid: n.HandleInvalid,
	})
	switch {
	case err != nil && comes:
		comer.failed = cmp.Or(comer.failed, fmt.Errorf("%s: %w", verb, err))
		return
	case err != nil:
		c.mistake("%s: %w", verb, err)
		return
	}
	s := source{name: n.Cause, from: inf, cache: ca, subject: n.Subject, others: n.Keys != nil, reads: n.Reads,
		added: added, invalid: n.Invalid, each: func(name func(Key)) { n.Each(inf, name) }}
	if comes {
		comer.sources = append(comer.sources, s)
		return
	}
	c.sources = append(c.sources, s)
}
