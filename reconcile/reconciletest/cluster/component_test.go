package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

func TestComponentsCanBeDisturbed(t *testing.T) {
	c := cluster.New(t, cluster.Options{})
	ctx := t.Context()
	namespace := c.Namespace(t)
	host := c.Config().Host
	readWithin := func(limit time.Duration) error {
		short, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, err := c.Client().CoreV1().ConfigMaps(namespace).Get(short, "memo", metav1.GetOptions{})
		return err
	}
	read := func() error { return readWithin(time.Minute) }
	_, err := c.Client().CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "memo"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, read())

	for _, component := range []cluster.Component{cluster.APIServer, cluster.Etcd} {
		require.NoError(t, c.Stop(ctx, component))
		require.Error(t, readWithin(time.Second), "%s is stopped", component)
		require.NoError(t, c.Continue(ctx, component))
		require.NoError(t, c.Ready(ctx))
		require.NoError(t, read(), "%s continues", component)

		require.NoError(t, c.Kill(ctx, component))
		require.Error(t, readWithin(time.Second), "%s is killed", component)
		require.ErrorContains(t, c.Kill(ctx, component), "does not run")
		require.NoError(t, c.Restart(ctx, component))
		require.NoError(t, c.Ready(ctx))
		require.NoError(t, read(), "%s is back with its data", component)

		require.NoError(t, c.Stop(ctx, component))
		require.NoError(t, c.Restart(ctx, component), "a stopped one can be restarted")
		require.NoError(t, c.Ready(ctx))
		require.NoError(t, read())
	}
	require.Equal(t, host, c.Config().Host)

	require.NoError(t, c.Kill(ctx, cluster.ControllerManager))
	_, err = c.Client().AppsV1().Deployments(namespace).Create(ctx, deployment("web"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Never(t, func() bool { return replicaSets(t, c.Client(), namespace) > 0 }, time.Second,
		100*time.Millisecond)
	require.NoError(t, c.Restart(ctx, cluster.ControllerManager))
	require.Eventually(t, func() bool { return replicaSets(t, c.Client(), namespace) == 1 }, time.Minute,
		50*time.Millisecond)

	require.NoError(t, c.Terminate(ctx, cluster.Node))
	require.NoError(t, c.Restart(ctx, cluster.Node))
}

func TestControllersCanBeChosen(t *testing.T) {
	c := cluster.New(t, cluster.Options{Controllers: []string{"*", "-replicaset-controller"}})
	namespace := c.Namespace(t)
	_, err := c.Client().AppsV1().Deployments(namespace).Create(t.Context(), deployment("web"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return replicaSets(t, c.Client(), namespace) == 1 }, time.Minute,
		50*time.Millisecond)
	require.Never(t, func() bool {
		pods, err := c.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err != nil || len(pods.Items) > 0
	}, time.Second, 100*time.Millisecond)
}

func TestCloseTakesEverything(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{DisableNode: true})
	require.NoError(t, err)
	p, err := c.Run(t.Context(), cluster.Command{Name: "sleeper", Path: "/bin/sleep", Args: []string{"1000"}})
	require.NoError(t, err)
	require.NoError(t, c.Stop(t.Context(), cluster.APIServer))
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "once is enough, twice does no harm")
	require.NoDirExists(t, c.Dir())
	status, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, "signal: killed", status)
	require.Error(t, c.Stop(t.Context(), cluster.Etcd))
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       pod("").Spec,
			},
		},
	}
}

func replicaSets(t *testing.T, client kubernetes.Interface, namespace string) int {
	list, err := client.AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return -1
	}
	return len(list.Items)
}
