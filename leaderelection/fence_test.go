package leaderelection

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// answering is a wire that answers after a while, unless the request is given up.
func answering(after time.Duration, status int, sent *int) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		*sent++
		if !lifecycle.Sleep(req.Context(), after) {
			return nil, req.Context().Err()
		}
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("ok")), Request: req}, nil
	})
}

func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sent := newServer(), 0
		a := start(t, newCandidate(t, s.link("a")), 0)
		fence := a.Fence(answering(time.Second, 200, &sent))
		do := func(ctx context.Context, method string) error {
			req, err := http.NewRequestWithContext(ctx, method, "http://server/pods", strings.NewReader("{}"))
			require.NoError(t, err)
			response, err := fence.RoundTrip(req)
			if err == nil {
				body, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.Equal(t, "ok", string(body))
				require.NoError(t, response.Body.Close())
			}
			return err
		}
		require.ErrorIs(t, do(t.Context(), http.MethodPost), ErrNotLeading)
		err := do(t.Context(), http.MethodPatch)
		require.ErrorContains(t, err, "PATCH /pods was refused")
		var notSent interface{ NotSent() bool }
		require.ErrorAs(t, err, &notSent)
		require.True(t, notSent.NotSent())
		require.Zero(t, sent, "a refused write is not sent")
		require.NoError(t, do(t.Context(), http.MethodGet), "reads pass")

		settle(time.Second)
		require.True(t, a.IsLeader())
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			require.NoError(t, do(t.Context(), method))
		}
		require.NoError(t, a.stop())
		require.ErrorIs(t, do(t.Context(), http.MethodPut), ErrNotLeading)
	})
}

func TestFenceCutsOffWhatIsUnderWayWhenTheTenureEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sent := newServer(), 0
		l := s.link("a")
		a := start(t, newCandidate(t, l), 0)
		settle(time.Second)
		l.cut(true)
		fence := a.Fence(answering(time.Hour, 200, &sent))
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server/pods", nil)
		took := lasted(func() {
			_, err := fence.RoundTrip(req)
			require.ErrorIs(t, err, ErrNotLeading)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, "it may have been sent")
			var notSent interface{ NotSent() bool }
			require.False(t, errors.As(err, &notSent), "nobody knows what became of it")
		})
		require.Equal(t, 1, sent)
		require.Less(t, took, 10*time.Second)
		a.stop()
	})
}

// TestFenceSaysWhyItCutsOffWhatTheLeadFunctionSends with the context that it was given, which ends, too.
func TestFenceSaysWhyItCutsOffWhatTheLeadFunctionSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sent := newServer(), 0
		l := s.link("a")
		e := newCandidate(t, l)
		fence := e.Fence(answering(time.Hour, 200, &sent))
		ctx, cancel := quiet(t)
		defer cancel()
		err := e.Run(ctx, func(ctx context.Context) error {
			l.cut(true)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://server/pods", nil)
			_, err := fence.RoundTrip(req)
			require.ErrorIs(t, err, ErrNotLeading)
			require.ErrorIs(t, err, context.Canceled)
			var notSent interface{ NotSent() bool }
			require.False(t, errors.As(err, &notSent))
			return err
		})
		require.ErrorIs(t, err, ErrLost)
		require.Equal(t, 1, sent)
	})
}

func TestFenceKeepsAnEarlierTenureOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sent := newServer(), 0
		e := newCandidate(t, s.link("a"))
		fence := e.Fence(answering(0, 200, &sent))
		write := func(ctx context.Context) error {
			req, _ := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "http://server/pods", nil)
			_, err := fence.RoundTrip(req)
			return err
		}
		ctx, cancel := quiet(t)
		defer cancel()
		var first context.Context
		require.NoError(t, e.Run(ctx, func(ctx context.Context) error { first = ctx; return write(ctx) }))
		require.NoError(t, e.Run(ctx, func(ctx context.Context) error {
			require.ErrorIs(t, write(first), ErrNotLeading,
				"what is left over from the first tenure may not write in the second")
			require.NoError(t, write(ctx))
			return nil
		}))
	})
}

func TestFencePassesErrorsAndUpgradesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sent := newServer(), 0
		a := start(t, newCandidate(t, s.link("a")), 0)
		settle(time.Second)
		broken := errors.New("broken")
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server/pods/x/exec", nil)
		_, err := a.Fence(roundTrip(func(*http.Request) (*http.Response, error) { return nil, broken })).RoundTrip(req)
		require.Equal(t, broken, err)
		next := answering(0, http.StatusSwitchingProtocols, &sent)
		response, err := a.Fence(next).RoundTrip(req)
		require.NoError(t, err)
		require.IsType(t, io.NopCloser(strings.NewReader("")), response.Body, "its client owns it")
		require.NotNil(t, a.Fence(next).(interface{ WrappedRoundTripper() http.RoundTripper }).WrappedRoundTripper())
		require.NoError(t, a.stop())
	})
}

