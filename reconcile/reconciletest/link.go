package reconciletest

import (
	"context"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Link is the way of one client, or of one process, to the server. Each link has faults of its own. Safe for concurrent
// use.
type Link struct {
	server *Server
	user   string // who makes the requests; empty: a user who may do everything

	// Guarded by server.store.mu.
	fault  func(Request) Fault
	delays map[schema.GroupResource]time.Duration // of what watches bring, by resource; negative: it does not come
	lag    int64                                  // the version that the link's server has reached; 0: the last one
	closed bool
	cuts   int // each ends the watches that were begun before
	log    []Request
	used   map[use]bool // the rights that the user has made use of
	lacked map[use]bool // those that he has needed, and has not; see lacks
	beyond string       // what was asked for last that is not modelled; see beyondModel
}

// Link returns a new way to the server, of a user who may do everything.
func (s *Server) Link() *Link { return s.LinkAs("") }

// LinkAs returns a new way to the server of a user, such as a [ServiceAccount], who may do what [Options.Roles] grant:
// everything if there are none.
func (s *Server) LinkAs(user string) *Link {
	return &Link{server: s, user: user, delays: make(map[schema.GroupResource]time.Duration), used: make(map[use]bool),
		lacked: make(map[use]bool)}
}

// Config returns a configuration for clients of any kind that use the link. They have no rate limit.
func (l *Link) Config() *rest.Config {
	return &rest.Config{Host: "http://in-memory", Transport: transport{l}, QPS: -1}
}

// Inject sets what happens to requests from now on: the link calls fault for each request, before the server sees it,
// on the goroutine that makes the request and without a lock. A nil result leaves the request alone, and so does a nil
// fault.
func (l *Link) Inject(fault func(Request) Fault) {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	l.fault = fault
}

// Never is a delay that does not end until the test sets another one.
const Never time.Duration = -1

// DelayWatches makes the events of watches of a resource, such as "pods", arrive that much later than they happened, as
// on a slow network; or [Never]. Zero takes the delay away, and the events that were held back arrive at once. It names
// the resource as [Get] does, and fails the test if the server has no such resource.
func (l *Link) DelayWatches(resource string, d time.Duration) {
	l.server.t.Helper()
	l.delay(l.server.named(resource).GroupResource(), d)
}

func (l *Link) delay(r schema.GroupResource, d time.Duration) {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	l.delays[r] = d
	l.server.store.wakeLocked()
}

// LagBehind lets the link lead to a server of the same cluster that was left behind at a version which [Server.Version]
// has returned, as one of several API servers may be. It streams no lists, as servers without the feature WatchList, so
// that clients fall back to plain ones. It answers reads from its cache, which are lists and watches at
// resourceVersion 0, as of that version, and watches bring nothing that came later; what needs a newer version waits
// for 3 s, and is refused then. Other reads, and writes, do as always. Zero ends it: the server catches up at once.
func (l *Link) LagBehind(version int64) {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	l.lag = version
	l.server.store.wakeLocked()
}

// old reports whether the link's server streams no lists.
func (l *Link) old() bool {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	return l.lag > 0
}

// cachedLocked returns the version that the cache of the link's server has reached. The caller holds server.store.mu.
func (l *Link) cachedLocked() int64 {
	if l.lag > 0 {
		return min(l.lag, l.server.store.version)
	}
	return l.server.store.version
}

// watches reports whether anything was watched over the link.
func (l *Link) watches() bool {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	return slices.ContainsFunc(l.log, func(r Request) bool { return r.Verb == "watch" })
}

// CutWatches ends the watches that were begun over the link.
func (l *Link) CutWatches() {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	l.cuts++
	l.server.store.wakeLocked()
}

// Close breaks the link for good, as the end of a process does: no request and no answer comes through any more, and
// watches end.
func (l *Link) Close() {
	l.server.store.mu.Lock()
	l.closed = true
	l.server.store.wakeLocked()
	l.server.store.mu.Unlock()
	l.server.hosts.closeAll(l)
}

// Requests returns the requests that have reached the server over the link, in order.
func (l *Link) Requests() []Request {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	return append([]Request(nil), l.log...)
}

// closedLocked reports whether the link is broken for good. The caller holds server.store.mu.
func (l *Link) closedLocked() bool { return l.closed || l.server.store.stopped }

// open reports whether requests come through.
func (l *Link) open() bool {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	return !l.closedLocked()
}

// transport makes a Link the transport of an HTTP client. The request is served on the caller's goroutine; the body of
// a watch makes its events as it is read.
type transport struct{ *Link }

func (l transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	l.server.store.mu.Lock()
	inject, closed := l.fault, l.closedLocked()
	l.server.store.mu.Unlock()
	if closed {
		return nil, errRefused
	}
	r, err := parseRequest(req.Method, req.URL.Path, req.URL.Query())
	if err != nil {
		return l.server.answerError(req, err), nil
	}
	serve := func() (*http.Response, error) {
		if !l.record(r) {
			return nil, errRefused
		}
		return l.server.serve(l.Link, r, req)
	}
	var fault Fault
	if inject != nil {
		fault = inject(r)
	}
	var resp *http.Response
	if fault != nil {
		resp, err = fault(context.WithValue(req.Context(), contentKey{}, contentOf(req)), serve)
	} else {
		resp, err = serve()
	}
	switch {
	case err != nil:
		return nil, err
	case !l.open():
		resp.Body.Close()
		return nil, errReset
	case req.Context().Err() != nil: // the client does not wait any more, whatever the server has done
		resp.Body.Close()
		return nil, req.Context().Err()
	}
	resp.Request = req
	return resp, nil
}

// contentKey is that of the content of a request in the context that a [Fault] gets.
type contentKey struct{}

// contentOf returns a hash of the body of a request: 0 if there is none, or if it cannot be read twice.
func contentOf(req *http.Request) uint64 {
	if req.GetBody == nil {
		return 0
	}
	body, err := req.GetBody()
	if err != nil {
		return 0
	}
	defer body.Close()
	hash := fnv.New64a()
	if _, err := io.Copy(hash, body); err != nil {
		return 0
	}
	return hash.Sum64()
}

// record notes a request that has reached the server, and reports whether it could.
func (l *Link) record(r Request) bool {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	if l.closedLocked() {
		return false
	}
	l.log = append(l.log, r)
	return true
}
