package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// TestMain lets the test binary be the program.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_PROGRAM") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestOnACluster runs each step against a real control plane, with the rights of rbac.yaml.
func TestOnACluster(t *testing.T) {
	for step := 1; step <= last; step++ {
		t.Run(fmt.Sprint("step", step), func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			program := namespace.run(t, step)
			namespace.create(t, 2)
			namespace.hasPods(t, 2)
			require.NoError(t, namespace.pods.Delete(t.Context(), namespace.alive(t)[0], metav1.DeleteOptions{}))
			namespace.hasPods(t, 2)

			require.NoError(t, program.Process.Signal(syscall.SIGTERM))
			require.NoError(t, program.Wait(), program.Stderr)
		})
	}
	t.Run("another process takes over", func(t *testing.T) {
		t.Parallel()
		namespace := newNamespace(t)
		leader := namespace.run(t, last)
		namespace.create(t, 2)
		namespace.hasPods(t, 2)
		namespace.run(t, last)
		require.NoError(t, leader.Process.Kill())
		_ = leader.Wait()
		_, err := namespace.configMaps.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"data":{"pods":"3"}}`),
			metav1.PatchOptions{})
		require.NoError(t, err)
		namespace.hasPods(t, 3)
	})
}

// namespace is one of a real cluster, with a kubeconfig file for the programs.
type namespace struct {
	cluster
	name, kubeconfig string
}

func newNamespace(t *testing.T) namespace {
	c := testcluster.Shared(t)
	n := namespace{name: c.Namespace(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	var err error
	n.cluster, err = connect(c.Config(), n.name)
	require.NoError(t, err)
	documents, err := os.ReadFile("rbac.yaml")
	require.NoError(t, err)
	objects, err := testcluster.Decode(documents)
	require.NoError(t, err)
	var role rbacv1.Role
	for _, o := range objects {
		if o.GetKind() == "Role" {
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
		}
	}
	account, err := c.ServiceAccount(t.Context(), n.name, role.Rules...)
	require.NoError(t, err)
	require.NoError(t, testcluster.WriteKubeconfig(n.kubeconfig, account))
	return n
}

// run starts a process, which ends with the test.
func (n namespace) run(t *testing.T, step int) *exec.Cmd {
	ctx, cancel := context.WithCancel(context.Background())
	program := exec.CommandContext(ctx, os.Args[0], fmt.Sprint(step), "--kubeconfig", n.kubeconfig,
		"--namespace", n.name)
	program.Env = append(os.Environ(), "BE_THE_PROGRAM=1")
	program.Stderr = new(bytes.Buffer)
	require.NoError(t, program.Start())
	t.Cleanup(func() {
		cancel()
		_ = program.Wait()
		if t.Failed() {
			t.Logf("process %d:\n%s", program.Process.Pid, program.Stderr)
		}
	})
	return program
}

func (n namespace) create(t *testing.T, pods int) {
	_, err := n.configMaps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{label: ""}},
		Data:       map[string]string{"pods": fmt.Sprint(pods)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// alive are the names of the pods that are not being deleted.
func (n namespace) alive(t *testing.T) (names []string) {
	list, err := n.pods.List(t.Context(), metav1.ListOptions{LabelSelector: label + "=web"})
	require.NoError(t, err)
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names
}

// hasPods waits until there are as many pods as that, and still are a second later.
func (n namespace) hasPods(t *testing.T, pods int) {
	t.Helper()
	require.Eventually(t, func() bool {
		if len(n.alive(t)) != pods {
			return false
		}
		time.Sleep(time.Second)
		return len(n.alive(t)) == pods
	}, 2*time.Minute, 50*time.Millisecond)
}
