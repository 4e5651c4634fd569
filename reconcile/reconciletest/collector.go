package reconciletest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// collector does what the garbage collector and the namespace controller do on a real cluster: it deletes what has no
// owner any more, and finishes deletions that wait for dependents or for the content of a namespace. As there, that
// happens some time after the write that is the reason.
type collector struct {
	server *Server
	after  time.Duration

	mu sync.Mutex
	// Guarded by mu: pending begins a pass after a write, again one after a pass that was refused something. Nil: no
	// such pass is going to begin.
	pending, again *time.Timer
	stopped        bool

	// passing has a value during a pass, so that there is one at a time. A pass may wait for webhooks; a mutex would
	// then stop the time of a bubble, since who waits for it is not taken to be idle.
	passing chan struct{}
	refused bool          // guarded by passing: this pass was refused something
	pause   time.Duration // guarded by passing: from the last pass that was refused something to the next
}

// The service accounts of the controllers of a real cluster, by which webhooks know who writes.
const (
	garbageCollector = "generic-garbage-collector"
	namespaceKeeper  = "namespace-controller"
)

// longestPause is the longest that the collector waits before it tries again what was refused. It is less than
// [Check] waits until it takes a program to be done.
const longestPause = 10 * time.Second

func newCollector(s *Server, after time.Duration) *collector {
	return &collector{server: s, after: after, passing: make(chan struct{}, 1)}
}

// stop lets no pass begin any more. It may be called from outside of the bubble of the server, so it touches neither
// timers nor channels.
func (c *collector) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

func (c *collector) hasStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// wrote is told of each write, and of the last state of what was deleted.
func (c *collector) wrote(object) { c.schedule(&c.pending, c.after) }

// schedule lets a pass begin after some time, unless the timer is set already.
func (c *collector) schedule(timer **time.Timer, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *timer != nil || c.stopped {
		return
	}
	*timer = time.AfterFunc(after, func() {
		c.mu.Lock()
		*timer = nil
		c.mu.Unlock()
		c.passing <- struct{}{}
		defer func() { <-c.passing }()
		if !c.hasStopped() {
			c.pass()
		}
	})
}

// item is an object with its resource.
type item struct {
	object
	resource *Resource
}

func (i item) has(finalizer string) bool { return slices.Contains(i.GetFinalizers(), finalizer) }
func (i item) deleting() bool            { return i.GetDeletionTimestamp() != nil }

// pass looks at every object once. What it writes is the reason for another pass. So is what was refused, such as by a
// webhook that is down, some time later: each time after twice as long as before.
func (c *collector) pass() {
	if !c.server.fork.isLooked() {
		c.schedule(&c.again, c.after)
		return
	}
	c.refused = false
	c.collectAll()
	if !c.refused {
		c.pause = 0
		return
	}
	c.pause = min(max(2*c.pause, c.after), longestPause)
	c.schedule(&c.again, c.pause)
}

// heed notes that something was refused. It is none of that if somebody was faster, which is the reason for another
// pass by itself, or if what is asked for is not modelled, and never will be.
func (c *collector) heed(err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !isNotModelled(err) {
		c.refused = true
	}
}

func (c *collector) collectAll() {
	items, dependents := c.survey()
	for _, i := range items {
		if c.hasStopped() {
			return
		}
		switch namespace, ok := i.object.(*corev1.Namespace); {
		case c.server.fork.leaves(i):
		case ok && i.deleting():
			c.finishNamespace(namespace, items)
		case i.resource.GroupVersionResource == definitions && c.keepDefinition(i, items):
		case i.deleting() && i.has(metav1.FinalizerOrphanDependents):
			c.orphan(i, dependents[i.GetUID()])
		case i.deleting() && i.has(metav1.FinalizerDeleteDependents):
			c.finishForeground(i, dependents[i.GetUID()])
		case i.deleting() && i.protected():
			c.unprotect(i, items)
		case !i.deleting() && len(i.GetOwnerReferences()) > 0:
			c.collect(i, len(dependents[i.GetUID()]) > 0)
		}
	}
}

// survey returns all objects, in a fixed order, and those which name each UID as their owner's.
func (c *collector) survey() (items []item, dependents map[types.UID][]item) {
	dependents = make(map[types.UID][]item)
	for _, r := range kindsOf(c.server) {
		for _, o := range c.server.store.list(r.GroupResource(), c.server.Version()) {
			i := item{o, r}
			items = append(items, i)
			for _, ref := range o.GetOwnerReferences() {
				dependents[ref.UID] = append(dependents[ref.UID], i)
			}
		}
	}
	// A definition goes after what its objects have owned: the owners of that would be of an unknown kind.
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Compare(last(a), last(b))
	})
	return items, dependents
}

// last orders definitions behind all others.
func last(i item) int {
	if i.resource.GroupVersionResource == definitions {
		return 1
	}
	return 0
}

