package reconciletest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// API is an HTTP API of somebody else, such as a cloud or a DNS server, for [Scenario.Outside].
type API interface {
	http.Handler
	// State returns what the API holds, such as the records of a zone: a value that can be written as JSON. It leaves
	// out what may differ between two runs that end alike, such as identifiers that the API draws. Check calls it when
	// no request is served, and compares it as it compares objects: each entry of a map, or else the whole; a list
	// element by element, so one in the order of creation is to be sorted. Entries that are no maps are alike to Check:
	// if one of them differs by the time, as a serial number does, none is compared, unless State leaves that one out.
	State() any
}

// exit is where [http.DefaultTransport], and klog.OsExit, lead while a check runs: the requests of programs to the APIs
// of their run, and all others where they have always gone. It knows by the ctx of a request which process makes it, or
// else by the labels of its goroutine.
type exit struct {
	before http.RoundTripper // what the transport was

	mu      sync.Mutex
	bubbles map[string]*gates // guarded by mu: of the runs, by their bubbles
}

// openExit replaces http.DefaultTransport and klog.OsExit until the test is over. The transport stays an
// [http.Transport], since programs clone it.
func openExit(t *testing.T) *exit {
	e := &exit{before: http.DefaultTransport, bubbles: make(map[string]*gates)}
	replaced := &http.Transport{DialContext: e.dialer((&net.Dialer{}).DialContext),
		DialTLSContext: e.dialer((&tls.Dialer{}).DialContext), DisableKeepAlives: true}
	replaced.RegisterProtocol("http", e)
	replaced.RegisterProtocol("https", e)
	http.DefaultTransport = replaced
	exits := klog.OsExit
	klog.OsExit = func(code int) { e.end(code, exits) }
	t.Cleanup(func() { http.DefaultTransport, klog.OsExit = e.before, exits })
	showLabels(t)
	return e
}

// end ends the process of the calling goroutine, in place of the test's. Who belongs to no process ends the test.
func (e *exit) end(code int, otherwise func(code int)) {
	gs, p, err := e.callerOf(context.Background())
	switch {
	case p != nil:
		p.exit(code)
	case gs == nil || err == nil:
		otherwise(code)
	default:
		_ = gs.unserved("an end of the process by klog", err) // it is a finding
	}
	runtime.Goexit()
}

// isFake reports whether a test has put a transport of its own in the place of the default one, before Check.
func (e *exit) isFake() bool {
	_, real := e.before.(*http.Transport)
	return !real
}

// enter tells that a run begins in the bubble of the caller, and returns what tells that it is over.
func (e *exit) enter(gs *gates, w *watchman) (leave func()) {
	goroutine, bubble, _ := whereAmI()
	gs.driver, gs.turns = goroutine, &w.turns
	pprof.SetGoroutineLabels(directly) // also of what steps start; processes get labels of their own
	w.bubble.Store(&bubble)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bubbles[bubble] = gs
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.bubbles, bubble)
	}
}

// RoundTrip makes the request wait for its turn, and lets the API serve it on the goroutine of the caller.
func (e *exit) RoundTrip(req *http.Request) (*http.Response, error) {
	gs, p, err := e.callerOf(req.Context())
	switch {
	case gs == nil:
		return e.before.RoundTrip(req)
	case err != nil:
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, gs.unserved(req.Method+" "+req.URL.Redacted(), err)
	}
	api, known := gs.apiOf(req.URL.Host)
	if req.Body != nil && (known || p != nil) { // who answers in place of the transport closes it
		defer req.Body.Close()
	}
	serve := func() (*http.Response, error) {
		if p != nil && !p.link.open() {
			return nil, errRefused
		}
		return serveAPI(api, req)
	}
	switch {
	case !known && (p == nil || e.isFake()):
		return e.before.RoundTrip(req)
	case !known:
		return nil, gs.unserved(req.Method+" "+req.URL.Redacted(), errNoAPI)
	case p == nil:
		return serve()
	case !p.link.open():
		return nil, errRefused
	}
	url := *req.URL
	url.RawQuery, url.User = "", nil
	g := newGate(Request{Verb: req.Method, Path: url.String()}, contentOf(req)^hashOf(req.URL.RawQuery), p)
	g.host, g.api = url.Host, api
	resp, err := gs.enter(req.Context(), g, serve)
	if err == nil && !p.link.open() {
		resp.Body.Close()
		return nil, errReset
	}
	return resp, err
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// dialer connects a clone of the transport, which has no protocols of its own, to a server in memory. What leads
// nowhere and is not a program's goes where it always would.
func (e *exit) dialer(otherwise dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		gs, p, err := e.callerOf(ctx)
		switch {
		case gs == nil:
			return otherwise(ctx, network, address)
		case err != nil:
			return nil, gs.unserved("a connection to "+address, err)
		case p != nil && !p.link.open():
			return nil, errRefused
		}
		switch _, known := gs.apiOf(address); {
		case !known && p == nil:
			return otherwise(ctx, network, address)
		case !known:
			return nil, gs.unserved("a connection to "+address, errNoAPI)
		}
		of := context.WithValue(context.Background(), directKey{}, true)
		if p != nil {
			of = context.WithValue(context.Background(), processKey{}, p)
		}
		here, there := net.Pipe()
		server := &http.Server{Handler: forwarder{e}, BaseContext: func(net.Listener) context.Context { return of }}
		gs.group.Go("connection to "+address, func() { _ = server.Serve(&single{conn: there}) }) // it says: no more
		return here, nil
	}
}

// forwarder serves the connections of clones.
type forwarder struct{ *exit }

