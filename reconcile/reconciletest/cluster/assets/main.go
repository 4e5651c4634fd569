// Command assets builds the control plane of package cluster, unless this machine has it, and prints the folder with
// its programs: etcd, kube-apiserver, kube-controller-manager and kubectl. For tests that use envtest:
//
//	export KUBEBUILDER_ASSETS=$(go run github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/assets)
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := cluster.Assets(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "assets:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
