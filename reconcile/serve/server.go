package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile"
)

// Options configures a [Server]. Only Address has to be set.
type Options struct {
	// Address is the host:port to listen on. Without a host it is the loopback address, so that a wider audience has to
	// be asked for; a kubelet that probes needs 0.0.0.0:port or [::]:port. "0": nothing is served, so that a flag can
	// switch it off; the rest is checked all the same.
	Address string
	// HealthChecks and ReadyChecks are checks of yours, by name. While one returns an error, /healthz or /readyz
	// answers with its text and 500 or 503. Those of the Manager are made as well: /healthz fails when more calls of
	// Reconcile hang than there are workers, or if the Elector's Check fails; /readyz while a first list is missing, a
	// cache does not follow its server, or the Elector could not lead. Checks are called at each request, several at
	// once.
	HealthChecks, ReadyChecks map[string]func(*http.Request) error
	// Metrics answers GET /metrics. Nil: it does not exist.
	Metrics http.Handler
	// Handlers are served as well, by patterns of [http.ServeMux], such as "/debug/pprof/". The ctx of a request ends
	// when the Manager stops; then a handler has StopGrace to return.
	Handlers map[string]http.Handler
	// StopGrace is how long handlers have to return once the Manager stops. Zero: 10 s.
	StopGrace time.Duration
	// TLS serves all of this over HTTPS; probes say scheme: HTTPS then. [TLSFromFiles] makes one of the files of a
	// certificate. Nil: plain HTTP.
	TLS *tls.Config
	// AccessReviews is the API server that decides who may read /metrics and Handlers. A request has to bring a bearer
	// token, the API server has to know its user (TokenReview), and to allow that user the verb, get for a GET, on the
	// path (SubjectAccessReview of a nonResourceURL). The answer is 401, 403, or 503 if the API server cannot be asked.
	// Answers are remembered for a minute if they are yes, and else for 10 s. Of each client's address one request is
	// reviewed at a time, and four in all. It needs TLS, because of the tokens.
	// /healthz and /readyz are open to all. Nil: whoever can connect may read everything.
	AccessReviews *rest.Config
}

// Server answers requests about one Manager. Make one with [New].
type Server struct {
	// Never changed after New.
	opts      Options
	endpoints http.Handler

	// Any goroutine may use these.
	requests requests // that the endpoints are at work on
	started  atomic.Bool
	address  atomic.Pointer[string]
}

// New makes a Server. Its error joins every mistake in opts.
func New(opts Options) (*Server, error) {
	if err := opts.mistakes(); err != nil {
		return nil, fmt.Errorf("serve.New: %w", err)
	}
	opts.StopGrace = cmp.Or(opts.StopGrace, 10*time.Second)
	s := &Server{opts: opts}
	var err error
	if s.endpoints, err = s.newEndpoints(); err != nil {
		return nil, fmt.Errorf("serve.New: %w", err)
	}
	return s, nil
}

// Address is the address that is listened on, with the port that was chosen if Options.Address left it open; empty
// before Run, and if nothing is served.
func (s *Server) Address() string {
	if a := s.address.Load(); a != nil {
		return *a
	}
	return ""
}

// asked is what the ctx of a request says: whose Server answers it, and for which Manager.
type asked struct {
	server  *Server
	manager *reconcile.Manager
}

type askedKey struct{}

// ManagerOf returns the Manager about which a Server answers a request; ctx is that of the request. For another ctx it
// returns nil.
func ManagerOf(ctx context.Context) *reconcile.Manager {
	a, _ := ctx.Value(askedKey{}).(asked)
	return a.manager
}

// Reviewed reports whether the API server has allowed a request that has reached one of Options.Handlers, because
// Options.AccessReviews is set; ctx is that of the request.
func Reviewed(ctx context.Context) bool {
	a, _ := ctx.Value(askedKey{}).(asked)
	return a.server != nil && a.server.opts.AccessReviews != nil
}

// nowhere is the Address of a program whose user has switched off what it would serve.
const nowhere = "0"

