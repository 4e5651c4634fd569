package cluster_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

func TestSharedIsOneCluster(t *testing.T) {
	a, b := cluster.Shared(t), cluster.Shared(t)
	require.Same(t, a, b)
	require.NotEqual(t, a.Namespace(t), b.Namespace(t), "each call gives a fresh namespace")

	version, err := a.Client().Discovery().ServerVersion()
	require.NoError(t, err)
	want := cmp.Or(os.Getenv("THERMOSTAT_KUBERNETES"), "1.37")
	require.Equal(t, want, version.Major+"."+version.Minor, "kubectl needs a version")
}

func TestNodeRunsPods(t *testing.T) {
	c := cluster.Shared(t)
	pods := c.Client().CoreV1().Pods(c.Namespace(t))
	_, err := pods.Create(t.Context(), pod("web"), metav1.CreateOptions{})
	require.NoError(t, err, "the default service account is there, so the pod is admitted")
	require.Eventually(t, func() bool {
		p, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning
	}, time.Minute, 50*time.Millisecond)
}

func TestServiceAccountMayDoWhatItsRulesSay(t *testing.T) {
	c := cluster.Shared(t)
	mine, other := c.Namespace(t), c.Namespace(t)
	rule := rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	list := func(client kubernetes.Interface, namespace string) error {
		_, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}

	config, err := c.ServiceAccount(t.Context(), mine, rule)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	require.NoError(t, list(client, mine))
	require.True(t, apierrors.IsForbidden(list(client, other)))
	require.True(t, apierrors.IsForbidden(list(client, metav1.NamespaceAll)))
	_, err = client.CoreV1().Pods(mine).Create(t.Context(), pod("web"), metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "the rule does not say create")

	config, err = c.ClusterServiceAccount(t.Context(), mine, rule)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, cluster.WriteKubeconfig(path, config))
	config, err = clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	require.NoError(t, list(client, metav1.NamespaceAll))

	_, err = c.ServiceAccount(t.Context(), mine, rbacv1.PolicyRule{})
	require.ErrorContains(t, err, "names no verb")
}

func TestCommandsRunBelowTheCluster(t *testing.T) {
	c := cluster.Shared(t)
	p, err := c.Run(t.Context(), cluster.Command{
		Name: "greeter", Path: "/bin/sh", Args: []string{"-c",
			"trap 'exit 7' TERM; echo hello $WHO; sleep 1000 & wait"}, Env: []string{"WHO=you"},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		log, err := os.ReadFile(p.Log)
		return err == nil && string(log) == "hello you\n"
	}, time.Minute, 10*time.Millisecond)

	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = p.Wait(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	require.NoError(t, p.Stop(t.Context()))
	require.NoError(t, p.Continue(t.Context()))
	again, err := p.Restart(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, p.PID, again.PID)
	status, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, "signal: killed", status)
	require.Eventually(t, func() bool { // the trap is set once the greeting is out
		log, err := os.ReadFile(p.Log)
		return err == nil && string(log) == "hello you\nhello you\n"
	}, time.Minute, 10*time.Millisecond)

	require.NoError(t, again.Terminate(t.Context()))
	status, err = again.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, "exit status 7", status)
	require.ErrorContains(t, again.Kill(t.Context()), "does not run")
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}
