package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile"
)

// idle is what a Manager does that has nothing to do.
var idle = map[string]func(context.Context) error{"nothing": func(context.Context) error { return nil }}

// newServer makes a Server, and a Manager that it may be asked about.
func newServer(t *testing.T, opts Options) (*Server, *reconcile.Manager) {
	t.Helper()
	s, err := New(opts)
	require.NoError(t, err)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Beside: idle, Serve: s.Run})
	require.NoError(t, err)
	return s, m
}

// start runs a Manager until the end of the test, and returns when it is ready.
func start(t *testing.T, s *Server, m *reconcile.Manager) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	require.Eventually(t, func() bool { return s.Address() != "" && len(m.Inspect().NotReady) == 0 }, time.Minute,
		time.Millisecond)
	return func() error { cancel(); return <-done }
}

// get is what a Server answers to a GET.
func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + s.Address() + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

type checks = map[string]func(*http.Request) error

func TestOwnChecksAndHandlersAreServed(t *testing.T) {
	var ill atomic.Bool
	check := func(*http.Request) error {
		if ill.Load() {
			return errors.New("no space")
		}
		return nil
	}
	text := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
	}
	var asked []any
	s, m := newServer(t, Options{Address: ":0",
		HealthChecks: checks{"disk": check, "fine": func(*http.Request) error { return nil }},
		ReadyChecks: checks{"peer": check,
			"panics": func(req *http.Request) error {
				if req.URL.RawQuery != "" {
					panic("secret")
				}
				return nil
			}},
		Handlers: map[string]http.Handler{"/debug/pprof/": text("profiles"), "POST /level": text("set"),
			"/panics": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") }),
			"/who": http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				asked = append(asked, ManagerOf(req.Context()), Reviewed(req.Context()))
			})},
	})
	stop := start(t, s, m)
	host, _, err := net.SplitHostPort(s.Address())
	require.NoError(t, err)
	require.True(t, net.ParseIP(host).IsLoopback(), host)
	for _, path := range []string{"/healthz", "/readyz"} {
		code, body := get(t, s, path)
		require.Equal(t, 200, code)
		require.Equal(t, "ok\n", body)
	}
	ill.Store(true)
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/healthz", "disk: no space\n", 500},
		{"/readyz", "peer: no space\n", 503},
		{"/readyz?panic", "the handler panicked\n", 500},
		{"/debug/pprof/heap", "profiles", 200},
		{"/level", "Method Not Allowed\n", 405},
		{"/metrics", "404 page not found\n", 404},
		{"/panics", "the handler panicked\n", 500},
		{"/who", "", 200},
	} {
		code, body := get(t, s, c.path)
		require.Equal(t, c.code, code, c.path)
		require.Equal(t, c.body, body, c.path)
	}
	require.NoError(t, stop())
	require.Equal(t, []any{m, false}, asked)
	require.Nil(t, ManagerOf(t.Context()))
	require.False(t, Reviewed(t.Context()))
	require.ErrorIs(t, s.Run(t.Context(), m), reconcile.ErrStarted)
}

// TestWhatTheManagerSaysIsServed: its health, beside the checks of the user's, from the moment at which it runs.
func TestWhatTheManagerSaysIsServed(t *testing.T) {
	s, _ := newServer(t, Options{Address: ":0",
		HealthChecks: checks{"disk": func(*http.Request) error { return errors.New("no space") }},
		ReadyChecks:  checks{"peer": func(*http.Request) error { return errors.New("away") }}})
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Beside: idle, Elector: ailing{}})
	require.NoError(t, err)
	for path, want := range map[string]string{
		"/healthz": "the Elector's Check fails because of an error of type *errors.errorString (see the log)\n" +
			"disk: no space\n",
		"/readyz": "not started\npeer: away\n",
	} {
		w := httptest.NewRecorder()
		s.endpoints.ServeHTTP(w, httptest.NewRequest("GET", path, nil).WithContext(about(t.Context(), s, m)))
		require.Equal(t, want, w.Body.String())
	}
}

// about is the ctx of a request to a Server about a Manager.
func about(ctx context.Context, s *Server, m *reconcile.Manager) context.Context {
	return context.WithValue(ctx, askedKey{}, asked{s, m})
}

// ailing is an Elector that is not healthy.
type ailing struct{ reconcile.Elector }

func (ailing) Check(*http.Request) error { return errors.New("secret") }

