package plan

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/world"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// Options may be left zero.
type Options struct {
	// Context is what the report calls the cluster beside its address, such as the name of the context of a kubeconfig.
	Context string
	// Rules compiles the rules in CEL of custom resources, as reconciletest.Options.Rules does. Nil: they are not
	// checked, and the report says so.
	Rules reconciletest.RuleCompiler
	// World is what goes on beside the program. Zero: nothing.
	World World
	// Admission sends each write of the program to the cluster as a dry run, too: its defaults, its validation, its
	// webhooks, policies and quotas are then those of the cluster. The configuration needs the rights of [AdmitRole].
	Admission bool
	// Account is the service account that the program will run as in the cluster, as NAMESPACE/NAME. The fork then
	// refuses what the roles of the cluster do not grant it. Empty: the program may do everything on the fork.
	Account string
}

// Server is a fork of a cluster. Make one with [Fork].
type Server struct {
	server   *reconciletest.Server
	link     *reconciletest.Link
	setup    Setup
	recorder *recorder
	tracer   *tracer
	world    *world.World // nil: it stands still
	config   *rest.Config
	listener net.Listener
	dir      string // with the kubeconfig
	http     http.Server
	group    lifecycle.Group
	ctx      context.Context // of what goes on beside requests
	cancel   context.CancelFunc

	mu     sync.Mutex
	closed bool // guarded by mu: nothing joins the group any more
}

// loopback is where the fork is served.
const loopback = "127.0.0.1"

// stopGrace is how long Close waits for what the fork has started.
const stopGrace = 10 * time.Second

// Fork makes a fork of the cluster that cfg leads to, and serves it on a free port of the loopback interface, to those
// who know a token. The fork ends with [Server.Close], which the caller has to call, and with ctx.
//
// Nothing is read before a client of the fork asks for it.
func Fork(ctx context.Context, cfg *rest.Config, o Options) (*Server, error) {
	s := &Server{recorder: newRecorder()}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if err := s.start(cfg, o); err != nil {
		return nil, errors.Join(fmt.Errorf("plan: %w", err), s.Close())
	}
	context.AfterFunc(s.ctx, s.server.Close)
	return s, nil
}

// start makes the server and what it consists of. What it has made when it fails is for Close.
func (s *Server) start(cfg *rest.Config, o Options) (err error) {
	b, err := newBase(s.ctx, cfg, s.recorder)
	if err != nil {
		return err
	}
	b.admits, s.setup = o.Admission, setupOf(b.root, o)
	if s.dir, err = os.MkdirTemp("", "plan-"); err != nil {
		return err
	}
	options := reconciletest.Options{Base: b, Rules: o.Rules, Seed: seedOf(b.root.Host),
		CollectAfter: 50 * time.Millisecond}
	user := ""
	if o.Account != "" {
		if user, err = userOf(o.Account); err != nil {
			return err
		}
		options.Roles = []string{filepath.Join(s.dir, "roles.yaml")}
		if err := b.writeRoles(s.ctx, options.Roles[0]); err != nil {
			return err
		}
	}
	if s.server, err = reconciletest.Start(options); err != nil {
		return err
	}
	s.tracer = newTracer(b, s.server.Link().Config())
	if o.World == Healthy {
		if s.world, err = newWorld(s.server.Link().Config(), s.recorder); err != nil {
			return err
		}
	}
	s.recorder.told, s.recorder.judged = s.told, user != ""
	s.link = s.server.LinkAs(user)
	free, err := newFreer(s.server.Link().Config())
	if err != nil {
		return err
	}
	s.link.Inject(func(req reconciletest.Request) reconciletest.Fault {
		observe := s.recorder.observe(req)
		return func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
			return observe(ctx, func() (*http.Response, error) {
				if err := free.asked(ctx, req); err != nil {
					return nil, err
				}
				return serve()
			})
		}
	})
	return s.listen()
}

// seedOf chooses the values that a fork draws: the same for each fork of a cluster, so that its reports can be
// compared, and others than those of the cluster itself, which may be a fork as well.
func seedOf(host string) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(host)) // it never fails
	return hash.Sum64()
}

// told lets follow what a change leads to: the channel is closed when it has. Nil: nothing follows.
func (s *Server) told(verb string, w reconciletest.BaseWrite) <-chan struct{} {
	if w.By == worldManager {
		return nil
	}
	items := s.affected(w)
	follow := func() { s.carryOut(w, items) }
	switch {
	case verb == "delete":
		follow = func() {
			s.tracer.follow(s.ctx, w)
			s.carryOut(w, items)
		}
	case len(items) == 0:
		return nil
	}
	leave, ok := s.join("follower")
	if !ok {
		return nil
	}
	done := make(chan struct{})
	s.recorder.begin(true)
	s.group.Go("follower", func() {
		defer leave()
		defer close(done)
		defer s.recorder.followed()
		follow()
	})
	return done
}

