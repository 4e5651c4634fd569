package reconcile

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/thermostat-go/thermostat/leaderelection"
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
	_ Fencer                      = (*leaderelection.Elector)(nil)
	_ utilnet.RoundTripperWrapper = (*gate)(nil)
)

func TestClientConfig(t *testing.T) {
	base := &rest.Config{Host: "http://server"}
	cfg, err := ClientConfig(base, gateKeeper{new([]string)})
	require.NoError(t, err)
	require.Equal(t, float32(-1), cfg.QPS, "no limit unless asked for")
	require.Equal(t, rest.DefaultKubernetesUserAgent(), cfg.UserAgent)
	require.Nil(t, base.WrapTransport, "the elector's own requests must not be fenced")
	require.Zero(t, base.QPS)
	fence, ok := cfg.WrapTransport(http.DefaultTransport).(*gate)
	require.True(t, ok, "the fence is outside")
	require.IsType(t, TrackWrites(nil), fence.next)
	require.Equal(t, http.DefaultTransport, fence.next.(utilnet.RoundTripperWrapper).WrappedRoundTripper())

	limiter := flowcontrol.NewFakeAlwaysRateLimiter()
	cfg, err = ClientConfig(&rest.Config{Host: "http://server", UserAgent: "mine", RateLimiter: limiter},
		(*leaderelection.Elector)(nil))
	require.NoError(t, err)
	require.Equal(t, limiter, cfg.RateLimiter)
	require.Zero(t, cfg.QPS)
	require.Equal(t, "mine", cfg.UserAgent)
	require.IsType(t, TrackWrites(nil), cfg.WrapTransport(http.DefaultTransport), "no elector, no fence")
	cfg, err = ClientConfig(&rest.Config{Host: "http://server", QPS: 7, Burst: 8})
	require.NoError(t, err)
	require.Equal(t, float32(7), cfg.QPS)
	require.Equal(t, 8, cfg.Burst)

	_, err = ClientConfig(nil)
	require.EqualError(t, err, "ClientConfig: the rest.Config is nil")
	_, err = ClientConfig(&rest.Config{Host: "http://server", Burst: 8})
	require.ErrorContains(t, err, "Burst 8 and no QPS")
}
