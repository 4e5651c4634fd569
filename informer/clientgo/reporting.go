package clientgo

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/internal/tap"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// reporting is a client that tells the informer's WatchErrorHandler what client-go would: of requests that failed, but
// for those after which something else is tried at once, or the same after a while. Requests come one at a time.
type reporting struct {
	informer.Client[runtime.Object]
	informer *sharedInformer
	tap      *tap.Tap

	// streamed is how the latest request failed, if it was for a streamed list. A plain list may stand in for that, so
	// it is told only when that does not come.
	streamed error
	// expired is true if the latest request was for a list, and its version was gone: the first time, it is tried
	// again.
	expired bool
}

// Tap lets package informer read the answers that the client gets.
func (c *reporting) Tap() *tap.Tap { return c.tap }

func (c *reporting) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := c.Client.List(ctx, opts)
	c.streamed = nil
	first := !c.expired
	c.expired = isExpired(err) && first
	if err != nil && !(isExpired(err) && (first || opts.Continue != "")) {
		c.report(ctx, fmt.Errorf("failed to list %s: %w", c.informer.description, err))
	}
	return list, err
}

// isExpired reports whether a list failed because its version is no longer there, or not yet.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// asUsual is how long package informer asks a watch to live, at least.
const asUsual = 5 * time.Minute

// errNotStreamed is what a server says that does not stream lists.
var errNotStreamed = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
	Message: "streamed lists are switched off by client-go's feature gate WatchListClient",
}}

func (c *reporting) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if c.streamed != nil {
		c.report(ctx, fmt.Errorf("failed to list %s: %w", c.informer.description, c.streamed))
		c.streamed = nil
	}
	streams := opts.SendInitialEvents != nil
	if streams && !c.informer.streams {
		return nil, errNotStreamed
	}
	if shortest := c.informer.minWatch; shortest > asUsual {
		timeout := int64((shortest + lifecycle.RandomDuration(shortest, c.informer.description)).Seconds())
		opts.TimeoutSeconds = &timeout
	}
	w, err := c.Client.Watch(ctx, opts)
	switch {
	case err == nil, utilnet.IsConnectionRefused(err), apierrors.IsTooManyRequests(err):
	case streams:
		c.streamed = err
	default:
		c.report(ctx, err)
	}
	return w, err
}

func (c *reporting) report(ctx context.Context, err error) {
	if handler := c.informer.watchErrors; handler != nil && ctx.Err() == nil {
		handler(ctx, c.informer.reflector, err)
	}
}
