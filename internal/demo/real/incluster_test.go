package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/internal/demo/story"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// withoutBuiltIn leaves the work of the ReplicaSet controller to ours.
var withoutBuiltIn = testcluster.Options{Controllers: []string{"*", "-replicaset-controller"}}

// The demo in a cluster, where this test is the kubelet of the controller's pods: it starts a process for each, and
// ends it when the pod is deleted.
func TestDemoInACluster(t *testing.T) {
	t.Parallel()
	cluster := testcluster.New(t, withoutBuiltIn)
	kustomize, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../../tools/go.mod", "-n",
		"kustomize").Output()
	require.NoError(t, err)
	manifests, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(kustomize)), "build",
		"../../../examples/replicaset/deploy").Output()
	require.NoError(t, err)
	first, err := os.ReadFile("../../../examples/replicaset/deploy/bootstrap.yaml")
	require.NoError(t, err)
	for _, documents := range [][]byte{manifests, first} {
		objects, err := testcluster.Decode(documents)
		require.NoError(t, err)
		require.NoError(t, cluster.Apply(t.Context(), objects...))
	}
	binary := filepath.Join(cluster.Dir(), "replicaset")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary,
		"../../../examples/replicaset").CombinedOutput()
	require.NoError(t, err, string(output))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- beKubelet(ctx, cluster, binary) }()
	var out bytes.Buffer
	say := story.NewNarrator(&out)
	err = story.Run(t.Context(), say, &inCluster{narrator: say, kubeconfig: cluster.Kubeconfig()}, false)
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, err, out.String())
	t.Log(out.String())
}

// beKubelet runs a process for each pod of the controller until ctx ends, which is no error, whatever it was doing.
func beKubelet(ctx context.Context, cluster *testcluster.Cluster, binary string) error {
	if err := runPods(ctx, cluster, binary); ctx.Err() == nil {
		return err
	}
	return nil
}

func runPods(ctx context.Context, cluster *testcluster.Cluster, binary string) error {
	processes := map[string]*testcluster.Process{} // by pod
	for ctx.Err() == nil {
		pods, err := cluster.Client().CoreV1().Pods(deployedIn).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		there := map[string]bool{}
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp != nil {
				continue
			}
			there[pod.Name] = true
			if processes[pod.Name] != nil {
				continue
			}
			args := []string{"--kubeconfig", cluster.Kubeconfig(), "--leader-elect-identity", pod.Name}
			for _, arg := range pod.Spec.Containers[0].Args {
				args = append(args, strings.ReplaceAll(arg, "$(NAMESPACE)", pod.Namespace))
			}
			args = append(args, "--metrics-bind-address=0") // they share one host here
			if processes[pod.Name], err = cluster.Run(ctx,
				testcluster.Command{Name: pod.Name, Path: binary, Args: args}); err != nil {
				return err
			}
		}
		for name, process := range processes {
			if !there[name] {
				delete(processes, name)
				if err := process.Terminate(ctx); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollTime):
		}
	}
	return nil
}

// Without the controller the demo says what is missing.
func TestDemoInAClusterWithoutTheController(t *testing.T) {
	t.Parallel()
	cluster := testcluster.New(t, withoutBuiltIn)
	say := story.NewNarrator(&bytes.Buffer{})
	s := &inCluster{narrator: say, kubeconfig: cluster.Kubeconfig()}
	err := story.Run(t.Context(), say, s, false)
	require.ErrorContains(t, err, "kubectl apply -k examples/replicaset/deploy")
	namespace, err := cluster.Client().CoreV1().Namespaces().Get(t.Context(), s.namespace, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil,
		"the demo's namespace goes with it")
}
