// Command standin stands in for a node: it does to the API server what a kubelet and the scheduler would do, and runs
// no containers.
//
// It registers a Node and keeps it alive, binds the pods that nobody has bound, reports them as Running and Ready, and
// ends the ones that are deleted. So a control plane without any machine behind it behaves, as far as its objects can
// tell, like a cluster.
//
// Flags say how long each step takes for all pods. Annotations say it for one pod, and can make it fail:
//
//	standin/start-after: 2s          from bound to Running; "never" is a duration, too
//	standin/ready-after: 5s          from Running to Ready
//	standin/end-after: 30s           from the request to delete to gone
//	standin/outcome: Failed          how it ends by itself: Failed or Succeeded
//	standin/outcome-after: 3s        from Running to that end; without it at once
//
// Timestamps in the API have whole seconds, so a step may come up to a second early.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

type options struct {
	kubeconfig string
	name       string
	pace       pace
}

func main() {
	var o options
	fs := pflag.NewFlagSet("standin", pflag.ExitOnError)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file that says how to reach the API server; empty: $KUBECONFIG, else ~/.kube/config")
	fs.StringVar(&o.name, "name", "standin", "name of the node")
	fs.DurationVar(&o.pace.startAfter, "start-after", 0, "how long a pod takes from bound to Running")
	fs.DurationVar(&o.pace.readyAfter, "ready-after", 0, "how long a pod takes from Running to Ready")
	fs.DurationVar(&o.pace.endAfter, "end-after", 0, "how long a deleted pod takes to end")
	_ = fs.Parse(os.Args[1:]) // exits by itself, as ExitOnError says

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

// run plays the node until ctx ends.
func run(ctx context.Context, o options) error {
	files := clientcmd.NewDefaultClientConfigLoadingRules()
	files.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(files, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("client configuration: %w", err)
	}
	cfg.QPS, cfg.Burst = 500, 1000 // a hundred real kubelets would not share one limit either
	cfg.Wrap(reconcile.TrackWrites)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client configuration: %w", err)
	}

	nodes, err := informer.New[*corev1.Node](client.CoreV1().Nodes(), informer.Options[*corev1.Node]{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.name),
	})
	if err != nil {
		return err
	}
	node, err := reconcile.NewController("node", &nodeReconciler{name: o.name, client: client, nodes: nodes},
		reconcile.Options{})
	if err != nil {
		return err
	}
	reconcile.For(node, nodes)

	pods, err := informer.New[*corev1.Pod](client.CoreV1().Pods(metav1.NamespaceAll), informer.Options[*corev1.Pod]{})
	if err != nil {
		return err
	}
	pod, err := reconcile.NewController("pod", &podReconciler{node: o.name, pace: o.pace, client: client, pods: pods},
		reconcile.Options{Workers: 16})
	if err != nil {
		return err
	}
	reconcile.For(pod, pods)

	if err := register(ctx, client, o.name); err != nil {
		return err
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{node, pod}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}
