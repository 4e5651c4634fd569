package main

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
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/thermostat-go/thermostat/internal/testcluster"
)

// A gateway is the way of processes to the API server, as its administrators. It counts what they ask for, and transports wrapped around its own
// do to all of them what else they do to one client in this process.
type gateway struct {
	kubeconfig string

	mu     sync.Mutex
	counts map[string]int // guarded by mu; by "verb group/resource[/subresource]"
}

func newGateway(t *testing.T, cluster *testcluster.Cluster, wrap ...transport.WrapperFunc) *gateway {
	cfg := cluster.Config()
	target, err := url.Parse(cfg.Host)
	require.NoError(t, err)
	for _, f := range wrap {
		cfg.Wrap(f)
	}
	way, err := rest.TransportFor(cfg)
	require.NoError(t, err)
	g := &gateway{counts: map[string]int{}}
	quiet := log.New(io.Discard, "", 0) // what breaks here is meant to
	proxy := &httputil.ReverseProxy{
		ErrorLog:      quiet,
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport:     way,
		FlushInterval: -1,                                                                              // a watch is told as it happens
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // no answer is no answer
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
	g.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, testcluster.WriteKubeconfig(g.kubeconfig, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}))
	return g
}

// counted is what was asked for since the last call.
func (g *gateway) counted() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	counts := maps.Clone(g.counts)
	clear(g.counts)
	return counts
}
