package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	stdlog "log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/network"
)

// Options configures a [Server]. Handlers has to be set, and one of Certificates and TLS.
type Options struct {
	// Address is the host:port to listen on. Empty: ":9443".
	Address string
	// Handlers are the webhooks by their paths, such as "/validate". GET /readyz is answered beside them, see
	// [Server.Callable].
	Handlers map[string]*Handler
	// Certificates lets the program make its own certificates.
	Certificates *Certificates
	// TLS has certificates that something else renews: serve.TLSFromFiles makes one of the files of a mounted Secret,
	// such as cert-manager's.
	TLS *tls.Config
	// StopGrace is how long calls have to end once the context of Run has. Zero: 10 s. In the first 2 s of it, or the
	// first half, calls are answered as before, so that API servers can leave connections that they keep alive.
	StopGrace time.Duration
	// Metrics is told of each call. Nil: nothing is.
	Metrics Recorder
	// Listen takes the place of net.Listen, for tests. Nil: net.Listen on Address.
	Listen func(ctx context.Context) (net.Listener, error)
}

// Recorder is told how each call of a webhook went; metrics.Collector is one. outcome is allowed, denied, converted or
// failed.
type Recorder interface {
	Webhook(path, outcome string, took time.Duration)
}

// Server answers the calls of API servers. Make one with [New].
type Server struct {
	// Never changed after New.
	opts   Options
	tls    *tls.Config
	keeper *keeper // nil without Options.Certificates

	// Any goroutine may use these.
	started   atomic.Bool
	listening atomic.Bool
	leaving   atomic.Bool  // connections are closed after their next answer
	bodies    atomic.Int64 // bytes of the calls that are answered now
	address   atomic.Pointer[string]
	log       lifecycle.LogLimit
}

// New makes a Server. It sends no request. Its error joins every mistake in opts and in the calls that made its
// handlers.
func New(opts Options) (*Server, error) {
	if err := opts.mistakes(); err != nil {
		return nil, fmt.Errorf("webhook.New: %w", err)
	}
	opts.Address = cmp.Or(opts.Address, ":9443")
	opts.StopGrace = cmp.Or(opts.StopGrace, 10*time.Second)
	s := &Server{opts: opts}
	if opts.TLS != nil {
		s.tls = opts.TLS.Clone()
		return s, nil
	}
	var err error
	if s.keeper, err = newKeeper(*opts.Certificates); err != nil {
		return nil, fmt.Errorf("webhook.New: Options.Certificates: %w", err)
	}
	s.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.keeper.certificate}
	return s, nil
}

// mistakes returns what is wrong with the options.
func (opts Options) mistakes() error {
	var errs []error
	if len(opts.Handlers) == 0 {
		errs = append(errs, errors.New("Options.Handlers is empty"))
	}
	for _, path := range slices.Sorted(maps.Keys(opts.Handlers)) {
		switch h := opts.Handlers[path]; {
		case !strings.HasPrefix(path, "/"):
			errs = append(errs, fmt.Errorf("Options.Handlers[%q]: a path begins with a slash", path))
		case path == readyPath:
			errs = append(errs, fmt.Errorf("Options.Handlers[%q]: the path is for probes", path))
		case h == nil || h.answer == nil:
			errs = append(errs, fmt.Errorf("Options.Handlers[%q] is none that Default, Validate or Conversions made",
				path))
		case h.mistakes != nil:
			errs = append(errs, fmt.Errorf("Options.Handlers[%q]: %w", path, h.mistakes))
		}
	}
	switch {
	case opts.Certificates == nil && opts.TLS == nil:
		errs = append(errs, errors.New("Options.Certificates and Options.TLS are nil: API servers call over TLS only"))
	case opts.Certificates != nil && opts.TLS != nil:
		errs = append(errs, errors.New("Options.Certificates and Options.TLS are both set"))
	case opts.Certificates != nil:
		errs = append(errs, opts.Certificates.mistakes())
	}
	if opts.StopGrace < 0 {
		errs = append(errs, fmt.Errorf("Options.StopGrace is %s; it is a duration, or zero for 10 s", opts.StopGrace))
	}
	return errors.Join(errs...)
}

// Address is the address that is listened on; empty before.
func (s *Server) Address() string {
	if a := s.address.Load(); a != nil {
		return *a
	}
	return ""
}

// readyPath is what probes ask for.
const readyPath = "/readyz"

// Callable returns an error while an API server that is led here would not be answered: nothing is listened on, there
// is no certificate or it has ended, or the configurations have not had its CA yet. A caBundle that is removed later is
// written again, and changes nothing here. GET /readyz answers 200 or 503 on the address of the webhooks, and the log
// says why. It is made for the readinessProbe of a pod, with scheme: HTTPS: a Service leads to pods that are ready.
func (s *Server) Callable() error {
	if s.keeper != nil {
		if err := s.keeper.callable(); err != nil {
			return err
		}
	}
	if !s.listening.Load() {
		return errors.New("webhooks are not served yet")
	}
	if s.tls.GetCertificate == nil {
		return nil
	}
	cert, err := s.tls.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err == nil && time.Now().After(leaf.NotAfter) {
		err = fmt.Errorf("the certificate ended at %s", leaf.NotAfter.Format(time.RFC3339))
	}
	return err
}

