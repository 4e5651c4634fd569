package main

import (
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/cronbackup/cronbackuptest"
	"github.com/thermostat-go/thermostat/examples/cronbackup/deploy"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// start runs the operator with leader election, and without listening on the network.
func start(ctx context.Context, cfg *rest.Config) error {
	return run(ctx, cfg, options{image: "backup:1", backup: []string{"backup"}, cleanup: []string{"cleanup"},
		leaseNamespace: "cronbackup"})
}

func TestInMemory(t *testing.T) { cronbackuptest.InMemory(t, start) }

func TestOnACluster(t *testing.T) { cronbackuptest.OnCluster(t, start) }

// TestTheManifestsAreAccepted applies them all: the Deployment meets the security standard of its namespace.
func TestTheManifestsAreAccepted(t *testing.T) {
	c := cluster.Shared(t)
	cronbackuptest.Install(t, c)
	for _, name := range []string{"deployment.yaml", "sample.yaml"} {
		documents, err := fs.ReadFile(deploy.Manifests, name)
		require.NoError(t, err)
		objects, err := cluster.Decode(documents)
		require.NoError(t, err)
		require.NoError(t, c.Apply(t.Context(), objects...))
	}
}

func TestMetricsAndHealthAreServed(t *testing.T) {
	server := reconciletest.NewServer(t, cronbackuptest.ServerOptions(cronbackuptest.Manifests(t)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, server.LinkAs(cronbackuptest.Account).Config(), options{image: "backup:1", address: address})
	}()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { code, _ := get("/readyz"); return code == http.StatusOK }, 30*time.Second,
		20*time.Millisecond)
	code, _ := get("/healthz")
	require.Equal(t, http.StatusOK, code)
	code, text := get("/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, `name="cronbackup"`)
	stop()
	require.NoError(t, <-ended)
}