// Run answers requests about a Manager until ctx ends, and waits for the handlers. It is made for
// ManagerOptions.Serve. It returns nil if everything has ended; an error if the address cannot be had, or is no longer
// served; one that wraps [reconcile.ErrStuck] and names the handlers that have not returned; and one that wraps
// [reconcile.ErrStarted] if it is called again.
func (s *Server) Run(ctx context.Context, m *reconcile.Manager) error {
	if s.started.Swap(true) {
		return fmt.Errorf("the server runs already: %w", reconcile.ErrStarted)
	}
	if s.opts.Address == nowhere {
		return nil
	}
	listener, err := listen(s.opts.Address)
	if err != nil {
		return fmt.Errorf("serve.Options.Address: %w", err)
	}
	address := listener.Addr().String()
	s.address.Store(&address)
	if s.opts.TLS != nil {
		config := s.opts.TLS.Clone()
		config.NextProtos = []string{"http/1.1"} // enough for probes and scrapers
		listener = tls.NewListener(listener, config)
	}
	return s.serve(ctx, m, listener)
}

// serve answers the requests of a listener, which it closes.
func (s *Server) serve(ctx context.Context, m *reconcile.Manager, listener net.Listener) error {
	server := &http.Server{
		Handler: s.requests.join(s.endpoints), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return context.WithValue(ctx, askedKey{}, asked{s, m}) },
		ErrorLog:    stdlog.New(logWriter{klog.FromContext(ctx)}, "", 0),
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	err := server.Serve(listener)
	if ctx.Err() == nil {
		return fmt.Errorf("serve.Options.Address: it is no longer served: %w", err)
	}
	return s.requests.close(s.opts.StopGrace)
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
func (s *Server) newEndpoints() (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, req *http.Request) {
		failing := ManagerOf(req.Context()).Inspect().NotHealthy
		answerCheck(w, append(failing, runChecks(s.opts.HealthChecks, req)...), http.StatusInternalServerError)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) {
		failing := ManagerOf(req.Context()).Inspect().NotReady
		answerCheck(w, append(failing, runChecks(s.opts.ReadyChecks, req)...), http.StatusServiceUnavailable)
	})
	protect := func(next http.Handler) http.Handler { return next }
	if s.opts.AccessReviews != nil {
		access, err := newAccessReviews(s.opts.AccessReviews)
		if err != nil {
			return nil, fmt.Errorf("Options.AccessReviews: %w", err)
		}
		protect = access.protect
	}
	if s.opts.Metrics != nil {
		mux.Handle("GET /metrics", protect(s.opts.Metrics))
	}
	for _, pattern := range slices.Sorted(maps.Keys(s.opts.Handlers)) {
		if err := register(mux, pattern, protect(s.opts.Handlers[pattern])); err != nil {
			return nil, fmt.Errorf("Options.Handlers[%q]: %w", pattern, err)
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

// runChecks returns what the user's checks say, by name.
func runChecks(checks map[string]func(*http.Request) error, req *http.Request) (failing []string) {
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if err := checks[name](req); err != nil {
			failing = append(failing, name+": "+err.Error())
		}
	}
	return failing
}

// mistakes returns what is wrong with the options.
func (opts Options) mistakes() error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf("Options."+format, args...)) }
	if err := checkAddress(opts.Address); err != nil {
		mistake("Address is %q; it is host:port, such as \":8080\" for port 8080 of the loopback address: %w",
			opts.Address, err)
	}
	if opts.StopGrace < 0 {
		mistake("StopGrace is %s; it is a duration, or zero for 10 s", opts.StopGrace)
	}
	if c := opts.TLS; c != nil && len(c.Certificates) == 0 && c.GetCertificate == nil && c.GetConfigForClient == nil {
		mistake("TLS has no certificate: set Certificates or GetCertificate, or call TLSFromFiles")
	}
	if opts.AccessReviews != nil && opts.TLS == nil {
		mistake("AccessReviews is set, but TLS is not: clients would send their tokens in plain text")
	}
	return errors.Join(append(errs, kube.CheckNamed("Options.Handlers", opts.Handlers),
		kube.CheckNamed("Options.HealthChecks", opts.HealthChecks),
		kube.CheckNamed("Options.ReadyChecks", opts.ReadyChecks))...)
}

// checkAddress finds the mistakes in an address that can be seen without listening on it.
func checkAddress(address string) error {
	if address == nowhere {
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
