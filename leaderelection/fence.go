package leaderelection

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
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
// What was sent before the tenure ended may still be applied after it: a process that is paused at the worst moment has
// one request in flight on each of its connections. The API server checks no tokens, so give updates a resourceVersion
// as a precondition.
func (e *Elector) Fence(next http.RoundTripper) http.RoundTripper { return &fence{e, next} }

type fence struct {
	elector *Elector
	next    http.RoundTripper
}

// WrappedRoundTripper lets helpers of apimachinery find the transport below.
func (f *fence) WrappedRoundTripper() http.RoundTripper { return f.next }

func (f *fence) RoundTrip(req *http.Request) (*http.Response, error) {
	if !writes(req) {
		return f.next.RoundTrip(req)
	}
	t, ok := req.Context().Value(tenureKey{f.elector.candidate}).(*tenure)
	if !ok {
		t = f.elector.tenure.Load()
	}
	if t == nil || !t.valid() {
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper must
		}
		return nil, refusal{req.Method, req.URL.Path}
	}

	ctx, cancel := context.WithCancel(req.Context())
	unhook := context.AfterFunc(t.ctx, cancel)
	end := func() { unhook(); cancel() }
	response, err := f.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		// Not by the cause of ctx: where the request has the lead function's context, that one ends first.
		if t.ctx.Err() != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %s %s was cut off; it may have been sent: %w",
				ErrNotLeading, req.Method, req.URL.Path, err)
		}
		end()
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = &fencedBody{response.Body, end}
	} else if connection, ok := response.Body.(io.ReadWriteCloser); ok { // otherwise the client owns it
		closing := context.AfterFunc(t.ctx, func() { _ = connection.Close() })
		response.Body = &fencedConnection{connection, func() { closing(); end() }}
	}
	return response, nil
}

// writes reports whether a request may change anything.
func writes(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
	case http.MethodPost:
		if !isReview(req.URL.Path) {
			return true
		}
	default:
		return true
	}
	return len(req.Header.Values("Upgrade")) > 0 || reachesThrough(req.URL.Path)
}

// isReview reports whether a path is that of reviews, which nothing stores.
func isReview(path string) bool {
	return slices.ContainsFunc(readings(path), func(r reading) bool {
		return (r.group == "authentication.k8s.io" || r.group == "authorization.k8s.io") && len(r.rest) == 1 &&
			strings.HasSuffix(r.rest[0], "reviews")
	})
}

// reachesThrough reports whether a path names a subresource that leads to something else than the API. The oldest form
// of a proxy's path has /proxy instead of a resource.
func reachesThrough(path string) bool {
	return slices.ContainsFunc(readings(path), func(r reading) bool {
		return r.rest[0] == "proxy" ||
			len(r.rest) > 2 && slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, r.rest[2])
	})
}

// reading is what a path says to the API server: a group, and a resource with what follows it.
type reading struct {
	group string
	rest  []string // never empty
}

// readings returns all that a path may say, since its prefix is unknown and may contain "api" and "apis" as well:
//
//	[prefix] /api/v1 or /apis/group/version [/namespaces/namespace] /resource [/name [/subresource ...]]
func readings(path string) (all []reading) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts {
		r := reading{rest: parts[i+1:]}
		switch {
		case part == "api" && len(r.rest) > 1 && r.rest[0] == "v1":
			r.rest = r.rest[1:]
		case part == "apis" && len(r.rest) > 2:
			r.group, r.rest = r.rest[0], r.rest[2:]
		default:
			continue
		}
		if len(r.rest) > 2 && r.rest[0] == "namespaces" {
			r.rest = r.rest[2:]
		}
		all = append(all, r)
	}
	return all
}

// refusal is the error of a request that was not sent. NotSent tells a transport around the fence so, which would
// otherwise have to assume that the write may have happened.
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

// A fencedConnection is the body of an upgraded connection, which is also written to.
type fencedConnection struct {
	io.ReadWriteCloser
	end func()
}

func (c *fencedConnection) Close() error {
	defer c.end()
	return c.ReadWriteCloser.Close()
}
