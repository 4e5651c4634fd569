package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// RunAPIServer runs one more API server on the cluster's data, as a control plane of several nodes does, and returns it
// and the configuration of an administrator there once it is ready. It reaches etcd through a socket: that of
// [Cluster.EtcdSocket], or of a proxy to it. [Cluster.AwaitAPIServer] waits for it after a restart.
func (c *Cluster) RunAPIServer(t testing.TB, name, etcdSocket string) (*Process, *rest.Config) {
	t.Helper()
	port := c.reservePort(t)
	in := func(path ...string) string { return filepath.Join(append([]string{c.dir, "pki"}, path...)...) }
	process, err := c.Run(t.Context(), Command{Name: name, Path: c.binary, Args: []string{
		// What package plane gives the first one, as far as both have to agree or it does not start without.
		"apiserver",
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
	if err != nil {
		t.Fatal(err)
	}
	config := c.Config()
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	if err := c.AwaitAPIServer(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return process, config
}

// AwaitAPIServer waits until the API server of that configuration is ready.
func (c *Cluster) AwaitAPIServer(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return eventually(ctx, "the API server at "+config.Host+" is ready", func(ctx context.Context) (bool, error) {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, err
	})
}

// reservePort chooses a port as package plane does: from below those of outgoing connections, and out of the way of
// other control planes, until the test ends.
func (c *Cluster) reservePort(t testing.TB) int {
	t.Helper()
	var last error
	for range 200 {
		port := 20000 + rand.IntN(12000)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		reservation, err := net.ListenPacket("udp4", address)
		if err != nil {
			last = err
			continue
		}
		free, err := net.Listen("tcp4", address)
		if err != nil {
			last = errors.Join(err, reservation.Close())
			continue
		}
		free.Close()
		t.Cleanup(func() { reservation.Close() })
		return port
	}
	t.Fatalf("find a free port: %v", last)
	return 0
}
