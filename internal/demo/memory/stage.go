package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/demo/story"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// stage is an API server in this process, a stand-in for a node, and the controllers as processes.
type stage struct {
	narrator *story.Narrator
	programs string
	replicas story.Replicas

	dir     string
	server  *reconciletest.Server
	endNode context.CancelFunc
	working sync.WaitGroup // the node, and the processes' waits
	started []*process
}

const namespace = "demo"

func (*stage) About() story.About {
	return story.About{
		Cluster: "An API server in memory, on a port of this machine, and a stand-in for a node. It starts pods and " +
			"ends them, and runs no containers.",
		Controllers: "Start our controllers. Of those for HPAs and Deployments there are two processes, of which one " +
			"leads and one stands by. Of that for ReplicaSets there are three, all at work, each on its share.",
		Deployments: "Our", Ending: "kill -9 the leaders, and of the three the one that creates these pods,",
		Autoscaler: true,
		Older:      "web:1", Newer: "web:2", Broken: "web:broken",
		// More than the controller's rate limit (a burst of 30, then 20 requests a second) lets it create at once.
		Crowd: 100,
	}
}

func (s *stage) Open(context.Context) (cfg *rest.Config, _, result string, err error) {
	began := time.Now()
	if s.dir, err = os.MkdirTemp("", "thermostat-demo-"); err != nil {
		return nil, "", "", err
	}
	if s.server, err = reconciletest.Start(reconciletest.Options{
		Namespaces: []string{"default", "kube-system", namespace}, Seed: uint64(began.UnixNano()),
		Aggregated: map[schema.GroupVersion]http.Handler{metricsAPI: http.HandlerFunc(s.metrics)},
	}); err != nil {
		return nil, "", "", err
	}
	listening := s.server.Link().Listen()
	if err := os.WriteFile(s.kubeconfig(), fmt.Appendf(nil, kubeconfig, listening.Host, namespace), 0o600); err != nil {
		return nil, "", "", err
	}
	node, err := newNode(s.server.Config(), s.narrator)
	if err != nil {
		return nil, "", "", err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.endNode = cancel
	s.working.Go(func() { node.run(ctx) })
	s.replicas = story.Replicas{Narrator: s.narrator, Controllers: story.Controllers, Flags: story.Flags,
		Programs: s.programs, Kubeconfig: s.kubeconfig(), Logs: s.dir, Run: s.run}
	return listening, namespace, fmt.Sprintf("%s is ready after %s.", listening.Host, story.Seconds(time.Since(began))),
		nil
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: demo, cluster: {server: %q}}]
contexts: [{name: demo, context: {cluster: demo, namespace: %q}}]
current-context: demo
`

func (s *stage) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

func (s *stage) Start(ctx context.Context, client *story.Client) (string, error) {
	return s.replicas.Start(ctx, client)
}
func (s *stage) Leases() []types.NamespacedName          { return s.replicas.Leases() }
func (s *stage) Running(ctx context.Context) error       { return s.replicas.Running(ctx) }
func (s *stage) End(ctx context.Context) (string, error) { return s.replicas.End(ctx) }
func (s *stage) ShowLogs()                               { s.replicas.ShowLogs() }
func (s *stage) EndLeaders(ctx context.Context, holders []string, replicaSet types.NamespacedName) (string,
	time.Duration, error) {
	return s.replicas.EndLeaders(ctx, holders, replicaSet)
}

func (s *stage) Hint(namespace string) string {
	return fmt.Sprintf(`Everything keeps running, with all controllers, until Ctrl-C. In another terminal:

  export KUBECONFIG=%s
  kubectl get deployments,replicasets,pods
  kubectl rollout status deployment web
  kubectl scale deployment web --replicas 7
  kubectl set image deployment web web=web:3
  kubectl rollout undo deployment web
  kubectl delete pod --all --wait=false
  kubectl describe deployment web
  go run ./examples/drift -f internal/demo/story/web.yaml

kubectl get shows names and ages, because the server makes no tables; -o yaml and describe show the rest. kubectl logs,
exec, attach, port-forward, cp, drain and top do not work: no containers run. What else the server has not it refuses
with "not modelled".

What each controller does, and why:

%s

The logs of the controllers are in %s`, s.kubeconfig(), s.replicas.Pages(), s.dir)
}

// Close ends the processes, the node and the server, in this order, and deletes their files.
func (s *stage) Close() error {
	var failed error
	for _, p := range s.started {
		failed = errors.Join(failed, p.Kill(context.Background()))
	}
	if s.endNode != nil {
		s.endNode()
	}
	s.working.Wait()
	if s.server != nil {
		s.server.Close()
	}
	return errors.Join(failed, os.RemoveAll(s.dir))
}
