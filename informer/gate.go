package informer

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Gate holds requests back from a server that has asked for a pause. One refusal, a 429 or 503 with Retry-After, holds
// back all requests to that host that go through the same Gate: those of every informer, and those of the workers, too.
//
//	var gate informer.Gate
//	config.Wrap(gate.Wrap) // before clients are made from it
//
// After the pause, at most 5 minutes, the requests go on at random moments within half as much time again, so that they
// do not all come back at once. If the context of a request ends before that, the request fails with the context's
// cause, and the error has a method NotSent() bool that returns true. Requests that the server has answered already,
// such as watches, go on. Informers do not count the time at the Gate as the server's silence; the Timeout of a
// rest.Config does.
//
// An elector must not be held back: package leaderelection makes a transport of its own, from a configuration without
// the Gate's wrapper.
//
// The zero value lets everything through. Safe for concurrent use; it must not be copied after first use.
type Gate struct {
	mu     sync.Mutex
	closed map[string]closure // guarded by mu; by host
}

// closure is a pause that a host has asked for. Requests go on within spread after its end.
type closure struct {
	until  time.Time
	spread time.Duration
	waited map[string]int // how many requests for a URL have waited: alike ones are spread, too
}

// Wrap returns a RoundTripper that holds requests back as the Gate says, and then passes them on to next.
func (g *Gate) Wrap(next http.RoundTripper) http.RoundTripper { return &gated{gate: g, next: next} }

type gated struct {
	gate *Gate
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *gated) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *gated) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.gate.pass(req.Context(), req.URL); err != nil {
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

// pass waits until the host of a URL may be asked.
func (g *Gate) pass(ctx context.Context, u *url.URL) error {
	wait := g.wait(u)
	if wait == 0 {
		return nil
	}
	if t, ok := ctx.Value(answerTimerKey{}).(answerTimer); ok {
		t.Stop()
		defer t.Reset(t.limit)
	}
	defer rests(ctx)()
	for ; wait > 0; wait = g.wait(u) { // the server may have refused a request that went before
		if !lifecycle.Sleep(ctx, wait) {
			return &notSent{context.Cause(ctx)}
		}
	}
	return nil
}

// notSent is the error of a request whose context ended at the Gate.
type notSent struct{ cause error }

func (e *notSent) Error() string {
	return fmt.Sprintf("the server has asked for a pause: %v", e.cause)
}
func (e *notSent) Unwrap() error { return e.cause }

// NotSent reports that the server has not seen the request, so that the caller knows that no write has happened.
func (e *notSent) NotSent() bool { return true }

// wait returns how long a request has to wait from now.
func (g *Gate) wait(u *url.URL) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, closed := g.closed[u.Host]
	if !closed {
		return 0
	}
	wait := time.Until(c.until)
	if wait <= 0 {
		delete(g.closed, u.Host)
		return 0
	}
	to := u.RequestURI()
	c.waited[to]++
	return wait + lifecycle.RandomDuration(c.spread, to, strconv.Itoa(c.waited[to]))
}

// close holds requests back for as long as a Retry-After header says.
func (g *Gate) close(host, retryAfter string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	wait := kube.ParseRetryAfter(retryAfter, now)
	if wait == 0 {
		return
	}
	if c := (closure{now.Add(wait), wait/2 + 1, make(map[string]int)}); c.until.After(g.closed[host].until) {
		if g.closed == nil {
			g.closed = make(map[string]closure)
		}
		g.closed[host] = c
	}
}

// answerTimer ends a request that has not been answered within limit. A Gate stops it while it holds the request back.
type answerTimer struct {
	*time.Timer
	limit time.Duration
}

type answerTimerKey struct{}

// withAnswerTimer shows a Gate the timer of the request with ctx.
func withAnswerTimer(ctx context.Context, timer *time.Timer, limit time.Duration) context.Context {
	return context.WithValue(ctx, answerTimerKey{}, answerTimer{timer, limit})
}
