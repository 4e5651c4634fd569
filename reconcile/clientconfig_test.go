package reconcile_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
)

type gateKeeper struct{ asked *[]string }

func (g gateKeeper) Fence(next http.RoundTripper) http.RoundTripper { return &gate{g, next} }

type gate struct {
	keeper gateKeeper
	next   http.RoundTripper
}

func (g *gate) WrappedRoundTripper() http.RoundTripper { return g.next }
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	*g.keeper.asked = append(*g.keeper.asked, r.Method)
	return g.next.RoundTrip(r)
}

var (
	_ reconcile.Fencer            = (*leaderelection.Elector)(nil)
	_ utilnet.RoundTripperWrapper = (*gate)(nil)
)

func TestClientConfig(t *testing.T) {
	base := &rest.Config{Host: "http://server"}
	cfg, err := reconcile.ClientConfig(base, gateKeeper{new([]string)})
	require.NoError(t, err)
	require.Equal(t, float32(-1), cfg.QPS, "no limit unless asked for")
	require.Equal(t, rest.DefaultKubernetesUserAgent(), cfg.UserAgent)
	require.Nil(t, base.WrapTransport, "the elector's own requests must not be fenced")
	require.Zero(t, base.QPS)
	fence, ok := cfg.WrapTransport(http.DefaultTransport).(*gate)
	require.True(t, ok, "the fence is outside")
	require.IsType(t, reconcile.TrackWrites(nil), fence.next)
	require.Equal(t, http.DefaultTransport, fence.next.(utilnet.RoundTripperWrapper).WrappedRoundTripper())

	limiter := flowcontrol.NewFakeAlwaysRateLimiter()
	cfg, err = reconcile.ClientConfig(&rest.Config{Host: "http://server", UserAgent: "mine", RateLimiter: limiter},
		(*leaderelection.Elector)(nil))
	require.NoError(t, err)
	require.Equal(t, limiter, cfg.RateLimiter)
	require.Zero(t, cfg.QPS)
	require.Equal(t, "mine", cfg.UserAgent)
	require.IsType(t, reconcile.TrackWrites(nil), cfg.WrapTransport(http.DefaultTransport), "no elector, no fence")
	cfg, err = reconcile.ClientConfig(&rest.Config{Host: "http://server", QPS: 7, Burst: 8})
	require.NoError(t, err)
	require.Equal(t, float32(7), cfg.QPS)
	require.Equal(t, 8, cfg.Burst)

	_, err = reconcile.ClientConfig(nil)
	require.EqualError(t, err, "ClientConfig: the rest.Config is nil")
	_, err = reconcile.ClientConfig(&rest.Config{Host: "http://server", Burst: 8})
	require.ErrorContains(t, err, "Burst 8 and no QPS")
}

// A request that a Gate has kept until its ctx ended was not sent, so it leaves no debt.
func TestARequestThatAGateHasKeptLeavesNoDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate informer.Gate
		sent := 0
		transport := gate.Wrap(tripper(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"120"}}, Body: http.NoBody}, nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://server/api/v1/namespaces/a/pods", nil)
		require.NoError(t, err)
		_, err = transport.RoundTrip(req)
		require.NoError(t, err)
		_, err = transport.RoundTrip(req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, sent)
		var notSent interface{ NotSent() bool }
		require.ErrorAs(t, err, &notSent)
		require.True(t, notSent.NotSent())
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
