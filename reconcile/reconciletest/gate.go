package reconciletest

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/network"
)

// gate is a request that waits for its turn. The goroutine of the client waits; the driver lets one after the other
// through, so that the order of requests is the driver's choice and not that of Go's scheduler.
type gate struct {
	request Request
	content uint64 // a hash of the body, and of the query to an API
	process *process
	by      string    // the goroutine of the client, in a run that asks to wait
	at      time.Time // when it came, or until when it is held back
	n       int       // counts the requests of one kind, from 1; set when it is let through

	proceed chan struct{} // closed to let it through
	fault   Fault         // what happens to it, set before proceed is closed; nil: nothing
	answer  chan struct{} // closed when the client may see the answer
	later   time.Duration // how long it takes from then on until the client sees it; set before proceed is closed
	host    string        // of an API that the request goes to; empty: to the server
	api     API           // the API

	// Set before served is closed.
	served  chan struct{}
	changes []event // what it has changed
	hooked  bool    // the server has called a webhook for it
	altered bool    // the state of the API is another one
	code    int     // of the answer; 0: the server has not seen it
	// unawaited: the client of an API has not waited for the answer.
	unawaited bool
}

func newGate(r Request, content uint64, p *process) *gate {
	return &gate{request: r, content: content, process: p, at: time.Now(), proceed: make(chan struct{}),
		answer: make(chan struct{}), served: make(chan struct{})}
}

// kind is what gates are counted by: the verb and the resource, without names, since those differ between runs.
func (g *gate) kind() string {
	if g.host != "" {
		return g.request.Verb + " " + g.host
	}
	kind := g.request.Verb + " " + g.request.Resource.Resource
	if g.request.Subresource != "" {
		kind += "/" + g.request.Subresource
	}
	return kind
}

func (g *gate) origin() origin { return origin{g.process.Name, g.kind()} }

// String is the request, and of several programs the one that makes it.
func (g *gate) String() string { return of(g.process.Name, g.request.String()) }

// counts reports whether the request is a write that shows that a program is at work. A Lease that is renewed and an
// Event that is recorded show nothing.
func (g *gate) counts() bool { return g.request.Writes() && !g.lives() }

// wrote reports whether such a write has changed something.
func (g *gate) wrote() bool { return g.counts() && (len(g.changes) > 0 || g.altered) }

// lives reports whether the request only shows that a program lives: it is about a Lease or an Event.
func (g *gate) lives() bool {
	switch g.request.Resource.GroupResource() {
	case schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"},
		schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: "events.k8s.io", Resource: "events"}:
		return true
	}
	return false
}

// alike reports whether the requests of a kind are like each other, so that a few stand for all: renewals of a Lease,
// Events, and questions about rights, which change nothing.
func alike(kind string) bool {
	_, resource, _ := strings.Cut(kind, " ")
	return resource == "leases" || resource == "events" || resource == selfReviews.Resource ||
		resource == accessReviews.Resource
}

// gates are the requests that wait. The driver, which is the goroutine of the bubble's test, is the only one that lets
// them through.
type gates struct {
	server  *Server
	arrived chan struct{} // has an element if something may have come; capacity 1
	// choose picks one of several that wait; nil: the one that came first.
	choose func(n int) int
	// changed returns a channel that is closed when the server changes something, which ends next; nil: nothing does.
	changed func() <-chan struct{}
	apis    map[string]API // the world outside, by host
	group   *lifecycle.Group
	// schedule is that of the run, as Scenario.Replay takes it.
	schedule string
	// asksToWait is whether a write is answered with 429, so that it matters which goroutine comes again: to find out
	// takes long.
	asksToWait bool
	driver     string        // its goroutine
	turns      *atomic.Int64 // how often next has begun; nil: it is not counted

	mu      sync.Mutex
	pending []*gate    // guarded by mu
	live    []*process // guarded by mu: those that have started and were not killed
	// launched are all that have started, guarded by mu; see processLabel.
	launched []*process
	astray   []string // guarded by mu: requests of programs that lead nowhere
	broken   string   // guarded by mu: which API has not returned; empty: none
}

