package clientgo

import (
	"compress/gzip"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// front is an HTTP server before the server in memory. It compresses what its clients want compressed.
type front struct {
	next http.Handler

	mu   sync.Mutex
	seen map[string]bool // protocols, and headers that arrive
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen[r.Proto] = true
	f.seen["user "+r.Header.Get("Impersonate-User")] = true
	f.seen[r.Header.Get("Authorization")] = true
	f.mu.Unlock()
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		f.mu.Lock()
		f.seen["gzip"] = true
		f.mu.Unlock()
		zipped := &zipping{ResponseWriter: w, to: gzip.NewWriter(w)}
		defer zipped.to.Close()
		w = zipped
	}
	f.next.ServeHTTP(w, r)
}

type zipping struct {
	http.ResponseWriter
	to *gzip.Writer
}

func (z *zipping) WriteHeader(code int) {
	z.Header().Del("Content-Length")
	z.ResponseWriter.WriteHeader(code)
}
func (z *zipping) Write(p []byte) (int, error) { return z.to.Write(p) }
func (z *zipping) Flush() {
	z.to.Flush()
	z.ResponseWriter.(http.Flusher).Flush()
}

func TestWireOverHTTP(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Seed: 1})
	m := writer{t, kubernetes.NewForConfigOrDie(server.Config())}
	for i := range 300 {
		m.create(fmt.Sprint("map-", i))
	}
	back, err := url.Parse(server.Link().Listen().Host)
	require.NoError(t, err)
	for _, http2 := range []bool{false, true} {
		for _, plain := range []bool{false, true} {
			for _, p := range programs {
				t.Run(fmt.Sprintf("%s,http2=%t,plain=%t", p.name, http2, plain), func(t *testing.T) {
					f := &front{seen: map[string]bool{}, next: &httputil.ReverseProxy{FlushInterval: -1,
						Rewrite: func(r *httputil.ProxyRequest) {
							r.SetURL(back)
							r.Out.Header.Del("Authorization")
							r.Out.Header.Del("Impersonate-User")
							r.Out.Header.Del("Accept-Encoding")
						}}}
					s := httptest.NewUnstartedServer(f)
					s.EnableHTTP2 = http2
					s.StartTLS()
					defer s.Close()
					defer s.CloseClientConnections()
					cfg := Wire(&rest.Config{Host: s.URL, QPS: -1,
						Impersonate:     rest.ImpersonationConfig{UserName: "jane"},
						TLSClientConfig: rest.TLSClientConfig{Insecure: true},
						ExecProvider: &clientcmdapi.ExecConfig{
							APIVersion: "client.authentication.k8s.io/v1", Command: "sh",
							InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
							Args: []string{"-c", `echo '{"apiVersion":"client.authentication.k8s.io/v1",` +
								`"kind":"ExecCredential","status":{"token":"from-a-plugin"}}'`},
						}})
					if !http2 {
						cfg.NextProtos = []string{"http/1.1"}
					}
					lw := count(p.client(t, cfg), plain)
					inf := ours(lw, p.example)
					defer runs(t, inf)()
					require.Eventually(t, inf.HasSynced, time.Minute, time.Millisecond)
					require.Len(t, inf.GetStore().ListKeys(), 300)
					m.create("late")
					require.Eventually(t, func() bool {
						_, exists, _ := inf.GetStore().GetByKey("default/late")
						return exists
					}, time.Minute, time.Millisecond)
					m.remove("late")
					require.Eventually(t, func() bool { return len(inf.GetStore().ListKeys()) == 300 }, time.Minute,
						time.Millisecond)
					require.Less(t, lw.total(), 210)
					f.mu.Lock()
					defer f.mu.Unlock()
					for _, what := range []string{map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[http2], "gzip",
						"user jane", "Bearer from-a-plugin"} {
						require.True(t, f.seen[what], "%s: %v", what, f.seen)
					}
				})
			}
		}
	}
}

// runs is run outside of a bubble.
func runs(t *testing.T, inf cache.SharedIndexInformer) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		inf.RunWithContext(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func unlimited(cfg *rest.Config) *rest.Config {
	cfg.QPS = -1
	return cfg
}

func TestWireOnTheServer(t *testing.T) {
	c := testcluster.Shared(t)
	m := writer{t, kubernetes.NewForConfigOrDie(unlimited(c.Config()))}
	for i := range 300 {
		m.create(fmt.Sprint("wired-", i))
		defer m.remove(fmt.Sprint("wired-", i))
	}
	for _, p := range programs {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,plain=%t", p.name, plain), func(t *testing.T) {
				read := func(construct func(cache.ListerWatcher, runtime.Object) cache.SharedIndexInformer,
					cfg *rest.Config) (map[string]string, int) {
					lw := count(p.client(t, cfg), plain)
					inf := construct(lw, p.example)
					defer runs(t, inf)()
					require.Eventually(t, inf.HasSynced, time.Minute, time.Millisecond)
					m.create("late")
					defer m.remove("late")
					require.Eventually(t, func() bool {
						_, exists, _ := inf.GetStore().GetByKey("default/late")
						return exists
					}, time.Minute, time.Millisecond)
					held := dump(inf.GetStore())
					maps.DeleteFunc(held, func(key, _ string) bool { return !strings.HasPrefix(key, "default/wired") })
					return held, lw.total()
				}
				want, all := read(theirs, c.Config())
				got, few := read(ours, Wire(c.Config()))
				require.Len(t, got, 300)
				require.Equal(t, want, got)
				require.Greater(t, all, 300)
				require.Less(t, few, 210)
			})
		}
	}
}
