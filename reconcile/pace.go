package reconcile

import (
	"cmp"
	"net/http"
	"net/url"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// pace is how a run has spent its time: with requests under way, or without. A client-side limit of requests makes a
// run wait before its requests, where nothing but its pace shows it.
type pace struct {
	requests, underWay int
	// The latest request: when it came, and, once it is answered, the status, or -1 if there is none. address is read
	// only by those who ask.
	method    string
	address   *url.URL
	since     time.Time
	code      int
	idleSince time.Time     // while none is under way
	idle      time.Duration // in which none was under way, up to the latest request
}

// requestBegins notes that a request of the run has come to the transport.
func (r *run) requestBegins(req *http.Request) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	p := &r.needDetails().pace
	if p.requests == 0 {
		p.idleSince = r.worker.began
	}
	if p.underWay == 0 {
		p.idle += now.Sub(p.idleSince)
	}
	p.requests++
	p.underWay++
	p.method, p.address, p.since, p.code = req.Method, req.URL, now, 0
}

// requestEnds notes that a request has been answered, or has failed: then there is no answer.
func (r *run) requestEnds(resp *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	p := &r.details.pace
	if p.code = -1; resp != nil {
		p.code = resp.StatusCode
	}
	if p.underWay--; p.underWay == 0 {
		p.idleSince = time.Now()
	}
}

// latest describes the latest request, or returns nil if there was none.
func (p *pace) latest() *status.Request {
	if p.requests == 0 {
		return nil
	}
	to := guessTarget(addressOf(p.address))
	return &status.Request{Method: cmp.Or(p.method, http.MethodGet), Resource: to.resource,
		Since: p.since, Answered: p.underWay == 0, Code: max(p.code, 0)}
}

// checkPace says, once for a controller, that a run has had the pace of a client that is limited on this side.
func (w *worker) checkPace(r *run, took time.Duration) {
	if took < slowRun {
		return
	}
	seen := status.Run{Took: took}
	r.seen().describe(&seen)
	if !seen.LooksLimited() {
		return
	}
	w.ledger.once("pace", func() {
		r.log().Info("A run has spent most of its time before its requests, and not in them. If Reconcile itself is "+
			"not "+
			"slow, its client has a client-side limit: client-go sets one of 5 requests a second, unless the "+
			"rest.Config "+
			"has a QPS; reconcile.ClientConfig sets none", "took", took, "before", seen.BeforeRequests,
			"requests", seen.Requests)
	})
}