func newGates(s *Server) *gates { return &gates{server: s, arrived: make(chan struct{}, 1)} }

// hold returns what the link of a process asks for each request: it makes the request wait for its turn. Requests for
// documents, such as discovery, do not wait.
func (gs *gates) hold(p *process) func(Request) Fault {
	return func(r Request) Fault {
		if r.Path != "" {
			return nil
		}
		return func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
			if network.Answering(ctx) {
				return serve() // the driver waits for the answer of the webhook
			}
			content, _ := ctx.Value(contentKey{}).(uint64)
			return gs.enter(ctx, newGate(r, content, p), serve)
		}
	}
}

// enter waits for the turn of a request, serves it, and returns when the client may see the answer.
func (gs *gates) enter(ctx context.Context, g *gate, serve func() (*http.Response, error)) (*http.Response, error) {
	if gs.asksToWait {
		g.by, _, _ = whereAmI()
	}
	gs.mu.Lock()
	gs.pending = append(gs.pending, g)
	gs.mu.Unlock()
	select {
	case gs.arrived <- struct{}{}:
	default:
	}
	select {
	case <-g.proceed:
	case <-ctx.Done():
		if gs.drop(g) {
			return nil, ctx.Err()
		}
		<-g.proceed // the driver was faster
	}
	var resp *http.Response
	var err error
	if g.api == nil {
		resp, err = gs.serve(ctx, g, serve)
		close(g.served)
	} else if resp, err = gs.serveApart(ctx, g, serve); ctx.Err() != nil {
		return nil, ctx.Err() // the client does not wait for an API that sleeps
	}
	<-g.answer
	if g.later > 0 && !g.process.waits(ctx, g.later) {
		if err == nil {
			resp.Body.Close()
		}
		return nil, cmp.Or(ctx.Err(), errReset)
	}
	return resp, err
}

// serve lets the server answer, with the gate's fault, and notes what that has changed.
func (gs *gates) serve(ctx context.Context, g *gate, serve func() (*http.Response, error)) (*http.Response, error) {
	noting := func() (*http.Response, error) {
		if g.api != nil {
			before := heldBy(g.api)
			resp, err := serve()
			if err == nil {
				g.code, g.altered = resp.StatusCode, !bytes.Equal(before, heldBy(g.api))
			}
			return resp, err
		}
		before, calls := gs.server.Version(), webhookCalls(gs.server)
		resp, err := serve()
		g.hooked = webhookCalls(gs.server) > calls
		if err == nil {
			g.code = resp.StatusCode
			if g.request.Writes() {
				g.changes = changedSince(gs.server, before)
			}
		}
		return resp, err
	}
	if g.fault == nil {
		return noting()
	}
	return g.fault(ctx, noting)
}

