package reconcile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Address is where health checks and metrics are served, with the port that was chosen if HTTPAddress left it open;
// empty before Run.
func (m *Manager) Address() string {
	if a := m.address.Load(); a != nil {
		return *a
	}
	return ""
}

type managerKey struct{}

// ManagerOf returns the Manager that serves a request by ManagerOptions.Handlers; ctx is that of the request. For
// another ctx it returns nil.
func ManagerOf(ctx context.Context) *Manager {
	m, _ := ctx.Value(managerKey{}).(*Manager)
	return m
}

// ReviewsAccess reports whether ManagerOptions.AccessReviews is set, so that a request which reaches one of Handlers
// has been allowed by the API server.
func (m *Manager) ReviewsAccess() bool { return m.opts.AccessReviews != nil }

// nowhere is the HTTPAddress of a program whose user has switched off what it would serve.
const nowhere = "0"

// startHTTP listens on HTTPAddress, if that is set, and adds the server to a group.
func (m *Manager) startHTTP(ctx context.Context, group *lifecycle.Group) error {
	if m.opts.HTTPAddress == "" || m.opts.HTTPAddress == nowhere {
		return nil
	}
	listener, err := listen(m.opts.HTTPAddress)
	if err != nil {
		return fmt.Errorf("ManagerOptions.HTTPAddress: %w", err)
	}
	address := listener.Addr().String()
	m.address.Store(&address)
	if m.opts.TLS != nil {
		config := m.opts.TLS.Clone()
		config.NextProtos = []string{"http/1.1"} // enough for probes and scrapers
		listener = tls.NewListener(listener, config)
	}
	group.Go("HTTP server", func() {
		if err := m.serve(ctx, listener); err != nil {
			m.failures.add(fmt.Errorf("ManagerOptions.HTTPAddress: %w", err))
		}
	})
	return nil
}

// serve answers requests until ctx ends, and waits for their handlers.
func (m *Manager) serve(ctx context.Context, listener net.Listener) error {
	log := klog.FromContext(ctx)
	server := &http.Server{
		Handler: m.requests.join(m.endpoints), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return context.WithValue(ctx, managerKey{}, m) },
		ErrorLog:    stdlog.New(logWriter{log}, "", 0),
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	err := server.Serve(listener)
	if ctx.Err() == nil {
		return fmt.Errorf("it is no longer served: %w", err)
	}
	return m.requests.close(m.opts.StopGrace)
}

// logWriter is the log of net/http: connections that are no HTTP or no TLS, as those of port scans and TCP probes.
type logWriter struct{ log klog.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.log.V(2).Info("A connection has failed", "why", strings.TrimSpace(string(line)))
	return len(line), nil
}

// requests are those that handlers are at work on.
type requests struct {
	group  lifecycle.Group
	mu     sync.Mutex
	closed bool // guarded by mu; no handler begins any more, so that the group can be waited for
}

// join returns a handler whose calls are waited for, and do not panic.
func (r *requests) join(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		leave := r.group.Join("handler of " + kube.Brief(req.URL.Path))
		r.mu.Unlock()
		defer leave()
		lifecycle.Guard(func() { next.ServeHTTP(w, req) }, func(p *lifecycle.PanicError) {
			if p.Value == http.ErrAbortHandler {
				panic(p.Value)
			}
			klog.FromContext(req.Context()).Error(p, "A handler panicked", "path", kube.Brief(req.URL.Path), "stack",
				string(p.Stack))
			http.Error(w, "the handler panicked", http.StatusInternalServerError)
		})
	})
}

// close waits for the handlers. Their contexts have ended.
func (r *requests) close(grace time.Duration) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return r.group.Wait(grace)
}

// newEndpoints returns the handler of all paths.
func (m *Manager) newEndpoints() (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, req *http.Request) {
		answerCheck(w, append(m.notHealthy(), runChecks(m.opts.HealthChecks, req)...), http.StatusInternalServerError)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) {
		answerCheck(w, append(m.notReady(), runChecks(m.opts.ReadyChecks, req)...), http.StatusServiceUnavailable)
	})
	protect := func(next http.Handler) http.Handler { return next }
	if m.opts.AccessReviews != nil {
		access, err := newAccessReviews(m.opts.AccessReviews)
		if err != nil {
			return nil, fmt.Errorf("ManagerOptions.AccessReviews: %w", err)
		}
		protect = access.protect
	}
	if m.opts.Metrics != nil {
		mux.Handle("GET /metrics", protect(m.opts.Metrics))
	}
	for _, pattern := range slices.Sorted(maps.Keys(m.opts.Handlers)) {
		if err := register(mux, pattern, protect(m.opts.Handlers[pattern])); err != nil {
			return nil, fmt.Errorf("ManagerOptions.Handlers[%q]: %w", pattern, err)
		}
	}
	return mux, nil
}