// Ready returns what Callable does, and with Certificates also an error until something has answered with a certificate
// of the program's CA where each configuration leads to, which is a Service as a rule. It is made for
// serve.Options.ReadyChecks. It cannot be the readinessProbe of the only pod of that Service, which is led to when it
// is ready.
func (s *Server) Ready(*http.Request) error {
	if err := s.Callable(); err != nil {
		return err
	}
	if s.keeper == nil {
		return nil
	}
	return s.keeper.reachable()
}

// Run serves until ctx ends and for 2 s more, and then waits for the calls that are under way. It is made for
// reconcile.ManagerOptions.Throughout, with a StopGrace of the Manager that is longer than a second. With Certificates
// it listens when there is a certificate. It returns nil if everything has ended, an error if the address cannot be had
// or is no longer served, and one that wraps reconcile.ErrStuck if calls did not end in time. A Server runs once.
func (s *Server) Run(ctx context.Context) error {
	if s.started.Swap(true) {
		return errors.New("webhook: the server has been started before")
	}
	var group lifecycle.Group
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	if s.keeper != nil {
		first := make(chan struct{})
		group.Go("certificates of webhooks", func() { s.keeper.run(keeping, first) })
		select {
		case <-first:
		case <-ctx.Done():
			return group.Wait(s.opts.StopGrace)
		}
	}
	err := s.listen(ctx)
	stop()
	return errors.Join(err, group.Wait(s.opts.StopGrace))
}

// listen serves until ctx ends.
func (s *Server) listen(ctx context.Context) error {
	listen := s.opts.Listen
	if listen == nil {
		listen = func(ctx context.Context) (net.Listener, error) { return network.Listen(ctx, s.opts.Address) }
	}
	listener, err := listen(ctx)
	if err != nil {
		return fmt.Errorf("webhook.Options.Address: %w", err)
	}
	address := listener.Addr().String()
	s.address.Store(&address)
	s.listening.Store(true)
	defer s.listening.Store(false)
	// Calls may end in their own time when ctx ends: the API server waits for their answers.
	under, abandon := context.WithCancel(network.Answer(context.WithoutCancel(ctx)))
	defer abandon()
	server := &http.Server{
		Handler: s.mux(), TLSConfig: s.tls, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: longest,
		WriteTimeout: 2 * longest, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return under },
		ErrorLog:    stdlog.New(logWriter{klog.FromContext(ctx)}, "", 0),
	}
	var group lifecycle.Group
	ended := make(chan error, 1)
	group.Go("webhooks", func() { ended <- server.ServeTLS(listener, "", "") })
	select {
	case err := <-ended:
		return fmt.Errorf("webhook.Options.Address: it is no longer served: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.StopGrace)
	defer cancel()
	s.leaving.Store(true)
	lifecycle.Sleep(grace, min(farewell, s.opts.StopGrace/2))
	if server.Shutdown(grace) != nil {
		abandon()
		server.Close()
		return fmt.Errorf("webhook: calls have not ended within %s: %w", s.opts.StopGrace, lifecycle.ErrStuck)
	}
	return group.Wait(s.opts.StopGrace)
}

// farewell is for how long a server that is told to end answers as before, and asks for each connection of HTTP/1.1 to
// be closed after its answer. Shutdown would close idle ones at once, and an API server that has just sent a call on
// one does not send it again.
const farewell = 2 * time.Second

// mux leads to the handlers, and tells the Recorder.
func (s *Server) mux() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ProtoMajor == 1 { // HTTP/2 says which calls are to be sent again
			w = parting{w, &s.leaving}
		}
		if req.URL.Path == readyPath {
			s.probed(w, req)
			return
		}
		h, ok := s.opts.Handlers[req.URL.Path]
		if !ok {
			http.NotFound(w, req)
			return
		}
		body := &counted{ReadCloser: req.Body, all: &s.bodies}
		defer body.forget()
		req.Body = body
		began := time.Now()
		outcome := h.serve(w, req)
		if s.opts.Metrics != nil {
			s.opts.Metrics.Webhook(req.URL.Path, outcome, time.Since(began))
		}
	})
}

// parting answers calls of HTTP/1.1. A connection is not used any more after an answer that is given while the server
// leaves.
type parting struct {
	http.ResponseWriter
	leaving *atomic.Bool
}

func (p parting) WriteHeader(code int) {
	if p.leaving.Load() {
		p.Header().Set("Connection", "close")
	}
	p.ResponseWriter.WriteHeader(code)
}

func (p parting) Write(data []byte) (int, error) {
	if p.leaving.Load() { // without effect if the header is written
		p.Header().Set("Connection", "close")
	}
	return p.ResponseWriter.Write(data)
}

// probed answers a probe. The cause is for the log: anybody may ask.
func (s *Server) probed(w http.ResponseWriter, req *http.Request) {
	err := s.Callable()
	if err == nil {
		return
	}
	if dropped, ok := s.log.Allow(1); ok {
		klog.FromContext(req.Context()).Info("The webhooks are not ready", "why", err, "notLogged", dropped)
	}
	http.Error(w, "not ready", http.StatusServiceUnavailable)
}

// logWriter is the log of net/http: connections that are no TLS, and handshakes that failed.
type logWriter struct{ log klog.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.log.V(2).Info("A connection has failed", "why", strings.TrimSpace(string(line)))
	return len(line), nil
}