// serveApart is serve on a goroutine of its own, since an API may sleep for longer than the client waits, panic, or end
// its goroutine. The driver waits for it in any case.
func (gs *gates) serveApart(ctx context.Context, g *gate, serve func() (*http.Response, error)) (*http.Response,
	error) {
	type outcome struct {
		resp *http.Response
		err  error
	}
	done := make(chan outcome, 1)
	gs.group.Go("API "+g.host, func() {
		defer close(g.served)
		o := outcome{err: errReset}
		defer func() {
			g.unawaited = ctx.Err() != nil
			done <- o
		}()
		pprof.SetGoroutineLabels(directly)
		lifecycle.Guard(func() { o.resp, o.err = gs.serve(ctx, g, serve) }, func(p *lifecycle.PanicError) {
			gs.breaks(g.host, p)
		})
	})
	select {
	case o := <-done:
		return o.resp, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// changedSince returns the writes after a version.
func changedSince(s *Server, version int64) []event {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return slices.Clone(s.store.eventsAfterLocked(version))
}

// drop takes a gate out of those that wait, and reports whether it was there.
func (gs *gates) drop(g *gate) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	i := slices.Index(gs.pending, g)
	if i < 0 {
		return false
	}
	gs.pending = slices.Delete(gs.pending, i, i+1)
	return true
}

// next waits until everything waits, and then for a request to come. It returns nil at a time, if none has come by
// then, and earlier when the server has changed something. Of what happens at one instant a change of the server comes
// first, then requests, and then the time: not what Go's scheduler sees first.
func (gs *gates) next(until time.Time) *gate {
	var changed <-chan struct{}
	if gs.changed != nil {
		changed = gs.changed()
	}
	for {
		if gs.turns != nil {
			gs.turns.Add(1)
		}
		synctest.Wait()
		if isClosed(changed) {
			return nil
		}
		if g := gs.pick(); g != nil {
			time.Sleep(g.process.latency)
			synctest.Wait()
			if gs.drop(g) {
				return g
			}
			continue
		}
		if !time.Now().Before(until) {
			return nil
		}
		timer := time.NewTimer(min(time.Until(gs.heldUntil(until)), turnFor))
		select {
		case <-gs.arrived:
		case <-timer.C:
		case <-changed:
		}
		timer.Stop()
	}
}

// isClosed reports whether a channel on which nothing is sent is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait reports whether a request waits that has come no later than at a time.
func (gs *gates) wait(at time.Time) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return slices.ContainsFunc(gs.pending, func(g *gate) bool { return !g.at.After(at) })
}

// rank orders requests of one text to an API, whose query and body may say what they are about. Those to the server say
// it in their text.
func (g *gate) rank() uint64 {
	if g.api == nil {
		return 0
	}
	return g.content
}

// pick returns the request whose turn it is, or nil. Requests of one time are ordered by their text, and those to an
// API by what they hold as well, since the order in which they came is that of Go's scheduler.
func (gs *gates) pick() *gate {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if len(gs.pending) == 0 {
		return nil
	}
	slices.SortStableFunc(gs.pending, func(a, b *gate) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.request.String(), b.request.String()),
			cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.process.Name, b.process.Name),
			cmp.Compare(a.process.incarnation, b.process.incarnation))
	})
	ready, now := len(gs.pending), time.Now()
	for ready > 0 && gs.pending[ready-1].at.After(now) {
		ready--
	}
	switch {
	case ready == 0:
		return nil
	case gs.choose == nil:
		return gs.pending[0]
	}
	return gs.pending[gs.choose(ready)]
}

// holdBack lets a request wait for its turn again, as one that comes later.
func (gs *gates) holdBack(g *gate, by time.Duration) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g.at = time.Now().Add(by)
	gs.pending = append(gs.pending, g)
}

// heldUntil returns when the first request comes that is held back, or a time if there is none.
func (gs *gates) heldUntil(until time.Time) time.Time {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, g := range gs.pending {
		until = earlier(until, g.at)
	}
	return until
}

// let lets a request through, and returns when the server has answered it. The client does not see the answer before
// [gates.answer] is called.
func (gs *gates) let(g *gate, fault Fault) {
	g.fault = fault
	close(g.proceed)
	<-g.served
}

// answer lets the client see the answer, and returns when everything waits again.
func (gs *gates) answer(g *gate) {
	close(g.answer)
	synctest.Wait()
}

// release lets all requests of a process through whose link is closed, so that they fail, and reports whether there
// were any.
func (gs *gates) release(p *process) bool {
	gs.mu.Lock()
	var mine []*gate
	gs.pending = slices.DeleteFunc(gs.pending, func(g *gate) bool {
		if g.process == p {
			mine = append(mine, g)
		}
		return g.process == p
	})
	gs.mu.Unlock()
	for _, g := range mine {
		gs.let(g, nil)
		close(g.answer)
	}
	return len(mine) > 0
}

// subjectOf returns the resource of a kind of requests, without a subresource.
func subjectOf(kind string) string {
	_, resource, _ := strings.Cut(kind, " ")
	resource, _, _ = strings.Cut(resource, "/")
	return resource
}

// verbOf returns the verb of a kind of requests.
func verbOf(kind string) string {
	verb, _, _ := strings.Cut(kind, " ")
	return verb
}
