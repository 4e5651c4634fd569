package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/internal/controlplane/node"
)

// runNode stands in for a node until SIGTERM or SIGINT.
func runNode(args []string) int {
	flags := flag.NewFlagSet("controlplane node", flag.ContinueOnError)
	var o node.Options
	kubeconfig := flags.String("kubeconfig", "", "`path` of the kubeconfig of an administrator")
	flags.StringVar(&o.Name, "name", "standin", "name of the node")
	flags.BoolVar(&o.Metrics, "metrics", false, "serve metrics.k8s.io (see package node)")
	flags.DurationVar(&o.StartAfter, "start-after", 0, "how long a pod takes from bound to Running")
	flags.DurationVar(&o.ReadyAfter, "ready-after", 0, "how long a pod takes from Running to Ready")
	flags.DurationVar(&o.EndAfter, "end-after", 0, "how long a deleted pod takes to end")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 || *kubeconfig == "" {
		return usage("node takes flags, and --kubeconfig is one that it needs")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane node:", err)
		return 1
	}
	config.QPS, config.Burst = 500, 1000 // a hundred kubelets have a hundred limits
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane node:", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	node.Run(ctx, client, o)
	return 0
}
