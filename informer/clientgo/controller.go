package clientgo

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// controller is a cache.Controller: an informer with one handler. It has synced when the handler has seen everything
// that there was at first.
type controller struct {
	*sharedInformer
	handler *registration
}

func (c controller) HasSynced() bool { return c.handler.HasSynced() }

// idle is the cache.Controller of a shared informer, which others run.
type idle struct{ *sharedInformer }

func (idle) Run(<-chan struct{})            {}
func (idle) RunWithContext(context.Context) {}

// NewInformerWithOptions makes a store, a handler that is told of its changes, and the controller that fills it.
func NewInformerWithOptions(options cache.InformerOptions) (cache.Store, cache.Controller) {
	return newInformer(options)
}

// NewInformer is NewInformerWithOptions with some of the options.
func NewInformer(lw cache.ListerWatcher, objType runtime.Object, resyncPeriod time.Duration,
	h cache.ResourceEventHandler) (cache.Store, cache.Controller) {
	return newInformer(cache.InformerOptions{ListerWatcher: lw, ObjectType: objType, Handler: h,
		ResyncPeriod: resyncPeriod})
}

// NewIndexerInformer is NewInformer with indexes.
func NewIndexerInformer(
	lw cache.ListerWatcher, objType runtime.Object, resyncPeriod time.Duration, h cache.ResourceEventHandler,
	indexers cache.Indexers,
) (cache.Indexer, cache.Controller) {
	return newInformer(cache.InformerOptions{ListerWatcher: lw, ObjectType: objType, Handler: h,
		ResyncPeriod: resyncPeriod, Indexers: indexers})
}

// NewTransformingInformer is NewInformer with a transform function.
func NewTransformingInformer(
	lw cache.ListerWatcher, objType runtime.Object, resyncPeriod time.Duration, h cache.ResourceEventHandler,
	transformer cache.TransformFunc,
) (cache.Store, cache.Controller) {
	return newInformer(cache.InformerOptions{ListerWatcher: lw, ObjectType: objType, Handler: h,
		ResyncPeriod: resyncPeriod, Transform: transformer})
}

// NewTransformingIndexerInformer is NewInformer with indexes and a transform function.
func NewTransformingIndexerInformer(
	lw cache.ListerWatcher, objType runtime.Object, resyncPeriod time.Duration, h cache.ResourceEventHandler,
	indexers cache.Indexers, transformer cache.TransformFunc,
) (cache.Indexer, cache.Controller) {
	return newInformer(cache.InformerOptions{
		ListerWatcher: lw, ObjectType: objType, Handler: h, ResyncPeriod: resyncPeriod, Indexers: indexers,
		Transform: transformer,
	})
}

func newInformer(options cache.InformerOptions) (*indexer, controller) {
	s := newSharedInformer(options.ListerWatcher, options.ObjectType, sharedOptions(options))
	s.transform, s.minWatch = options.Transform, options.MinWatchTimeout
	handler, err := s.addHandler(options.Handler, handlerOptions(options))
	if err != nil {
		panic(err) // only a mistake made here can be the reason
	}
	return s.store, controller{s, handler}
}
