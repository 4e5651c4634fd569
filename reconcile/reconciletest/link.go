package reconciletest

import (
	"context"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// Link is the way of one client, or of one process, to the server. It is the place where things go wrong: each link has
// faults of its own.
type Link struct {
	server *Server
	user   string // who makes the requests; empty: somebody who may do everything

	// Guarded by server.store.mu.
	fault  func(Request) Fault
	delays map[string]time.Duration // of what watches bring, by resource; negative: it does not come
	closed bool
	cuts   int // each ends the watches that were begun before
	log    []Request
	used   map[use]bool // the rights that were made use of
}

// Link returns a new way to the server, of somebody who may do everything.
func (s *Server) Link() *Link { return s.LinkAs("") }

// LinkAs returns a new way to the server of a user, such as a [ServiceAccount], who may do what [Options.Access] says;
// everything if that is nil.
func (s *Server) LinkAs(user string) *Link {
	return &Link{server: s, user: user, delays: make(map[string]time.Duration), used: make(map[use]bool)}
}

// Config returns a configuration for clients of any kind that use the link. They have no rate limit.
func (l *Link) Config() *rest.Config {
	return &rest.Config{Host: "http://in-memory", Transport: l, QPS: -1}
}

// Inject sets what is to happen to requests: fault is called for each, before it is served, and nil or a nil result
// leaves it alone. It is called without a lock, by the goroutine that makes the request.
func (l *Link) Inject(fault func(Request) Fault) {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	l.fault = fault
}

// Never is a delay that does not end, until another is set.
const Never time.Duration = -1

// DelayWatches makes whatever watches of a resource, such as "pods", bring from now on arrive that much later than it
// happened, as on a slow network; or [Never]. Zero takes the delay away, and what was held back arrives at once.
func (l *Link) DelayWatches(resource string, d time.Duration) {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	l.delays[resource] = d
	l.server.store.wakeLocked()
}

// CutWatches ends the watches that were begun over the link.
func (l *Link) CutWatches() {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	l.cuts++
	l.server.store.wakeLocked()
}

// Close breaks the link for good, as the end of a process does: no request comes through any more, and no answer.
// Watches end.
func (l *Link) Close() {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	l.closed = true
	l.server.store.wakeLocked()
}

// Requests returns what has reached the server over the link, in order.
func (l *Link) Requests() []Request {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	return append([]Request(nil), l.log...)
}

// RoundTrip makes a Link the transport of an HTTP client. The request is served on the caller's goroutine; the body of
// a watch makes its events as it is read.
func (l *Link) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	l.server.store.mu.Lock()
	fault, closed := l.fault, l.closed
	l.server.store.mu.Unlock()
	if closed {
		return nil, errRefused
	}
	r, err := parseRequest(req.Method, req.URL.Path, req.URL.Query())
	if err != nil {
		return l.server.answerError(req, err), nil
	}
	serve := func() (*http.Response, error) {
		l.server.store.mu.Lock()
		closed := l.closed
		if !closed {
			l.log = append(l.log, r)
		}
		l.server.store.mu.Unlock()
		if closed {
			return nil, errRefused
		}
		return l.server.serve(l, r, req)
	}
	if fault != nil {
		if f := fault(r); f != nil {
			inner := serve
			serve = func() (*http.Response, error) { return f(req.Context(), inner) }
		}
	}
	resp, err := serve()
	l.server.store.mu.Lock()
	closed = l.closed
	l.server.store.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case closed:
		resp.Body.Close()
		return nil, errReset
	case req.Context().Err() != nil: // the client does not wait any more, whatever has been done
		resp.Body.Close()
		return nil, req.Context().Err()
	}
	resp.Request = req
	return resp, nil
}

// sleep waits, for no longer than ctx lives.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