// TestFenceKnowsAWriteByWhatItCanDo and not by its method alone.
func TestFenceKnowsAWriteByWhatItCanDo(t *testing.T) {
	sent := 0
	fence := newCandidate(t, newServer().link("a")).Fence(answering(0, 200, &sent))
	for target, refused := range map[string]bool{
		"/api/v1/namespaces/default/pods":                                    false,
		"/api/v1/namespaces/default/pods/x":                                  false,
		"/api/v1/namespaces/default/pods/x/log":                              false,
		"/api/v1/namespaces/default/pods/x/status":                           false,
		"/api/v1/namespaces/default/pods/x/exec?command=rm":                  true,
		"/api/v1/namespaces/default/pods/x/attach":                           true,
		"/api/v1/namespaces/default/pods/x/portforward":                      true,
		"/api/v1/namespaces/default/pods/x/proxy":                            true,
		"/api/v1/namespaces/default/services/http:x:80/proxy/api/v1/delete":  true,
		"/api/v1/nodes/n/proxy/run/default/x/y":                              true,
		"/api/v1/proxy/namespaces/default/pods/x/":                           true,
		"/k8s/clusters/c/api/v1/namespaces/default/pods/x/exec":              true,
		"/k8s/clusters/api/api/v1/namespaces/default/pods/x/exec":            true,
		"/api/clusters/c/api/v1/nodes/n/proxy/":                              true,
		"/apis/prod/apis/example.com/v1/namespaces/default/machines/x/proxy": true,
		"/api/v1/namespaces/api/pods/proxy":                                  false,
		"/api/v1/namespaces/apis/pods/x/status":                              false,
		"/apis/example.com/stable/namespaces/n/apis/v1/exec":                 true,
		"/apis/example.com/stable/namespaces/n/apis/proxy/status":            false,
		"/apis/example.com/v1/namespaces/default/machines/x/proxy":           true,
		"/apis/example.com/v1/machines/x/exec/":                              true,
		"/apis/example.com/v1/machines/exec":                                 false,
		"/api/v1/namespaces/proxy/pods":                                      false,
		"/api/v1/namespaces/proxy":                                           false,
		"/api/v1/namespaces/exec/pods/proxy":                                 false,
		"/apis/example.com/v1/namespaces/proxy/proxies/x":                    false,
		"/api":     false,
		"/apis/x":  false,
		"/version": false,
		"/":        false,
	} {
		for _, method := range []string{"", http.MethodGet, http.MethodHead, http.MethodOptions} {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://server"+target, nil)
			require.NoError(t, err)
			_, err = fence.RoundTrip(req)
			require.Equal(t, refused, errors.Is(err, ErrNotLeading), "%s %s", method, target)
		}
	}
	for target, refused := range map[string]bool{
		"/apis/authentication.k8s.io/v1/tokenreviews":                                      false,
		"/apis/authorization.k8s.io/v1/subjectaccessreviews":                               false,
		"/k8s/clusters/c/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":            false,
		"/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews":       false,
		"/api/c/apis/authorization.k8s.io/v1/namespaces/reviews/localsubjectaccessreviews": false,
		"/apis/authorization.k8s.io/v1/namespaces/x/localsubjectaccessreviews/reviews":     true,
		"/api/c/api/v1/nodes/n/proxy/apis/authentication.k8s.io/v1/tokenreviews":           true,
		"/apis/authorization.k8s.io/v1/others":                                             true,
		"/apis/example.com/v1/reviews":                                                     true,
		"/api/v1/nodes/n/proxy/apis/authentication.k8s.io/v1/tokenreviews":                 true,
		"/api/v1/namespaces/x/services/s/proxy/apis/authorization.k8s.io/v1/accessreviews": true,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server"+target, nil)
		require.NoError(t, err)
		_, err = fence.RoundTrip(req)
		require.Equal(t, refused, errors.Is(err, ErrNotLeading), "POST %s", target)
	}
	for _, protocol := range []string{"websocket", "SPDY/3.1"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/api/v1/anything", nil)
		require.NoError(t, err)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", protocol)
		before := sent
		_, err = fence.RoundTrip(req)
		require.ErrorIs(t, err, ErrNotLeading, protocol)
		require.Equal(t, before, sent)
	}
}

// upgraded is an upgraded connection.
type upgraded struct {
	io.ReadWriter
	closed chan struct{}
}

func (p *upgraded) Close() error { close(p.closed); return nil }

func TestFenceClosesAnUpgradedConnectionWhenTheTenureEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, newCandidate(t, newServer().link("a")), 0)
		settle(time.Second)
		open := func() (*upgraded, *http.Response) {
			p := &upgraded{closed: make(chan struct{})}
			fence := a.Fence(roundTrip(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: p, Request: req}, nil
			}))
			target := "http://server/api/v1/namespaces/default/pods/x/exec"
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
			require.NoError(t, err)
			response, err := fence.RoundTrip(req)
			require.NoError(t, err)
			require.Implements(t, (*io.ReadWriteCloser)(nil), response.Body)
			return p, response
		}
		_, response := open()
		require.NoError(t, response.Body.Close(), "once, by the client")
		left, _ := open()
		require.NoError(t, a.stop())
		<-left.closed
	})
}
