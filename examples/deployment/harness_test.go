package main

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/transport"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// TestMain lets the test binary be the command, for the tests of what a user sees of it.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// soak is set for the long variants.
var soak = os.Getenv("THERMOSTAT_SOAK") != ""

// The clusters of these tests leave the work of the Deployment controller to us.
var withoutBuiltIn = testcluster.Options{Controllers: []string{"*", "-deployment-controller"}}

var startShared = sync.OnceValues(func() (*testcluster.Cluster, error) {
	return testcluster.Start(context.Background(), withoutBuiltIn)
})

// shared returns the cluster of all tests that leave its components alone. Each works in namespaces of its own.
func shared(t testing.TB) *testcluster.Cluster {
	t.Helper()
	cluster, err := startShared()
	require.NoError(t, err)
	return cluster
}

// runOurs starts the controller for one namespace.
func runOurs(t testing.TB, cluster *testcluster.Cluster, namespace string) (stop func()) {
	t.Helper()
	return runWith(t, cluster, namespace, reconcile.TrackWrites)
}

// runWith starts the controller with only these transports: without TrackWrites it is a broken one.
func runWith(t testing.TB, cluster *testcluster.Cluster, namespace string,
	wrap ...transport.WrapperFunc) (stop func()) {
	t.Helper()
	cfg := cluster.Config()
	cfg.QPS, cfg.Burst = 500, 1000
	for _, f := range wrap {
		cfg.Wrap(f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- program.Operate(ctx, cfg, nil,
			command.Options{Namespace: namespace, Workers: 10, QPS: 500, Burst: 1000,
				MetricsAddress: "0"})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "the controller does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// runBuiltIn starts the built-in controller in a process of its own, behind a gateway that shows it the Deployments of
// one namespace only.
func runBuiltIn(t testing.TB, cluster *testcluster.Cluster, namespace string) *testcluster.Process {
	t.Helper()
	gateway := testbed.NewGateway(t, cluster.Config(), onlyDeploymentsOf(namespace))
	p := testbed.RunBuiltIn(t, cluster, "built-in-"+namespace, "deployment-controller",
		"--kubeconfig="+gateway.Kubeconfig, "--concurrent-deployment-syncs=10", "--kube-api-qps=500",
		"--kube-api-burst=1000")
	t.Cleanup(func() { _ = p.Kill(context.Background()) }) // before the gateway closes, which waits for its clients
	return p
}

// onlyDeploymentsOf is a transport that restricts lists and watches of all Deployments to one namespace.
func onlyDeploymentsOf(namespace string) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &restricting{next, namespace} }
}

type restricting struct {
	next      http.RoundTripper
	namespace string
}

func (r *restricting) WrappedRoundTripper() http.RoundTripper { return r.next }

func (r *restricting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/apis/apps/v1/deployments") {
		req = req.Clone(req.Context())
		query := req.URL.Query()
		query.Set("fieldSelector", "metadata.namespace="+r.namespace)
		req.URL.RawQuery = query.Encode()
	}
	return r.next.RoundTrip(req)
}
