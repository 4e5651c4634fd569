package ctrlruntime

import (
	"context"
	"fmt"
	"slices"
	"sync"

	// Of these two only the types that controller-runtime's interfaces have.
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/thermostat-go/thermostat/informer"
)

// References lets the objects of R's kind that are in the manager's cache name objects of a [Named]. names returns the
// keys that an object names; one without a name names nothing. It must be quick, and must not change the object. The
// source that References returns enqueues, when a named object changes, the objects that name it, and an object when it
// names others than before: give it to one controller, by WatchesRawSource.
//
// Call References before the manager starts. It waits for nothing, and returns the errors of the cache's GetInformer;
// ctx is for that call only.
func References[R client.Object, T informer.Object](ctx context.Context, m manager.Manager, to *Named[T], example R,
	names func(R) []client.ObjectKey) (source.Source, error) {
	from, err := m.GetCache().GetInformer(ctx, example, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("References of %T: %w", example, err)
	}
	refs := &references{of: make(map[client.ObjectKey][]informer.Key),
		by: make(map[informer.Key]map[client.ObjectKey]struct{})}
	to.cache.NamedBy(refs.names)
	set := func(object any, exists bool) {
		if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		o, ok := object.(R)
		if !ok {
			return
		}
		var keys []informer.Key
		if exists {
			for _, key := range names(o) {
				if key.Name != "" {
					keys = append(keys, informer.Key(key))
				}
			}
		}
		referrer := client.ObjectKeyFromObject(o)
		if changed := refs.set(referrer, keys); len(changed) > 0 {
			to.cache.Recheck(changed...)
			refs.enqueue(referrer)
		}
	}
	_, err = from.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set(o, true) },
		UpdateFunc: func(_, o any) { set(o, true) },
		DeleteFunc: func(o any) { set(o, false) },
	})
	if err != nil {
		return nil, fmt.Errorf("References of %T: %w", example, err)
	}
	return source.Func(func(ctx context.Context, queue requests) error {
		registration, err := to.cache.AddHandler(func(e informer.Event[T]) {
			for _, key := range refs.referrers(e.Key) {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		}, informer.HandlerOptions{Name: fmt.Sprintf("references of %T", example)})
		if err != nil {
			return err
		}
		refs.feed(queue)
		context.AfterFunc(ctx, func() {
			refs.feedNoMore(queue)
			_ = registration.Remove(ctx) // nothing waits for the last call
		})
		return nil
	}), nil
}

// references has which keys each object names, and by which objects each key is named.
type references struct {
	mu sync.Mutex
	// Guarded by mu.
	of map[client.ObjectKey][]informer.Key
	by map[informer.Key]map[client.ObjectKey]struct{}
	// Guarded by mu: those of the sources that have been started.
	queues []requests
}

// requests is the queue of a controller.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// set says what an object names from now on. It returns the keys that were named or are.
func (r *references) set(referrer client.ObjectKey, keys []informer.Key) (changed []informer.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.of[referrer]
	if slices.Equal(before, keys) {
		return nil
	}
	for _, key := range before {
		if delete(r.by[key], referrer); len(r.by[key]) == 0 {
			delete(r.by, key)
		}
	}
	for _, key := range keys {
		if r.by[key] == nil {
			r.by[key] = make(map[client.ObjectKey]struct{})
		}
		r.by[key][referrer] = struct{}{}
	}
	r.of[referrer] = keys
	if len(keys) == 0 {
		delete(r.of, referrer)
	}
	return append(slices.Clone(before), keys...)
}

func (r *references) names(key informer.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.by[key]) > 0
}

func (r *references) referrers(key informer.Key) (keys []client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for referrer := range r.by[key] {
		keys = append(keys, referrer)
	}
	return keys
}

// enqueue lets the controllers look at an object again that has begun to name another one. They may have done so before
// it was known what the object names: what changed between the two would have been told to nobody.
func (r *references) enqueue(referrer client.ObjectKey) {
	r.mu.Lock()
	queues := slices.Clone(r.queues)
	r.mu.Unlock()
	for _, queue := range queues {
		queue.Add(reconcile.Request{NamespacedName: referrer})
	}
}

func (r *references) feed(queue requests) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues = append(r.queues, queue)
}

func (r *references) feedNoMore(queue requests) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues = slices.DeleteFunc(r.queues, func(other requests) bool { return other == queue })
}
