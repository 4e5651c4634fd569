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

// client makes the few requests that an election needs, all for one Lease, none with hidden retries: an elector has to
// know when each try was sent.
type client struct {
	rest            rest.Interface
	transport       *ownTransport
	namespace, name string
	observe         func(verb string, took time.Duration, err error)
}

// ownRate is far above what an election needs. It is there for the case that this package has a bug.
const ownRate, ownBurst = 10, 20

func newClient(cfg Config, observe func(string, time.Duration, error)) (*client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	rc := rest.CopyConfig(cfg.REST)
	rc.APIPath = "/apis"
	rc.GroupVersion = &coordinationv1.SchemeGroupVersion
	rc.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	rc.ContentConfig.ContentType, rc.ContentConfig.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	rc.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(ownRate, ownBurst)
	if rc.UserAgent == "" {
		rc.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	own, err := newOwnTransport(rc)
	if err != nil {
		return nil, err
	}
	rc2, err := rest.RESTClientForConfigAndClient(rc, &http.Client{Transport: own})
	if err != nil {
		return nil, err
	}
	return &client{rest: rc2, transport: own, namespace: cfg.Namespace, name: cfg.Name, observe: observe}, nil
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

// update replaces the Lease if it is still the one, at the resourceVersion, that lease was made from.
func (c *client) update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, "update", c.rest.Put().Name(c.name).Body(lease))
}

// dryRun asks whether an update would be let pass. It changes nothing.
func (c *client) dryRun(ctx context.Context, lease *coordinationv1.Lease) error {
	_, err := c.do(ctx, "update", c.rest.Put().Name(c.name).Param("dryRun", metav1.DryRunAll).Body(lease))
	return err
}

func (c *client) do(ctx context.Context, verb string, request *rest.Request) (*coordinationv1.Lease, error) {
	lease, start := &coordinationv1.Lease{}, time.Now()
	err := request.Namespace(c.namespace).Resource(resource).MaxRetries(0).Do(ctx).Into(lease)
	return lease, c.done(verb, start, err)
}

// watch follows the one Lease. The field selector is authorised by name, so that a Role may grant it for this Lease
// alone.
func (c *client) watch(ctx context.Context, resourceVersion string, timeout time.Duration) (watch.Interface, error) {
	start := time.Now()
	w, err := c.rest.Get().Namespace(c.namespace).Resource(resource).MaxRetries(0).
		Param("watch", "true").
		Param("fieldSelector", fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()).
		Param("resourceVersion", resourceVersion).
		Param("timeoutSeconds", fmt.Sprint(int(timeout/time.Second))).
		Watch(ctx)
	return w, c.done("watch", start, err)
}

const resource = "leases"

// done is the end of every request: counted, its error given a name, and the next try given a connection of its own.
func (c *client) done(verb string, start time.Time, err error) error {
	c.observe(verb, time.Since(start), err)
	if err == nil {
		return nil
	}
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		c.transport.fresh() // a refusal, too, may be this connection's: its client certificate has expired
	}
	if apierrors.IsForbidden(err) {
		return &DeniedError{Verb: verb, Namespace: c.namespace, Name: c.name, Err: err}
	}
	return fmt.Errorf("%s leases.coordination.k8s.io %s/%s: %w", verb, c.namespace, c.name, err)
}

// A lane is a transport for nobody but one elector. It speaks HTTP/1.1 on purpose: there each request in flight has a
// connection of its own, which ends with it when it fails, while on HTTP/2 one dead connection is shared, by the watch
// and by every try, until a ping gives it up (about 30 s, kubernetes issue 125530). After a failed try even the healthy
// idle connections are dropped, and the certificates read again: behind a load balancer the next try may then meet
// another API server.
type ownTransport struct {
	config *rest.Config

	mu sync.Mutex
	// Guarded by mu. rt is what the config says (authentication, wrappers) around base; base is nil if the config has a
	// Transport.
	rt   http.RoundTripper
	base *http.Transport
}

func newOwnTransport(config *rest.Config) (*ownTransport, error) {
	l := &ownTransport{config: config}
	rt, base, err := l.build()
	if err != nil {
		return nil, fmt.Errorf("leaderelection: the client configuration is not usable: %w", err)
	}
	l.rt, l.base = rt, base
	return l, nil
}

func (l *ownTransport) build() (http.RoundTripper, *http.Transport, error) {
	tc, err := l.config.TransportConfig()
	if err != nil {
		return nil, nil, err
	}
	if l.config.Transport != nil {
		rt, err := transport.HTTPWrappersForConfig(tc, l.config.Transport)
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

// dialTimeout bounds a dial that net/http goes on with after the request that wanted it has given up.
const dialTimeout = 10 * time.Second

func (l *ownTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	rt := l.rt
	l.mu.Unlock()
	return rt.RoundTrip(req)
}

// fresh makes the next request dial. If the certificates cannot be read just now, the old ones stay in use.
func (l *ownTransport) fresh() {
	l.close()
	if l.config.Transport != nil {
		return
	}
	if rt, base, err := l.build(); err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.rt, l.base = rt, base
	}
}

func (l *ownTransport) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.base != nil {
		l.base.CloseIdleConnections()
		return
	}
	for rt := l.config.Transport; ; {
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
