package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/demo/story"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// here is the stage on this machine: a control plane of its own, and processes of each of our controllers.
type here struct {
	narrator *story.Narrator
	programs string
	builtin  bool // Kubernetes' own Deployment controller, and not ours
	cluster  *testcluster.Cluster
	replicas story.Replicas
}

func (h *here) About() story.About {
	about := story.About{
		Cluster: "A control plane on this machine: etcd, kube-apiserver, kube-controller-manager without its " +
			"HPA, Deployment and ReplicaSet controllers, and a stand-in for a node. It runs no containers.",
		Controllers: "Start our controllers in their place. Of those for HPAs and Deployments there are two " +
			"processes, of which one leads and one stands by. Of that for ReplicaSets there are three, all at work, " +
			"each on its share.",
		Deployments: "Our", Ending: "kill -9 the leaders, and of the three the one that creates these pods,",
		Autoscaler: true,
		Older:      "web:1", Newer: "web:2", Broken: "web:broken",
		// More than the controller's rate limit (a burst of 30, then 20 requests a second) lets it create at once.
		Crowd: 100,
	}
	if h.builtin {
		about.Cluster = "A control plane on this machine: etcd, kube-apiserver, kube-controller-manager without its " +
			"ReplicaSet controller, and a stand-in for a node. It runs no containers."
		about.Controllers = "Start our ReplicaSet controller in its place: three processes, all at work, each on its " +
			"share."
		about.Deployments, about.Ending, about.Autoscaler = "Kubernetes'", "kill -9 the one that creates these pods,",
			false
	}
	return about
}

func (h *here) Open(ctx context.Context) (cfg *rest.Config, namespace, result string, err error) {
	began := time.Now()
	run, leave := story.Controllers, []string{"*", "-replicaset-controller", "-deployment-controller",
		"-horizontal-pod-autoscaler-controller"}
	if h.builtin {
		run, leave = []string{"replicaset"}, leave[:2]
	}
	if h.cluster, err = testcluster.Start(ctx, testcluster.Options{Controllers: leave, Metrics: !h.builtin,
		Log: h.narrator}); err != nil {
		return nil, "", "", err
	}
	h.replicas = story.Replicas{Narrator: h.narrator, Controllers: run, Flags: story.Flags, Programs: h.programs,
		Kubeconfig: h.cluster.Kubeconfig(), Logs: h.cluster.Dir(),
		Run: func(ctx context.Context, name, path string, args []string) (story.Process, error) {
			return h.cluster.Run(ctx, testcluster.Command{Name: name, Path: path, Args: args})
		}}
	version, err := h.cluster.Client().Discovery().ServerVersion()
	if err != nil {
		return nil, "", "", err
	}
	namespace, err = h.cluster.CreateNamespace(ctx, "demo")
	return h.cluster.Config(), namespace,
		fmt.Sprintf("Kubernetes %s is ready after %s.", version.GitVersion, story.Seconds(time.Since(began))), err
}

func (h *here) Start(ctx context.Context, client *story.Client) (string, error) {
	return h.replicas.Start(ctx, client)
}
func (h *here) Leases() []types.NamespacedName          { return h.replicas.Leases() }
func (h *here) Running(ctx context.Context) error       { return h.replicas.Running(ctx) }
func (h *here) End(ctx context.Context) (string, error) { return h.replicas.End(ctx) }
func (h *here) ShowLogs()                               { h.replicas.ShowLogs() }
func (h *here) EndLeaders(ctx context.Context, holders []string, replicaSet types.NamespacedName) (string,
	time.Duration, error) {
	return h.replicas.EndLeaders(ctx, holders, replicaSet)
}

func (h *here) Hint(namespace string) string {
	return fmt.Sprintf(`Everything keeps running, with the controllers, until Ctrl-C. In another terminal:

  export KUBECONFIG=%s
  kubectl config set-context --current --namespace %s
  kubectl get deployments,replicasets,pods
  kubectl scale deployment web --replicas 7
  kubectl set image deployment web web=web:3
  kubectl rollout undo deployment web
  kubectl delete pod --all --wait=false
  kubectl get events --field-selector reason=SuccessfulCreate
  go run ./examples/drift -f internal/demo/story/web.yaml

What each controller does, and why:

%s

The logs of the controllers, the API server and all others are in %s`,
		h.cluster.Kubeconfig(), namespace, h.replicas.Pages(), h.cluster.Dir())
}

func (h *here) Close() error {
	if h.cluster == nil {
		return nil
	}
	return h.cluster.Close()
}