// carryOut lets a healthy world do what a write asks for.
func (s *Server) carryOut(w reconciletest.BaseWrite, items []world.Item) {
	if len(items) == 0 {
		return
	}
	s.recorder.Approximate(w.Request, "what is written counts as carried out at once, as in a healthy cluster")
	if err := s.world.CarryOut(s.ctx, items); err != nil && s.ctx.Err() == nil {
		s.recorder.Approximate(w.Request, fmt.Sprintf("it could not be carried out: %v", err))
	}
}

// join makes the caller one that Close waits for, until leave is called, unless Close has begun.
func (s *Server) join(name string) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	return s.group.Join(name), true
}

// listen serves the fork, and writes the kubeconfig.
func (s *Server) listen() error {
	certificate, ca, err := newCertificate()
	if err != nil {
		return err
	}
	if s.listener, err = net.Listen("tcp", loopback+":0"); err != nil {
		return err
	}
	token := rand.Text()
	s.config = &rest.Config{Host: "https://" + s.address().String(), BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	s.http.Handler = s.guarded(s.link.Handler(), token)
	s.http.ReadHeaderTimeout = time.Minute
	s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
	// Such as of a client that ends in the middle of a handshake.
	s.http.ErrorLog = log.New(io.Discard, "", 0)
	s.group.Go("HTTPS", func() { _ = s.http.ServeTLS(s.listener, "", "") }) // which says only that it was closed
	return os.WriteFile(s.Kubeconfig(), kubeconfig(s.config), 0o600)
}

func (s *Server) address() *net.TCPAddr { return s.listener.Addr().(*net.TCPAddr) }

// guarded lets those pass who know the token: everything that the cluster lets the plan read can be read through the
// fork, and every process of the machine can reach the port.
func (s *Server) guarded(h http.Handler, token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		leave, ok := s.join("request")
		if !ok {
			panic(http.ErrAbortHandler)
		}
		defer leave()
		given, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintln(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401,`+
				`"message":"the fork of the cluster needs the token of its kubeconfig"}`)
			return
		}
		h.ServeHTTP(w, req)
	})
}

// kubeconfig returns a file that names the fork, as JSON, which is YAML.
func kubeconfig(cfg *rest.Config) []byte {
	type named map[string]any
	data, err := json.MarshalIndent(named{
		"apiVersion": "v1", "kind": "Config", "current-context": "fork",
		"clusters": []named{{"name": "fork", "cluster": named{"server": cfg.Host,
			"certificate-authority-data": cfg.CAData}}},
		"users":    []named{{"name": "fork", "user": named{"token": cfg.BearerToken}}},
		"contexts": []named{{"name": "fork", "context": named{"cluster": "fork", "user": "fork"}}},
	}, "", "  ")
	if err != nil {
		panic(err) // it holds nothing but strings
	}
	return data
}

// Config returns a configuration for clients of the fork.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// Kubeconfig returns the path of a file that leads programs in any language to the fork. Its folder, which nothing else
// is in, goes with the fork.
func (s *Server) Kubeconfig() string { return filepath.Join(s.dir, "config") }

// ErrNoRequest says that a program has sent no request to the fork: it may have gone to the cluster itself.
var ErrNoRequest = errors.New("plan: the program has sent no request to the fork")

// Settle waits until the program has done nothing new for the time quiet: it has changed nothing, and read nothing that
// it had not read before. It returns what the program has done until then. If ctx ends earlier, it returns the report
// of that moment, with Settled false.
//
// A program that waits longer than quiet before it goes on, such as for a timer of its own, is taken to be done.
func (s *Server) Settle(ctx context.Context, quiet time.Duration) (*Report, error) {
	for {
		is, requests := s.recorder.settled()
		done := is >= quiet && requests > 0
		if !done && !s.recorder.isEndless() && lifecycle.Sleep(ctx, max(quiet-is, quiet/10)) {
			continue
		}
		if _, requests := s.recorder.settled(); requests == 0 {
			return nil, ErrNoRequest
		}
		report, err := s.Report()
		if err == nil {
			report.Settled, report.Setup.Quiet.Duration = done, quiet
		}
		return report, err
	}
}

// Report returns what the program has done so far.
func (s *Server) Report() (*Report, error) {
	report, err := s.recorder.report()
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	report.Made, report.Setup = time.Now(), s.setup
	report.ElsewhereUnknown = "the fork does not know whose requests it serves"
	return report, nil
}

// Close ends the fork, and removes its kubeconfig.
func (s *Server) Close() error {
	s.cancel()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.server != nil {
		s.server.Close() // which ends the watches, so that no handler goes on
	}
	err := errors.Join(s.http.Close(), s.group.Wait(stopGrace))
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
