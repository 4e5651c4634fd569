package election

import (
	"net"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"
)

// NewREST makes a client for Leases, with a transport of its own and so many requests a second, from a copy of config.
// Its QPS, Burst, RateLimiter and Timeout are not used.
func NewREST(config *rest.Config, rate float32, burst int) (rest.Interface, *Transport, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &coordinationv1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentConfig.ContentType, config.ContentConfig.AcceptContentTypes = runtime.ContentTypeJSON,
		runtime.ContentTypeJSON
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(rate, burst)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	own, err := newTransport(config)
	if err != nil {
		return nil, nil, err
	}
	requests, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: own})
	return requests, own, err
}

// A Transport is that of one elector, or one replica. It speaks HTTP/1.1 on purpose: there each request in flight has a
// connection of its own, which ends when the request fails. On HTTP/2 the watch and every try share one connection, and
// a dead one stays until a ping times out, about 30 s (kubernetes issue 125530). After a failed try the idle
// connections are closed, too, and the certificates read again: behind a load balancer the next try may then reach
// another API server.
type Transport struct {
	Config *rest.Config // never changed

	mu sync.Mutex
	// Guarded by mu. rt is base inside of what the config asks for (authentication, wrappers); base is nil if the
	// config has a Transport.
	rt   http.RoundTripper
	base *http.Transport
}

func newTransport(config *rest.Config) (*Transport, error) {
	t := &Transport{Config: config}
	rt, base, err := t.build()
	if err != nil {
		return nil, err
	}
	t.rt, t.base = rt, base
	return t, nil
}

func (t *Transport) build() (http.RoundTripper, *http.Transport, error) {
	tc, err := t.Config.TransportConfig()
	if err != nil {
		return nil, nil, err
	}
	if t.Config.Transport != nil {
		rt, err := transport.HTTPWrappersForConfig(tc, t.Config.Transport)
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

// Base returns what the present connections belong to, for tests.
func (t *Transport) Base() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.base
}

func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.mu.Lock()
	rt := t.rt
	t.mu.Unlock()
	return rt.RoundTrip(req)
}

// Fresh makes the next request dial. If the certificates cannot be read now, the old ones stay in use.
func (t *Transport) Fresh() {
	t.Close()
	if t.Config.Transport != nil {
		return
	}
	if rt, base, err := t.build(); err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.rt, t.base = rt, base
	}
}

// Close closes the idle connections.
func (t *Transport) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base != nil {
		t.base.CloseIdleConnections()
		return
	}
	for rt := t.Config.Transport; ; { // utilnet.CloseIdleConnectionsFor would log a warning about other transports
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
