package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// here is the stage on this machine: a control plane of its own, and two processes of the controller.
type here struct {
	narrator  *narrator
	cluster   *testcluster.Cluster
	processes map[string]*testcluster.Process // by name: replica-a, which is the first to lead, and replica-b
}

// The lease is shorter than by default (15 s, 10 s, 2 s), so that the standby takes over sooner.
const leaseDuration, renewDeadline, retryPeriod = 8 * time.Second, 4 * time.Second, time.Second

func (h *here) what() string {
	return "A control plane on this machine: etcd, kube-apiserver, kube-controller-manager without its ReplicaSet " +
		"controller, and a stand-in for a node."
}
func (h *here) replicas() string                { return "two processes" }
func (h *here) howItEnds() string               { return "kill -9 the leader" }
func (h *here) images() (older, newer string)   { return "web:1", "web:2" }
func (h *here) lease() (namespace, name string) { return "kube-system", "thermostat-replicaset" }

// crowd is more than the controller's rate limit (a burst of 30, then 20 requests a second) lets it create at once.
func (h *here) crowd() int { return 100 }

func (h *here) open(ctx context.Context) (client kubernetes.Interface, namespace, result string, err error) {
	began := time.Now()
	if h.cluster, err = testcluster.Start(ctx, testcluster.Options{
		Controllers: []string{"*", "-replicaset-controller"}, Log: h.narrator,
	}); err != nil {
		return nil, "", "", err
	}
	version, err := h.cluster.Client().Discovery().ServerVersion()
	if err != nil {
		return nil, "", "", err
	}
	namespace, err = h.cluster.CreateNamespace(ctx, "demo")
	return h.cluster.Client(), namespace,
		fmt.Sprintf("Kubernetes %s is ready after %s.", version.GitVersion, seconds(time.Since(began))), err
}

func (h *here) start(ctx context.Context) (string, error) {
	began := time.Now()
	h.narrator.count("compiling examples/replicaset")
	binary := filepath.Join(h.cluster.Dir(), "replicaset")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary,
		"github.com/thermostat-go/thermostat/examples/replicaset")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build examples/replicaset: %w\n%s", err, output)
	}
	built := time.Since(began)
	h.processes = map[string]*testcluster.Process{}
	namespace, lease := h.lease()
	for _, name := range []string{"replica-a", "replica-b"} {
		process, err := h.cluster.Run(ctx, testcluster.Command{Name: name, Path: binary, Args: []string{
			"--kubeconfig", h.cluster.Kubeconfig(), "--leader-elect-resource-namespace", namespace,
			"--leader-elect-resource-name", lease,
			"--leader-elect-identity", name, "--leader-elect-lease-duration", leaseDuration.String(),
			"--leader-elect-renew-deadline", renewDeadline.String(),
			"--leader-elect-retry-period", retryPeriod.String(), "-v", "1",
		}})
		if err != nil {
			return "", err
		}
		h.processes[name] = process
		if len(h.processes) == 1 { // the first one is to lead, so that the story has one order
			h.narrator.count(fmt.Sprintf("waiting for the lease: a new one is not acquired before %v, in case an "+
				"earlier leader still works", leaseDuration))
			if _, err := awaitLeader(ctx, h.cluster.Client(), h, ""); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("built in %s; replica-a leads after %s, replica-b stands by.", seconds(built),
		seconds(time.Since(began)-built)), nil
}

// running returns an error if a controller has ended by itself.
func (h *here) running(context.Context) error {
	for name, process := range h.processes {
		select {
		case <-process.Ended():
			return fmt.Errorf("%s has ended by itself", name)
		default:
		}
	}
	return nil
}

func (h *here) endLeader(ctx context.Context, holder string) (result string, within time.Duration, err error) {
	leader := h.processes["replica-a"]
	if !strings.HasPrefix(holder, leader.Name) {
		return "", 0, fmt.Errorf("%s should lead, and %s does", leader.Name, holder)
	}
	if err := leader.Kill(ctx); err != nil {
		return "", 0, err
	}
	delete(h.processes, leader.Name)
	return fmt.Sprintf("kill -9 %d: %s has ended, and its lease expires within %v", leader.PID, leader.Name,
		leaseDuration), leaseDuration + 2*retryPeriod, nil
}

func (h *here) end(ctx context.Context) (string, error) {
	left := h.processes["replica-b"]
	began := time.Now()
	if err := left.Terminate(ctx); err != nil {
		return "", err
	}
	delete(h.processes, left.Name)
	status, err := left.Wait(ctx)
	if err != nil {
		return "", err
	}
	if !strings.Contains(status, "exit status 0") {
		return "", fmt.Errorf("%s was told to end and did so with %s", left.Name, status)
	}
	return fmt.Sprintf("%s ended cleanly within %s of a SIGTERM", left.Name, seconds(time.Since(began))), nil
}

func (h *here) hint(namespace string) string {
	return fmt.Sprintf(`Everything keeps running, with two controllers, until Ctrl-C. In another terminal:

  export KUBECONFIG=%s
  kubectl config set-context --current --namespace %s
  kubectl get deployments,replicasets,pods
  kubectl scale deployment %s --replicas 7
  kubectl delete pod --all --wait=false
  kubectl get events --field-selector reason=SuccessfulCreate

The logs of the controllers, the API server and all others are in %s`,
		h.cluster.Kubeconfig(), namespace, app, h.cluster.Dir())
}

// showLogs prints the end of the controllers' logs, whose files are deleted with the cluster.
func (h *here) showLogs() {
	if h.cluster == nil {
		return
	}
	for _, name := range []string{"replica-a", "replica-b"} {
		content, err := os.ReadFile(filepath.Join(h.cluster.Dir(), name+".log"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		h.narrator.text("The end of the log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

func (h *here) close() error {
	if h.cluster == nil {
		return nil
	}
	return h.cluster.Close()
}
