package leaderelection

import (
	"net/http"

	"github.com/thermostat-go/thermostat/internal/election"
)

// Fence wraps a transport so that it writes only while this elector leads. A write at any other time fails with
// [ErrNotLeading] and is not sent. A write that still waits for a connection or for its answer is cut off when the
// tenure ends. Writes are
//
//   - every method except GET, HEAD and OPTIONS, and except POST for a review: a TokenReview, a SubjectAccessReview and
//     their like are questions, which a standby may ask,
//   - every request for an upgrade, to WebSocket or SPDY, whatever its method: exec, attach and portforward are such,
//   - every request for the subresources exec, attach, portforward and proxy, whatever its method: behind a proxy a GET
//     may do anything. So a standby cannot read through a proxy either; use a client without a fence for that.
//
// An upgraded connection is closed when the tenure ends, if its client uses it through the answer's Body. A request
// whose context comes from a lead function belongs to that function's tenure: when the tenure is over the request is
// refused even if the elector leads again.
//
//	cfg := rest.CopyConfig(restConfig)
//	cfg.Wrap(elector.Fence)
//	clients, err := kubernetes.NewForConfig(cfg)
//
// The error of a request that was refused has a method NotSent() bool. That of a request that was cut off does not have
// it, unless the transport below adds it.
//
// What was sent before the tenure ended may still be carried out after it: a process that is paused at the worst moment
// has one request in flight on each of its connections. The API server checks no tokens, so give updates a
// resourceVersion as a precondition.
func (e *Elector) Fence(next http.RoundTripper) http.RoundTripper { return &fence{e, next} }

type fence struct {
	elector *Elector
	next    http.RoundTripper
}

// WrappedRoundTripper lets helpers of apimachinery find the transport below.
func (f *fence) WrappedRoundTripper() http.RoundTripper { return f.next }

func (f *fence) RoundTrip(req *http.Request) (*http.Response, error) {
	if !election.Writes(req) {
		return f.next.RoundTrip(req)
	}
	t, ok := req.Context().Value(tenureKey{f.elector.candidate}).(*tenure)
	if !ok {
		t = f.elector.tenure.Load()
	}
	if t == nil || !t.valid() {
		return nil, election.Refuse(req, ErrNotLeading)
	}
	return election.RoundTrip(t.ctx, f.next, req, ErrNotLeading)
}
