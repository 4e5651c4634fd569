package ctrlruntime

import (
	"context"
	"fmt"
	"slices"
	"sync"

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
// source that References returns enqueues, when a named object changes, the objects that name it: give it to one
// controller, by WatchesRawSource.
//
// Call References before the manager starts. It returns the errors of the cache's GetInformer.
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
					keys = append(keys, informer.Key{Namespace: key.Namespace, Name: key.Name})
				}
			}
		}
		to.cache.Recheck(refs.set(client.ObjectKeyFromObject(o), keys)...)
	}
	_, err = from.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set(o, true) },
		UpdateFunc: func(_, o any) { set(o, true) },
		DeleteFunc: func(o any) { set(o, false) },
	})
	if err != nil {
		return nil, fmt.Errorf("References of %T: %w", example, err)
	}
	return source.Func(func(ctx context.Context,
		queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		registration, err := to.cache.AddHandler(func(e informer.Event[T]) {
			for _, key := range refs.referrers(e.Key) {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		}, informer.HandlerOptions{Name: fmt.Sprintf("references of %T", example)})
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { _ = registration.Remove(ctx) }) // nothing waits for the last call
		return nil
	}), nil
}

// references has which keys each object names, and by which objects each key is named.
type references struct {
	mu sync.Mutex
	// Guarded by mu.
	of map[client.ObjectKey][]informer.Key
	by map[informer.Key]map[client.ObjectKey]struct{}
}

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
	if r.of[referrer] = keys; len(keys) == 0 {
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
