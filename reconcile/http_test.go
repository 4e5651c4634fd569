package reconcile

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
)

// answer is what the endpoints of a Manager that has not been run answer.
func answer(t *testing.T, m *Manager, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.requests.join(m.endpoints).ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

type checks = map[string]func(*http.Request) error

func TestOwnChecksAndHandlersAreServed(t *testing.T) {
	var ill error
	text := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
	}
	elector := &checked{}
	m, err := NewManager(ManagerOptions{
		Beside:  map[string]func(context.Context) error{"a": func(context.Context) error { return nil }},
		Elector: elector, HTTPAddress: ":0",
		HealthChecks: checks{"disk": func(*http.Request) error { return ill },
			"fine": func(*http.Request) error { return nil }},
		ReadyChecks: checks{"peer": func(*http.Request) error { return ill },
			"panics": func(req *http.Request) error {
				if req.URL.RawQuery != "" {
					panic("secret")
				}
				return nil
			}},
		Handlers: map[string]http.Handler{"/debug/pprof/": text("profiles"), "POST /level": text("set"),
			"/panics": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") })},
	})
	require.NoError(t, err)
	m.ready.Store(nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		code, body := answer(t, m, "GET", path)
		require.Equal(t, 200, code)
		require.Equal(t, "ok\n", body)
	}
	ill, elector.err = errors.New("no space"), errors.New("work goes on")
	code, body := answer(t, m, "GET", "/healthz")
	require.Equal(t, 500, code)
	require.Equal(t, "the Elector's Check fails because of an error of type *errors.errorString (see the log)\n"+
		"disk: no space\n", body)
	code, body = answer(t, m, "GET", "/readyz")
	require.Equal(t, 503, code)
	require.Equal(t, "peer: no space\n", body)
	code, body = answer(t, m, "GET", "/readyz?panic")
	require.Equal(t, 500, code)
	require.Equal(t, "the handler panicked\n", body)

	code, body = answer(t, m, "GET", "/debug/pprof/heap")
	require.Equal(t, 200, code)
	require.Equal(t, "profiles", body)
	code, _ = answer(t, m, "GET", "/level")
	require.Equal(t, 405, code)
	code, _ = answer(t, m, "GET", "/metrics")
	require.Equal(t, 404, code)
	code, body = answer(t, m, "GET", "/panics")
	require.Equal(t, 500, code)
	require.Equal(t, "the handler panicked\n", body)
}

// checked is an Elector with a health check.
type checked struct {
	scripted
	err error
}

func (c *checked) Check(*http.Request) error { return c.err }

func TestMistakesAboutHTTPAreNamed(t *testing.T) {
	nothing := map[string]func(context.Context) error{"a": func(context.Context) error { return nil }}
	_, err := NewManager(ManagerOptions{
		Beside:       map[string]func(context.Context) error{"": nil},
		WhileLeading: map[string]func(context.Context) error{"b": nil},
		Handlers:     map[string]http.Handler{"/x": nil}, HealthChecks: checks{"c": nil}, ReadyChecks: checks{"d": nil},
		TLS: &tls.Config{}, AccessReviews: &rest.Config{},
	})
	for _, want := range []string{
		`ManagerOptions.Beside has an empty name`, `ManagerOptions.Beside[""] is nil`,
		`ManagerOptions.WhileLeading["b"] is nil`, `ManagerOptions.Handlers["/x"] is nil`,
		`ManagerOptions.HealthChecks["c"] is nil`, `ManagerOptions.ReadyChecks["d"] is nil`,
		`ManagerOptions.Handlers is set, but HTTPAddress is not`, `ManagerOptions.HealthChecks is set, but`,
		`ManagerOptions.ReadyChecks is set, but`, `ManagerOptions.TLS is set, but`,
		`ManagerOptions.AccessReviews is set, but`,
		`ManagerOptions.TLS has no certificate`,
	} {
		require.ErrorContains(t, err, want)
	}
	for want, opts := range map[string]ManagerOptions{
		`ManagerOptions.AccessReviews is set, but TLS is not`: {AccessReviews: &rest.Config{}},
		`ManagerOptions.AccessReviews: `: {AccessReviews: &rest.Config{Host: "::"},
			TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}},
		`ManagerOptions.Handlers["GET /healthz"]: `: {
			Handlers: map[string]http.Handler{"GET /healthz": http.NotFoundHandler()}},
		`ManagerOptions.Handlers["get it"]: `: {Handlers: map[string]http.Handler{"get it": http.NotFoundHandler()}},
	} {
		opts.Beside, opts.HTTPAddress = nothing, ":0"
		_, err := NewManager(opts)
		require.ErrorContains(t, err, want)
	}
}