// collect deletes an object that has lost its last owner. Owners that are gone, or wait for their dependents to go, are
// taken out of the references of an object that has others.
func (c *collector) collect(i item, hasDependents bool) {
	var solid, useless []types.UID
	waiting := false
	for _, ref := range i.GetOwnerReferences() {
		owner, known := c.owner(i, ref)
		switch {
		case !known:
			return // a kind that nobody serves: its objects may exist or not
		case owner.object == nil:
			useless = append(useless, ref.UID)
		case owner.deleting() && owner.has(metav1.FinalizerDeleteDependents):
			waiting = true
			useless = append(useless, ref.UID)
		default:
			solid = append(solid, ref.UID)
		}
	}
	switch {
	case len(solid) > 0 && len(useless) > 0:
		c.disown(i, useless)
	case len(solid) > 0:
	case waiting && hasDependents:
		c.delete(i, metav1.DeletePropagationForeground)
	case i.has(metav1.FinalizerOrphanDependents):
		c.delete(i, metav1.DeletePropagationOrphan)
	case i.has(metav1.FinalizerDeleteDependents):
		c.delete(i, metav1.DeletePropagationForeground)
	default:
		c.delete(i, metav1.DeletePropagationBackground)
	}
}

// owner finds the object that a reference is to, if there is one. It is looked for in the namespace of the dependent,
// or in none.
func (c *collector) owner(dependent item, ref metav1.OwnerReference) (owner item, known bool) {
	for _, r := range c.server.resources.all() {
		if r.Kind != ref.Kind || !c.server.fork.isVersion(r, ref.APIVersion) {
			continue
		}
		key := types.NamespacedName{Namespace: dependent.GetNamespace(), Name: ref.Name}
		switch {
		case r.ClusterScoped:
			key.Namespace = ""
		case key.Namespace == "":
			return item{}, false // something in a namespace cannot own something in none
		}
		if o := c.server.lookup(r, key); o != nil && o.GetUID() == ref.UID {
			return item{o, r}, true
		}
		return item{}, c.server.fork.isGone(ref.UID)
	}
	return item{}, false
}

// orphan takes an owner out of the references of its dependents, and lets it go then.
func (c *collector) orphan(i item, dependents []item) {
	for _, d := range dependents {
		if !c.disown(d, []types.UID{i.GetUID()}) {
			return
		}
	}
	c.release(i, metav1.FinalizerOrphanDependents, garbageCollector)
}

// finishForeground lets an owner go once none of its dependents is left that it has to wait for.
func (c *collector) finishForeground(i item, dependents []item) {
	for _, d := range dependents {
		for _, ref := range d.GetOwnerReferences() {
			if ref.UID == i.GetUID() && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
				return
			}
		}
	}
	c.release(i, metav1.FinalizerDeleteDependents, garbageCollector)
}

// finishNamespace deletes what a namespace holds, and then lets the namespace go, if nobody else has a finalizer on it.
// A real controller deletes whole collections, so that webhooks are told no name.
func (c *collector) finishNamespace(namespace *corev1.Namespace, items []item) {
	empty := true
	for _, i := range items {
		if i.GetNamespace() == namespace.Name {
			empty = false
			if !i.deleting() {
				call := c.as(i, namespaceKeeper)
				call.Verb = "deletecollection"
				_, _, err := c.server.delete(call, &metav1.DeleteOptions{PropagationPolicy: new(background)})
				c.heed(err)
			}
		}
	}
	r := c.server.resources.of(namespaces)
	finalized := namespace.DeepCopy()
	finalized.Spec.Finalizers = slices.DeleteFunc(finalized.Spec.Finalizers, func(f corev1.FinalizerName) bool {
		return f == corev1.FinalizerKubernetes
	})
	switch {
	case !empty:
	case len(finalized.Spec.Finalizers)+len(namespace.Finalizers) == 0:
		_, _ = c.as(item{namespace, r}, namespaceKeeper).remove(c.server, namespace)
	case len(finalized.Spec.Finalizers) < len(namespace.Spec.Finalizers):
		if o, err := c.server.store.write(r.GroupResource(), keyOf(namespace), namespace, finalized); err == nil {
			c.wrote(o)
		}
	}
}

// as makes a call about an object, by a controller of the controller manager.
func (c *collector) as(i item, controller string) *call {
	return &call{
		Request:  Request{Resource: i.resource.GroupVersionResource, Namespace: i.GetNamespace(), Name: i.GetName()},
		resource: i.resource,
		ctx:      context.Background(), userAgent: "kube-controller-manager", controller: controller,
		deadline: deadline(time.Now().Add(writeTime)),
	}
}

func (c *collector) delete(i item, policy metav1.DeletionPropagation) {
	uid, version := i.GetUID(), i.GetResourceVersion()
	_, _, err := c.server.delete(c.as(i, garbageCollector), &metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	c.heed(err)
}

// disown takes owners out of the references of an object, and reports whether they are out.
func (c *collector) disown(i item, owners []types.UID) bool {
	return c.change(i, garbageCollector, func(o object) {
		o.SetOwnerReferences(slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()),
			func(ref metav1.OwnerReference) bool {
				return slices.Contains(owners, ref.UID)
			}))
	})
}

// release takes a finalizer off an object.
func (c *collector) release(i item, finalizer, controller string) {
	c.change(i, controller, func(o object) {
		o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()),
			func(f string) bool { return f == finalizer }))
	})
}

// change changes an object that is still the one that was looked at. It reports whether the change holds.
func (c *collector) change(i item, controller string, fn func(object)) bool {
	call := c.as(i, controller)
	_, _, err := c.server.modify(call, false, func(live object) (object, error) {
		if live.GetUID() != i.GetUID() {
			return nil, call.notFound()
		}
		o := copyOf(live)
		fn(o)
		return i.resource.fieldManagers[""].UpdateNoErrors(copyOf(live), o, call.manager()).(object), nil
	})
	c.heed(err)
	return err == nil || apierrors.IsNotFound(err)
}
