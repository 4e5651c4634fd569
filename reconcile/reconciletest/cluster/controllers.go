package cluster

import (
	"context"
	"strings"
)

// RunControllers runs controllers of kube-controller-manager in a process of their own, without an election. The
// cluster's controller manager has all but the ReplicaSet controller; this is how a test gets that one, to compare with
// it or to have it stand in the way:
//
//	cluster.RunControllers(ctx, "built-in", []string{"replicaset-controller"}, "--kube-api-qps=50")
//
// The name is that of the [Process] and of its log. The flags are added to the command line.
func (c *Cluster) RunControllers(ctx context.Context, name string, controllers []string, flags ...string) (*Process,
	error) {
	args := []string{
		"controller-manager", "--kubeconfig=" + c.kubeconfig, "--controllers=" + strings.Join(controllers, ","),
		"--leader-elect=false",
		"--secure-port=0", // nobody asks it how it is
	}
	return c.Run(ctx, Command{Name: name, Path: c.binary, Args: append(args, flags...)})
}