func TestMistakesAreNamed(t *testing.T) {
	for _, address := range []string{"", "8080", "localhost", "localhost:no-such-port", "1.2.3.4:99999", "::1:80"} {
		_, err := New(Options{Address: address})
		require.ErrorContains(t, err, fmt.Sprintf("Options.Address is %q; it is host:port", address))
	}
	for _, address := range []string{":8080", "localhost:0", "[::1]:80", "0.0.0.0:http"} {
		_, err := New(Options{Address: address})
		require.NoError(t, err, address)
	}
	for want, opts := range map[string]Options{
		`Options.Handlers["/x"] is nil`:                {Handlers: map[string]http.Handler{"/x": nil}},
		`Options.HealthChecks["c"] is nil`:             {HealthChecks: checks{"c": nil}},
		`Options.ReadyChecks has an empty name`:        {ReadyChecks: checks{"": nil}},
		`Options.StopGrace is -1ns`:                    {StopGrace: -1},
		`Options.TLS has no certificate`:               {TLS: &tls.Config{}},
		`Options.AccessReviews is set, but TLS is not`: {AccessReviews: &rest.Config{}},
		`Options.AccessReviews: `: {AccessReviews: &rest.Config{Host: "::"},
			TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}},
		`Options.Handlers["GET /healthz"]: `: {
			Handlers: map[string]http.Handler{"GET /healthz": http.NotFoundHandler()}},
		`Options.Handlers["get it"]: `: {Handlers: map[string]http.Handler{"get it": http.NotFoundHandler()}},
	} {
		opts.Address = "0" // what is not served is checked all the same
		_, err := New(opts)
		require.ErrorContains(t, err, "serve.New: ")
		require.ErrorContains(t, err, want)
	}
}

// TestHandlersAreWaitedFor: the ctx of a request ends with the Manager, and a handler that does not mind is named.
func TestHandlersAreWaitedFor(t *testing.T) {
	for name, hangs := range map[string]bool{"it returns": false, "it hangs": true} {
		t.Run(name, func(t *testing.T) {
			began, release := make(chan struct{}), make(chan struct{})
			grace := time.Minute // a handler that returns does so once it gets a processor
			if hangs {
				grace = 50 * time.Millisecond
			}
			s, m := newServer(t, Options{Address: ":0", StopGrace: grace,
				Handlers: map[string]http.Handler{"/slow": http.HandlerFunc(func(_ http.ResponseWriter,
					r *http.Request) {
					close(began)
					<-r.Context().Done()
					if hangs {
						<-release
					}
				})},
			})
			stop := start(t, s, m)
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				if resp, err := http.Get("http://" + s.Address() + "/slow"); err == nil {
					resp.Body.Close()
				}
			}()
			<-began
			err := stop()
			close(release)
			<-asked
			if !hangs {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, reconcile.ErrStuck)
			require.ErrorContains(t, err, "handler of /slow had 50ms to end")
			w := httptest.NewRecorder()
			s.requests.join(s.endpoints).ServeHTTP(w, httptest.NewRequest("GET", "/slow", nil))
			require.Equal(t, 503, w.Code, "none begins any more")
		})
	}
}

// TestAServerThatEndsByItselfEndsTheManager: without health checks nobody would notice what else goes wrong.
func TestAServerThatEndsByItselfEndsTheManager(t *testing.T) {
	s, err := New(Options{Address: ":0"})
	require.NoError(t, err)
	listener, err := listen(":0")
	require.NoError(t, err)
	listener.Close()
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Beside: map[string]func(context.Context) error{"for ever": func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}},
		Serve: func(ctx context.Context, m *reconcile.Manager) error { return s.serve(ctx, m, listener) },
	})
	require.NoError(t, err)
	require.ErrorContains(t, m.Run(t.Context()),
		"ManagerOptions.Serve: serve.Options.Address: it is no longer served: ")
}

// TestAnAddressThatIsTakenEndsTheManager, and is named.
func TestAnAddressThatIsTakenEndsTheManager(t *testing.T) {
	first, m := newServer(t, Options{Address: ":0"})
	stop := start(t, first, m)
	_, m = newServer(t, Options{Address: first.Address()})
	require.ErrorContains(t, m.Run(t.Context()), first.Address())
	require.NoError(t, stop())
}

// pipes is a listener whose connections are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestAConnectionWithoutRequestsIsClosed: else whoever can connect could keep any number of them.
func TestAConnectionWithoutRequestsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newServer(t, Options{Address: ":0"})
		ctx, stop := context.WithCancel(t.Context())
		listener, done := make(pipes), make(chan error)
		go func() { done <- s.serve(ctx, m, listener) }()
		client, server := net.Pipe()
		listener <- server
		began := time.Now()
		_, err := io.WriteString(client, "GET /healthz HTTP/1.1\r\nHost: it\r\n\r\n")
		require.NoError(t, err)
		require.NoError(t, client.SetReadDeadline(began.Add(time.Hour)))
		answer, err := io.ReadAll(client)
		require.NoError(t, err)
		require.Contains(t, string(answer), "200 OK")
		require.Equal(t, 2*time.Minute, time.Since(began))
		stop()
		require.NoError(t, <-done)
	})
}

// An address that is "0" switches off what would be served.
func TestItCanBeSwitchedOff(t *testing.T) {
	s, m := newServer(t, Options{Address: "0", Metrics: http.NotFoundHandler()})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, m.Run(ctx))
	require.Empty(t, s.Address())
}
