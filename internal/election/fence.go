package election

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Refuse ends a request that may not be sent, since the sender's tenure is over.
func Refuse(req *http.Request, over error) error {
	if req.Body != nil {
		_ = req.Body.Close() // as a RoundTripper must
	}
	return refusal{over, req.Method, req.URL.Path}
}

// RoundTrip sends a write that belongs to a tenure, and cuts it off when that ends: its error wraps over then. An
// upgraded connection is closed at the end of the tenure.
func RoundTrip(tenure context.Context, next http.RoundTripper, req *http.Request, over error) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	unhook := context.AfterFunc(tenure, cancel)
	end := func() { unhook(); cancel() }
	response, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		// Not by the cause of ctx: where the request has the lead function's context, that one ends first.
		if tenure.Err() != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %s %s was cut off; it may have been sent: %w",
				over, req.Method, req.URL.Path, err)
		}
		end()
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = &fencedBody{response.Body, end}
	} else if connection, ok := response.Body.(io.ReadWriteCloser); ok { // otherwise the client owns it
		closing := context.AfterFunc(tenure, func() { _ = connection.Close() })
		response.Body = &fencedConnection{connection, func() { closing(); end() }}
	}
	return response, nil
}

// Writes reports whether a request may change anything.
func Writes(req *http.Request) bool {
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
type refusal struct {
	why          error
	method, path string
}

func (r refusal) Error() string {
	return fmt.Sprintf("%v: %s %s was refused", r.why, r.method, r.path)
}

func (r refusal) Unwrap() error { return r.why }
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
