package testbed

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// RunBuiltIn runs controllers of kube-controller-manager, such as "replicaset-controller", in a process of their own,
// with these flags added to its command line.
func RunBuiltIn(t testing.TB, c *cluster.Cluster, name, controllers string, flags ...string) *cluster.Process {
	t.Helper()
	programs, err := cluster.Assets(t.Context())
	require.NoError(t, err)
	p, err := c.Run(t.Context(), cluster.Command{
		Name: name, Path: filepath.Join(programs, "kube-controller-manager"),
		Args: append([]string{"--kubeconfig=" + c.Kubeconfig(), "--controllers=" + controllers,
			"--leader-elect=false", "--secure-port=0"}, flags...),
	})
	require.NoError(t, err)
	return p
}
