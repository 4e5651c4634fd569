package ctrlruntime

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/thermostat-go/thermostat/informer"
)

// patience is how long Get waits for the server. A key whose Get has failed is tried again by its controller.
const patience = 10 * time.Second

// Named is a cache of the objects that [References] name. Make one with [New]. It is a client.Reader for these objects.
type Named[T informer.Object] struct {
	cache *informer.Referenced[T]
	gvr   schema.GroupVersionResource

	mu sync.Mutex
	// Guarded by mu: what calls of Get wait for. Each channel is closed when something is known of its key.
	waiting map[string]chan struct{}
}

var _ client.Reader = &Named[informer.Object]{}

// New makes a cache of the objects of a resource that are named, and adds it to the manager, which starts it before any
// controller, whether or not the manager leads, and stops it after them. The cache logs to the manager's logger. New
// returns the errors of [informer.NewResource] and [informer.NewReferenced], and of the manager's Add.
func New[T informer.Object](m manager.Manager, gvr schema.GroupVersionResource, opts informer.Options[T]) (*Named[T],
	error) {
	resource, err := informer.NewResource[T](m.GetConfig(), gvr, informer.ResourceOptions{})
	if err != nil {
		return nil, err
	}
	n := &Named[T]{gvr: gvr, waiting: make(map[string]chan struct{})}
	if n.cache, err = informer.NewReferenced(resource.In, opts); err != nil {
		return nil, err
	}
	_, err = n.cache.AddHandler(func(informer.Event[T]) {}, informer.HandlerOptions{Name: "Get", Inline: true,
		Reached: n.known})
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context) error {
		return n.cache.Run(klog.NewContext(ctx, m.GetLogger().WithName("cache")))
	}
	return n, m.Add(runnable{run, m.GetCache()})
}

// runnable is a function that the manager runs as long as its own cache. It knows such a runnable by GetCache.
type runnable struct {
	run  func(context.Context) error
	with cache.Cache
}

func (r runnable) Start(ctx context.Context) error { return r.run(ctx) }
func (r runnable) GetCache() cache.Cache           { return r.with }

// Cache returns the cache itself, for its Health, and for handlers.
func (n *Named[T]) Cache() *informer.Referenced[T] { return n.cache }

// Get copies the object of a key into obj, which is a T. If the server has no such object, the error is NotFound. A key
// that has just been named is not known yet: Get waits until it is, until ctx ends, at most 10 seconds. Then, or if the
// server refuses, the error wraps [informer.ErrNotKnown] and the reason; it wraps [informer.ErrNotNamed] if no object
// of the manager's cache names the key. Return such an error: the controller tries again.
func (n *Named[T]) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	into, ok := obj.(T)
	if !ok {
		return fmt.Errorf("the cache of %s holds objects of type %s, not %T", n.gvr.Resource, reflect.TypeFor[T](), obj)
	}
	if key.Name == "" {
		return fmt.Errorf("get from the cache of %s: the name is empty", n.gvr.Resource)
	}
	found, exists, err := n.await(ctx, informer.Key(key))
	switch {
	case err != nil:
		return err
	case !exists:
		return apierrors.NewNotFound(n.gvr.GroupResource(), key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List returns an error: the cache does not hold all objects.
func (n *Named[T]) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return fmt.Errorf("the cache of %s has only those objects that are named, so it cannot list: use the client of "+
		"the manager", n.gvr.Resource)
}

// await returns what the cache has of a key, once the server has answered.
func (n *Named[T]) await(ctx context.Context, key informer.Key) (found T, exists bool, err error) {
	if found, exists, err = n.cache.Get(key); err == nil {
		return found, exists, nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	defer n.known(key.String(), "") // nothing is kept of a key that is never known; others that wait look again
	for {
		known := n.wait(key.String()) // before the cache is asked, or the answer could come in between
		found, exists, err = n.cache.Get(key)
		if err == nil || !n.mayCome(key, err) {
			return found, exists, err
		}
		select {
		case <-known:
		case <-timer.C:
			return found, false, err
		case <-ctx.Done():
			return found, false, errors.Join(ctx.Err(), err)
		}
	}
}

// mayCome reports whether it is worth waiting after that error of the cache's Get.
func (n *Named[T]) mayCome(key informer.Key, err error) bool {
	switch n.cache.HealthIn(key.String()).State {
	case "", informer.Listing, informer.Live:
		return errors.Is(err, informer.ErrNotNamed) || errors.Is(err, informer.ErrNotKnown)
	}
	return false
}

func (n *Named[T]) wait(key string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, ok := n.waiting[key]
	if !ok {
		known = make(chan struct{})
		n.waiting[key] = known
	}
	return known
}

// known wakes those that wait for a key.
func (n *Named[T]) known(key, _ string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.waiting[key]; ok {
		close(known)
		delete(n.waiting, key)
	}
}