// register adds a handler to a mux, which panics if it cannot read the pattern, or if the pattern conflicts with
// another one.
func register(mux *http.ServeMux, pattern string, handler http.Handler) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	mux.Handle(pattern, handler)
	return nil
}

// answerCheck answers with what fails, one line each, or with ok.
func answerCheck(w http.ResponseWriter, failing []string, code int) {
	if len(failing) > 0 {
		http.Error(w, strings.Join(failing, "\n"), code)
		return
	}
	fmt.Fprintln(w, "ok")
}

// notHealthy returns why this process has to be restarted, if it has to. Like notReady it has no text of an error that
// a server has sent: everybody may read it.
func (m *Manager) notHealthy() (failing []string) {
	for _, c := range m.opts.Controllers {
		if err := c.alive(); err != nil {
			failing = append(failing, err.Error())
		}
	}
	if e, ok := m.opts.Elector.(interface{ Check(*http.Request) error }); ok {
		if err := e.Check(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/healthz"}}); err != nil {
			failing = append(failing, "the Elector's Check fails"+because(recordError(err, false)))
		}
	}
	return failing
}

// notReady returns why this process is not ready, if it is not: a first list is missing, a cache does not follow its
// server, or the Elector reports that this process could not lead.
func (m *Manager) notReady() (failing []string) {
	if missing := m.ready.Load(); missing != nil {
		return []string{*missing}
	}
	for _, inf := range m.informers {
		if h := inf.Health(); h.State != informer.Live {
			failing = append(failing, fmt.Sprintf("informer %s: %s", inf.Name(), h.State)+because(reasonOf(h, false)))
		}
	}
	if e, ok := m.opts.Elector.(interface{ Ready() error }); ok {
		if err := e.Ready(); err != nil {
			failing = append(failing, "this process could not lead"+because(recordError(err, false)))
		}
	}
	return failing
}

// runChecks returns what the user's checks say, by name.
func runChecks(checks map[string]func(*http.Request) error, req *http.Request) (failing []string) {
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if err := checks[name](req); err != nil {
			failing = append(failing, name+": "+err.Error())
		}
	}
	return failing
}

// httpMistakes returns what is wrong with the options about HTTP.
func (opts ManagerOptions) httpMistakes() error {
	var errs []error
	mistake := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("ManagerOptions."+format, args...))
	}
	if err := checkAddress(opts.HTTPAddress); err != nil {
		mistake("HTTPAddress is %q; it is host:port, such as \":8080\" for port 8080 of the loopback address: %w",
			opts.HTTPAddress, err)
	}
	if opts.HTTPAddress == "" {
		for _, field := range []struct {
			name string
			set  bool
		}{{"Metrics", opts.Metrics != nil}, {"Handlers", len(opts.Handlers) > 0},
			{"HealthChecks", len(opts.HealthChecks) > 0}, {"ReadyChecks", len(opts.ReadyChecks) > 0},
			{"TLS", opts.TLS != nil}, {"AccessReviews", opts.AccessReviews != nil}} {
			if field.set {
				mistake("%s is set, but HTTPAddress is not", field.name)
			}
		}
	}
	if c := opts.TLS; c != nil && len(c.Certificates) == 0 && c.GetCertificate == nil && c.GetConfigForClient == nil {
		mistake("TLS has no certificate: set Certificates or GetCertificate, or call TLSFromFiles")
	}
	if opts.AccessReviews != nil && opts.TLS == nil {
		mistake("AccessReviews is set, but TLS is not: clients would send their tokens in plain text")
	}
	return errors.Join(append(errs, checkNamed("ManagerOptions.Handlers", opts.Handlers),
		checkNamed("ManagerOptions.HealthChecks", opts.HealthChecks),
		checkNamed("ManagerOptions.ReadyChecks", opts.ReadyChecks))...)
}

// checkAddress finds the mistakes in an address that can be seen without listening on it.
func checkAddress(address string) error {
	if address == "" || address == nowhere {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err
}

// listen listens on the loopback interface if the address has no host: a wider audience must be asked for.
func listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "localhost"
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}
