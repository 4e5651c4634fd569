// Package testbed is what the tests of the example controllers have in common: the way of a process to the API server,
// with what goes wrong on it, and controllers in processes of their own: Kubernetes' and the examples'.
//
// # Reading order
//
// gateway.go, transports.go, builtin.go, crew.go; behaviours.go, grants.go and image.go are about what is beside the
// code.
package testbed

import (
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Gateway is the way of processes to the API server. It counts what they ask for, and transports wrapped around its
// own do to all of them what else they do to one client in this process.
type Gateway struct {
	Config     *rest.Config // of the way in
	Kubeconfig string       // a file that says the same

	mu     sync.Mutex
	counts map[string]int // guarded by mu; by "verb group/resource[/subresource]"
}

// NewGateway makes a gateway to the API server of cfg. A client of it has the rights of cfg or, if that has none, those
// of the token that it sends. Each of wrap is put around the transport of all requests.
func NewGateway(t testing.TB, cfg *rest.Config, wrap ...transport.WrapperFunc) *Gateway {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	require.NoError(t, err)
	for _, f := range wrap {
		cfg.Wrap(f)
	}
	way, err := rest.TransportFor(cfg)
	require.NoError(t, err)
	g := &Gateway{counts: map[string]int{}}
	quiet := log.New(io.Discard, "", 0) // what breaks here is meant to
	proxy := &httputil.ReverseProxy{
		ErrorLog:  quiet,
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: way,
		// a watch is told as it happens
		FlushInterval: -1,
		// no answer is no answer
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		g.mu.Lock()
		g.counts[accessOf(req)]++
		g.mu.Unlock()
		proxy.ServeHTTP(w, req)
	}))
	server.EnableHTTP2, server.Config.ErrorLog = true, quiet
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	g.Config = &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}
	g.Kubeconfig = KubeconfigOf(t, g.Config)
	return g
}

// KubeconfigOf writes cfg into a file for a process.
func KubeconfigOf(t testing.TB, cfg *rest.Config) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, testcluster.WriteKubeconfig(path, cfg))
	return path
}

// Asked returns how many requests were made since the last call of Counted, by "verb group/resource".
func (g *Gateway) Asked() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.counts)
}

// Counted returns the same, and begins to count anew.
func (g *Gateway) Counted() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	counts := maps.Clone(g.counts)
	clear(g.counts)
	return counts
}

var resourcePath = regexp.MustCompile(
	`^/(?:api|apis/([^/]+))/[^/]+(?:/namespaces/[^/]+)?/([^/]+)(?:/([^/]+))?(?:/([^/]+))?$`)

// accessOf says which verb on which resource a request needs.
func accessOf(req *http.Request) string {
	m := resourcePath.FindStringSubmatch(req.URL.Path)
	if m == nil {
		return req.Method + " " + req.URL.Path
	}
	group, resource, name, subresource := m[1], m[2], m[3], m[4]
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
		http.MethodDelete: "delete", http.MethodGet: "get"}[req.Method]
	switch {
	case req.URL.Query().Get("watch") != "":
		verb = "watch"
	case verb == "get" && name == "":
		verb = "list"
	}
	if subresource != "" {
		resource += "/" + subresource
	}
	return verb + " " + group + "/" + resource
}
