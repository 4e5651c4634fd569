package clientgo

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer"
)

// NewClient lets an informer list and watch through lw. Requests carry the informer's context if lw is a
// cache.ListerWatcherWithContext, too, as a cache.ListWatch is. Selectors are lw's business, and so are those of
// informer.Options, unless lw heeds the ListOptions that it is given.
func NewClient(lw cache.ListerWatcher) informer.Client[runtime.Object] {
	if lw == nil {
		return client{}
	}
	return client{cache.ToListerWatcherWithContext(lw)}
}

type client struct {
	lw cache.ListerWatcherWithContext
}

// Code that never runs its informer, a test of listers for instance, may have made it without a ListerWatcher.
var errNoListerWatcher = errors.New("the informer was made with a nil ListerWatcher")

func (c client) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if c.lw == nil {
		return nil, errNoListerWatcher
	}
	return c.lw.ListWithContext(ctx, opts)
}

func (c client) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if c.lw == nil {
		return nil, errNoListerWatcher
	}
	return c.lw.WatchWithContext(ctx, opts)
}
