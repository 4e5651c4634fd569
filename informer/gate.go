package informer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Gate lets nothing through to a server that has asked to be left alone. One refusal, a 429 or 503 with Retry-After,
// holds back whatever else goes to that host through the same Gate: every informer, and the requests of the workers,
// too.
//
//	var gate informer.Gate
//	config.Wrap(gate.Wrap) // before clients are made from it
//
// Each request that is held back goes on by itself at a moment of its own, within half as much time again after what
// the server asked for, at most 5 minutes, so that they do not all come back at once. If the context of a request ends
// before, the request fails with its cause. What is under way, a watch for one, is left alone. Informers do not count
// the time at the gate as the server's silence; the Timeout of a rest.Config does.
//
// An elector is not to be held back: package leaderelection makes a transport of its own, from a configuration without
// the Gate's wrapper.
//
// The zero value lets everything through. Safe for concurrent use; it must not be copied after first use.
type Gate struct {
	mu sync.Mutex
	// Guarded by mu: for each host that has asked for it, until when it is left alone, and the time after that within
	// which requests go on.
	closed map[string]closure
}

type closure struct {
	until  time.Time
	spread time.Duration
}

// Wrap returns a RoundTripper that goes to next through the gate.
func (g *Gate) Wrap(next http.RoundTripper) http.RoundTripper { return &gated{gate: g, next: next} }

type gated struct {
	gate *Gate
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *gated) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *gated) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.gate.pass(req.Context(), req.URL.Host); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil && (resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusServiceUnavailable) {
		t.gate.close(req.URL.Host, resp.Header.Get("Retry-After"))
	}
	return resp, err
}

// pass waits until the host may be asked.
func (g *Gate) pass(ctx context.Context, host string) error {
	wait := g.wait(host)
	if wait == 0 {
		return nil
	}
	if p, ok := ctx.Value(patienceKey{}).(patience); ok {
		p.Stop()
		defer p.Reset(p.limit)
	}
	defer rests(ctx)()
	for ; wait > 0; wait = g.wait(host) { // somebody who went before may have been refused again
		if !lifecycle.Sleep(ctx, wait) {
			return &notSent{context.Cause(ctx)}
		}
	}
	return nil
}

// notSent is the error of a request that a Gate has kept until its context ended.
type notSent struct{ cause error }

func (e *notSent) Error() string {
	return fmt.Sprintf("the server has asked to be left alone: %v", e.cause)
}
func (e *notSent) Unwrap() error { return e.cause }

// NotSent says that the server has not seen the request, to whoever has to know whether a write may have happened.
func (e *notSent) NotSent() bool { return true }

// wait returns how long a request has to wait; zero: not at all.
func (g *Gate) wait(host string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, closed := g.closed[host]
	if !closed {
		return 0
	}
	left := time.Until(c.until)
	if left <= 0 {
		delete(g.closed, host)
		return 0
	}
	return left + rand.N(c.spread)
}

// close closes the gate for as long as the server has asked for, in the words of its Retry-After header.
func (g *Gate) close(host, retryAfter string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	wait := kube.ParseRetryAfter(retryAfter, now)
	if wait == 0 {
		return
	}
	if c := (closure{now.Add(wait), wait/2 + 1}); c.until.After(g.closed[host].until) {
		if g.closed == nil {
			g.closed = make(map[string]closure)
		}
		g.closed[host] = c
	}
}

// patience is a timer that ends a request which has not been answered within limit. A Gate stops it while it keeps the
// request.
type patience struct {
	*time.Timer
	limit time.Duration
}

type patienceKey struct{}

// withPatience lets a Gate know of the patience that a request with ctx has.
func withPatience(ctx context.Context, timer *time.Timer, limit time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, patience{timer, limit})
}
