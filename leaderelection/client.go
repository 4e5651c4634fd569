package leaderelection

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"
)

// client makes the requests of an election, all for one Lease. It retries nothing by itself: an elector has to know
// when each try was sent.
type client struct {
	rest            rest.Interface
	transport       *ownTransport
	namespace, name string
	sent            func() // called after each request
}

// ownRate is far above what an election needs. It bounds the damage of a bug in this package.
const ownRate, ownBurst = 10, 20

func newClient(cfg Config, sent func()) (*client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(cfg.REST)
	config.APIPath = "/apis"
	config.GroupVersion = &coordinationv1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentConfig.ContentType, config.ContentConfig.AcceptContentTypes = runtime.ContentTypeJSON,
		runtime.ContentTypeJSON
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(ownRate, ownBurst)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	own, err := newOwnTransport(config)
	if err != nil {
		return nil, err
	}
	requests, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: own})
	if err != nil {
		return nil, err
	}
	return &client{rest: requests, transport: own, namespace: cfg.Namespace, name: cfg.Name, sent: sent}, nil
}

// get returns nil and no error when the Lease does not exist: to an election that is an answer.
func (c *client) get(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := c.do(ctx, "get", c.rest.Get().Name(c.name))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

func (c *client) create(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, "create", c.rest.Post().Body(lease))
}

// update replaces the Lease if it still has the UID and the resourceVersion that lease was made from.
func (c *client) update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, "update", c.rest.Put().Name(c.name).Body(lease))
}

// dryRun asks whether the server would authorize an update. It changes nothing.
func (c *client) dryRun(ctx context.Context, lease *coordinationv1.Lease) error {
	_, err := c.do(ctx, "update", c.rest.Put().Name(c.name).Param("dryRun", metav1.DryRunAll).Body(lease))
	return err
}

func (c *client) do(ctx context.Context, verb string, request *rest.Request) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := request.Namespace(c.namespace).Resource(resource).MaxRetries(0).Do(ctx).Into(lease)
	return lease, c.done(verb, err)
}

// watch follows the one Lease. The server authorizes the field selector by name, so a Role may grant the watch for this
// Lease alone.
func (c *client) watch(ctx context.Context, resourceVersion string, timeout time.Duration) (watch.Interface, error) {
	w, err := c.rest.Get().Namespace(c.namespace).Resource(resource).MaxRetries(0).
		Param("watch", "true").
		Param("fieldSelector", fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()).
		Param("resourceVersion", resourceVersion).
		Param("timeoutSeconds", fmt.Sprint(int(timeout/time.Second))).
		Watch(ctx)
	return w, c.done("watch", err)
}

const resource = "leases"

// done is the end of every request. It counts the request, wraps its error, and after a failure gives the next try a
// connection of its own.
func (c *client) done(verb string, err error) error {
	c.sent()
	if err == nil {
		return nil
	}
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		c.transport.fresh() // a refusal, too, may be due to the connection: its client certificate has expired
	}
	if apierrors.IsForbidden(err) {
		return &DeniedError{Verb: verb, Namespace: c.namespace, Name: c.name, Err: err}
	}
	return fmt.Errorf("%s leases.coordination.k8s.io %s/%s: %w", verb, c.namespace, c.name, err)
}

// An ownTransport is the transport of one elector. It speaks HTTP/1.1 on purpose: there each request in flight has a
// connection of its own, which ends when the request fails. On HTTP/2 the watch and every try share one connection, and
// a dead one stays until a ping times out, about 30 s (kubernetes issue 125530). After a failed try the idle
// connections are closed, too, and the certificates read again: behind a load balancer the next try may then reach
// another API server.
type ownTransport struct {
	config *rest.Config

	mu sync.Mutex
	// Guarded by mu. rt is base inside of what the config asks for (authentication, wrappers); base is nil if the
	// config has a Transport.
	rt   http.RoundTripper
	base *http.Transport
}

func newOwnTransport(config *rest.Config) (*ownTransport, error) {
	t := &ownTransport{config: config}
	rt, base, err := t.build()
	if err != nil {
		return nil, fmt.Errorf("leaderelection: the client configuration is not usable: %w", err)
	}
	t.rt, t.base = rt, base
	return t, nil
}

func (t *ownTransport) build() (http.RoundTripper, *http.Transport, error) {
	tc, err := t.config.TransportConfig()
	if err != nil {
		return nil, nil, err
	}
	if t.config.Transport != nil {
		rt, err := transport.HTTPWrappersForConfig(tc, t.config.Transport)
		return rt, nil, err
	}
	tc.TLS.NextProtos = []string{"http/1.1"}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, nil, err
	}
	base := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true, // a Lease is smaller than the dictionary
		IdleConnTimeout:     90 * time.Second,
	}
	if tc.Proxy != nil {
		base.Proxy = tc.Proxy
	}
	if tc.DialHolder != nil {
		base.DialContext = tc.DialHolder.Dial
	}
	rt, err := transport.HTTPWrappersForConfig(tc, base)
	return rt, base, err
}

// dialTimeout bounds a dial that net/http continues after the request that needed it has been given up.
const dialTimeout = 10 * time.Second

func (t *ownTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.mu.Lock()
	rt := t.rt
	t.mu.Unlock()
	return rt.RoundTrip(req)
}

// fresh makes the next request dial. If the certificates cannot be read now, the old ones stay in use.
func (t *ownTransport) fresh() {
	t.close()
	if t.config.Transport != nil {
		return
	}
	if rt, base, err := t.build(); err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.rt, t.base = rt, base
	}
}

func (t *ownTransport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base != nil {
		t.base.CloseIdleConnections()
		return
	}
	for rt := t.config.Transport; ; { // utilnet.CloseIdleConnectionsFor would log a warning about other transports
		if closer, ok := rt.(interface{ CloseIdleConnections() }); ok {
			closer.CloseIdleConnections()
			return
		}
		wrapper, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok {
			return
		}
		rt = wrapper.WrappedRoundTripper()
	}
}