func (f forwarder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	again := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = again()
	req.GetBody = again // so that what it holds orders it among others
	req.URL.Scheme, req.URL.Host = "https", req.Host
	resp, err := f.RoundTrip(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// single is a listener of one connection.
type single struct {
	mu   sync.Mutex
	conn net.Conn // guarded by mu: nil once it was accepted
}

func (s *single) Accept() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.conn
	if s.conn = nil; conn == nil {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return inMemory("443") }

// serveAPI lets an API answer a request.
func serveAPI(api http.Handler, req *http.Request) (resp *http.Response, err error) {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), directKey{}, true))
	defer cancel()
	defer context.AfterFunc(req.Context(), cancel)()
	in := req.Clone(ctx)
	in.RequestURI, in.Host = req.URL.RequestURI(), cmp.Or(req.Host, req.URL.Host)
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()
	defer func() {
		if r := recover(); r == http.ErrAbortHandler {
			resp, err = nil, errReset
		} else if r != nil {
			panic(r)
		}
	}()
	w := httptest.NewRecorder()
	api.ServeHTTP(w, in)
	resp = w.Result()
	resp.Request = req
	return resp, nil
}

var errNoAPI = errors.New("Scenario.Outside has no such host: a handler there stands in for it")

// apiOf returns the API of a host, with or without its port.
func (gs *gates) apiOf(host string) (API, bool) {
	if api, ok := gs.apis[host]; ok {
		return api, true
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return nil, false
	}
	api, ok := gs.apis[name]
	return api, ok
}

// unserved notes a request that leads nowhere, for the driver, and returns what the program sees of it. That of a dead
// process is refused.
func (gs *gates) unserved(request string, why error) error {
	if errors.Is(why, errRefused) {
		return errRefused
	}
	stack := make([]byte, 1<<14)
	at := lifecycle.WhereInUserCode(string(stack[:runtime.Stack(stack, false)]))
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.astray = append(gs.astray, fmt.Sprintf("%s, at %s: %v", request, at, why))
	return &net.OpError{Op: "dial", Net: "tcp",
		Err: &net.DNSError{Err: "no such host", Name: request, IsNotFound: true}}
}

// strayed returns the first request that has led nowhere; empty: there was none.
func (gs *gates) strayed() string {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if len(gs.astray) == 0 {
		return ""
	}
	return gs.astray[0]
}

// breaks notes that an API has not returned, for the driver.
func (gs *gates) breaks(host string, p *lifecycle.PanicError) {
	what := "has ended its goroutine"
	at := lifecycle.WhereInUserCode(string(p.Stack))
	if p.Value != nil {
		at, what = fmt.Sprintf("%s: %v", at, p.Value), "panicked"
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.broken = cmp.Or(gs.broken, fmt.Sprintf("the API %s %s at %s", host, what, at))
}

// brokenAPI returns the first API that has not returned, and where; empty: there was none.
func (gs *gates) brokenAPI() string {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.broken
}

func hashOf(text string) uint64 {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, text) // which does not fail
	return hash.Sum64()
}

// makeAPIs makes what is outside of a run.
func (s *Scenario) makeAPIs() map[string]API {
	apis := make(map[string]API)
	for host, make := range s.Outside {
		apis[host] = make()
	}
	return apis
}

// heldBy returns what an API holds, as JSON.
func heldBy(api API) []byte {
	data, err := json.Marshal(api.State())
	if err != nil {
		panic(fmt.Sprintf("reconciletest: the State of an API of Scenario.Outside cannot be written as JSON: %v", err))
	}
	return data
}

// held is what a snapshot takes of the APIs: trees by what they are called.
func (gs *gates) held() map[string]map[string]any {
	all := make(map[string]map[string]any)
	for host, api := range gs.apis {
		var state any
		if err := json.Unmarshal(heldBy(api), &state); err != nil {
			panic(err) // it was written a moment ago
		}
		entries, ok := state.(map[string]any)
		if !ok {
			entries = map[string]any{"state": state}
		}
		for key, entry := range entries {
			tree, ok := entry.(map[string]any)
			if !ok || len(tree) == 0 {
				tree = map[string]any{"value": entry}
			}
			all[aboutAPI(host)+key] = tree
		}
	}
	return all
}

// aboutAPI is how the name begins of what an API holds.
func aboutAPI(host string) string { return host + " /" }

// isOutside reports whether requests of a kind go to an API: then it begins with a method of HTTP.
func isOutside(kind string) bool { return kind != "" && kind[0] >= 'A' && kind[0] <= 'Z' }

// apiFault returns what a disturbance makes of a request to an API, and how much later the program sees that.
func (d disturbance) apiFault() (fault Fault, later time.Duration) {
	switch d.what {
	case loseAnswer:
		return LoseAnswer, 0
	case unanswered:
		return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
			return nil, errTimedOut
		}, unansweredFor
	case lateAnswer:
		return nil, answerLateBy
	case refuse429:
		return refuseHTTP(http.StatusTooManyRequests), 0
	case refuse500, outage:
		return refuseHTTP(http.StatusInternalServerError), 0
	case timeout504:
		return refuseHTTP(http.StatusGatewayTimeout), 0
	case applied504:
		return func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
			if resp, err := serve(); err == nil {
				resp.Body.Close()
			}
			return refuseHTTP(http.StatusGatewayTimeout)(ctx, serve)
		}, 0
	}
	return nil, 0
}

// errTimedOut is what a client sees of a server that does not answer.
var errTimedOut error = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ETIMEDOUT}

// refuseHTTP answers with a code, as an API does; it does not see the request.
func refuseHTTP(code int) Fault {
	return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
		w := httptest.NewRecorder()
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", fmt.Sprint(int(pauseAsked.Seconds())))
		}
		http.Error(w, http.StatusText(code)+": a disturbance", code)
		return w.Result(), nil
	}
}
