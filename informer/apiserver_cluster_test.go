package informer

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/netproxy"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// runAPIServer runs one more API server on the cluster's data, as a control plane of several nodes does, and returns
// it and the configuration of an administrator there once it is ready. It reaches etcd through a socket: that of the
// cluster, or of a proxy to it.
func runAPIServer(t *testing.T, c *testcluster.Cluster, name, etcdSocket string) (*testcluster.Process, *rest.Config) {
	t.Helper()
	programs, err := testcluster.Assets(t.Context())
	require.NoError(t, err)
	port, err := netproxy.ReservePort()
	require.NoError(t, err)
	in := func(path ...string) string { return filepath.Join(append([]string{c.Dir(), "pki"}, path...)...) }
	process, err := c.Run(t.Context(), testcluster.Command{Name: name, Path: filepath.Join(programs, "kube-apiserver"),
		Args: []string{
			// What the first one is given, as far as both have to agree or it does not start without.
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--etcd-servers=unix://" + etcdSocket,
			"--tls-cert-file=" + in("apiserver.crt"),
			"--tls-private-key-file=" + in("apiserver.key"),
			"--client-ca-file=" + in("ca.crt"),
			"--authorization-mode=Node,RBAC",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + in("service-account.key"),
			"--service-account-signing-key-file=" + in("service-account.key"),
			"--service-cluster-ip-range=10.96.0.0/16",
			"--endpoint-reconciler-type=none",
		}})
	require.NoError(t, err)
	config := c.Config()
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	awaitAPIServer(t, config)
	return process, config
}

// awaitAPIServer waits until the API server of that configuration is ready.
func awaitAPIServer(t *testing.T, config *rest.Config) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil
	}, 3*time.Minute, 20*time.Millisecond, "the API server at %s is not ready", config.Host)
}
