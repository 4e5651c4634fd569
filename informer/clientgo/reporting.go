package clientgo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer"
)

// reporting is a client that tells the informer's WatchErrorHandler what client-go would: of requests that failed, but for those after which something else
// is tried at once, or the same after a while.
type reporting struct {
	informer.Client[runtime.Object]
	informer *sharedInformer
}

func (c reporting) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := c.Client.List(ctx, opts)
	if err != nil && !(apierrors.IsResourceExpired(err) && opts.Continue != "") {
		c.report(ctx, fmt.Errorf("failed to list %s: %w", c.informer.description, err))
	}
	return list, err
}

// asUsual is how long package informer asks a watch to live, at least.
const asUsual = 5 * time.Minute

func (c reporting) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if shortest := c.informer.minWatch; shortest > asUsual {
		timeout := int64((shortest + rand.N(shortest)).Seconds())
		opts.TimeoutSeconds = &timeout
	}
	w, err := c.Client.Watch(ctx, opts)
	switch {
	case err == nil, utilnet.IsConnectionRefused(err), apierrors.IsTooManyRequests(err):
	case opts.SendInitialEvents == nil:
		c.report(ctx, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err): // a server that does not stream lists: it is asked for a plain one
	default:
		c.report(ctx, fmt.Errorf("failed to list %s: %w", c.informer.description, err))
	}
	return w, err
}

func (c reporting) report(ctx context.Context, err error) {
	if handler := c.informer.watchErrors; handler != nil && ctx.Err() == nil {
		defer utilruntime.HandleCrashWithContext(ctx)
		handler(ctx, c.informer.reflector, err)
	}
}