// TestHandlersAreWaitedFor: the ctx of a request ends with the Manager, and a handler that does not mind is named.
func TestHandlersAreWaitedFor(t *testing.T) {
	for name, hangs := range map[string]bool{"it returns": false, "it hangs": true} {
		t.Run(name, func(t *testing.T) {
			began, release := make(chan struct{}), make(chan struct{})
			m, err := NewManager(ManagerOptions{
				Beside:      map[string]func(context.Context) error{"a": func(context.Context) error { return nil }},
				HTTPAddress: ":0", StopGrace: 50 * time.Millisecond,
				Handlers: map[string]http.Handler{"/slow": http.HandlerFunc(func(_ http.ResponseWriter,
					r *http.Request) {
					close(began)
					<-r.Context().Done()
					if hangs {
						<-release
					}
				})},
			})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- m.Run(ctx) }()
			require.Eventually(t, func() bool { return m.Address() != "" }, time.Minute, time.Millisecond)
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				if resp, err := http.Get("http://" + m.Address() + "/slow"); err == nil {
					resp.Body.Close()
				}
			}()
			<-began
			cancel()
			err = <-done
			close(release)
			<-asked
			if !hangs {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrStuck)
			require.ErrorContains(t, err, "handler of /slow had 50ms to end")
			code, _ := answer(t, m, "GET", "/slow")
			require.Equal(t, 503, code, "none begins any more")
		})
	}
}

// TestAServerThatEndsByItselfEndsTheManager: without health checks nobody would notice what else goes wrong.
func TestAServerThatEndsByItselfEndsTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := NewManager(ManagerOptions{
			Beside:      map[string]func(context.Context) error{"a": func(context.Context) error { return nil }},
			HTTPAddress: ":0",
		})
		require.NoError(t, err)
		listener, err := listen(":0")
		require.NoError(t, err)
		listener.Close()
		require.ErrorContains(t, m.serve(t.Context(), listener), "it is no longer served: ")
	})
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
		m, err := NewManager(ManagerOptions{
			Beside: map[string]func(context.Context) error{"a": func(context.Context) error { return nil }}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		listener, done := make(pipes), make(chan error)
		go func() { done <- m.serve(ctx, listener) }()
		client, server := net.Pipe()
		listener <- server
		began := time.Now()
		_, err = io.WriteString(client, "GET /healthz HTTP/1.1\r\nHost: it\r\n\r\n")
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

// TestChecksShowNoTextOfAnError: whoever can connect may read them, and the server's errors name users and objects.
func TestChecksShowNoTextOfAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.BeforeList = func(metav1.ListOptions) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("canary"))
		}
		inf, err := informer.New[*corev1.ConfigMap](api,
			informer.Options[*corev1.ConfigMap]{Name: "configmaps", DisableWatchList: true})
		require.NoError(t, err)
		m, err := NewManager(ManagerOptions{Informers: []Informer{inf}, ErrorTexts: true,
			Beside:  map[string]func(context.Context) error{"a": func(context.Context) error { return nil }},
			Elector: &ailing{err: apierrors.NewUnauthorized("canary")}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- inf.Run(ctx) }()
		time.Sleep(time.Minute)
		m.ready.Store(nil)
		m.progress.enter(StageCampaigning)
		_, body := answer(t, m, "GET", "/readyz")
		require.Equal(t, "informer configmaps: Denied because of 403 Forbidden\n"+
			"this process could not lead because of 401 Unauthorized\n", body)
		require.Equal(t, body, strings.Join(m.Inspect().NotReady, "\n")+"\n", "they say the same")
		_, body = answer(t, m, "GET", "/healthz")
		require.Equal(t, "the Elector's Check fails because of 401 Unauthorized\n", body)
		require.Equal(t, body, strings.Join(m.Inspect().NotHealthy, "\n")+"\n", "they say the same")
		stop()
		require.NoError(t, <-done)
	})
}

// ailing is an Elector that can neither lead nor live.
type ailing struct {
	scripted
	err error
}

func (a *ailing) Check(req *http.Request) error { _ = req.URL.Path; return a.err }
func (a *ailing) Ready() error                  { return a.err }

// An address that is "0" switches off what would be served.
func TestHTTPCanBeSwitchedOff(t *testing.T) {
	m, err := NewManager(ManagerOptions{HTTPAddress: "0", Metrics: http.NotFoundHandler(),
		Beside: map[string]func(context.Context) error{"nothing": func(context.Context) error { return nil }}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, m.Run(ctx))
	require.Empty(t, m.Address())
}
