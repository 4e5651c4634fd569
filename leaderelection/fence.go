package leaderelection

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Fence wraps a transport so that it writes only while this elector leads. A write (any method but GET, HEAD and OPTIONS) is refused with
// [ErrNotLeading] just before it would be sent, and one that still waits for a connection or for its answer is cut off when the tenure
// ends. A request whose context comes from a lead function belongs to that function's tenure: once it is over such a request is refused
// even if the elector leads again.
//
//	cfg := rest.CopyConfig(restConfig)
//	cfg.Wrap(elector.Fence)
//	clients, err := kubernetes.NewForConfig(cfg)
//
// The error of a request that was refused has a method NotSent() bool; that of one that was cut off has not, unless the
// transport below says so.
//
// What was sent before the tenure ended may still be applied after it: a process that is paused at the worst moment has one request in
// flight on each of its connections. The API server checks no tokens, so give updates a resourceVersion as a precondition.
func (e *Elector) Fence(next http.RoundTripper) http.RoundTripper { return &fence{e, next} }

type fence struct {
	elector *Elector
	next    http.RoundTripper
}

// WrappedRoundTripper lets helpers of apimachinery find the transport below.
func (f *fence) WrappedRoundTripper() http.RoundTripper { return f.next }

func (f *fence) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		return f.next.RoundTrip(req)
	}
	t, ok := req.Context().Value(tenureKey{f.elector}).(*tenure)
	if !ok {
		t = f.elector.tenure.Load()
	}
	if t == nil || !t.valid() {
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper has to
		}
		return nil, refusal{req.Method, req.URL.Path}
	}

	ctx, cancel := context.WithCancelCause(req.Context())
	unhook := context.AfterFunc(t.ctx, func() { cancel(ErrNotLeading) })
	end := func() { unhook(); cancel(nil) }
	response, err := f.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		if context.Cause(ctx) == ErrNotLeading {
			err = fmt.Errorf("%w: %s %s was cut off; it had been sent: %w",
				ErrNotLeading, req.Method, req.URL.Path, err)
		}
		end()
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols { // there the body is also written to, and its life is the caller's
		response.Body = &fencedBody{response.Body, end}
	}
	return response, nil
}

// refusal is the error of a request that was not sent. It says so to a transport around the fence, which else has to
// think that the write may have happened.
type refusal struct{ method, path string }

func (r refusal) Error() string {
	return fmt.Sprintf("%v: %s %s was refused", ErrNotLeading, r.method, r.path)
}

func (r refusal) Unwrap() error { return ErrNotLeading }
func (r refusal) NotSent() bool { return true }

// A fencedBody ends the request's context when the answer has been read.
type fencedBody struct {
	io.ReadCloser
	end func()
}

func (b *fencedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
