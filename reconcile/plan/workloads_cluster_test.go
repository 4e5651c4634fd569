package plan_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAHealthyWorldGivesADaemonSetItsPods is on a real control plane, since the server in memory has no DaemonSets.
func TestAHealthyWorldGivesADaemonSetItsPods(t *testing.T) {
	c := audited(t)
	namespace, ctx := c.Namespace(t), t.Context()
	disk := map[string]string{"disk": namespace}
	for n := range 2 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(namespace, "-", n), Labels: disk}}
		_, err := c.Client().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, c.Client().CoreV1().Nodes().Delete(context.WithoutCancel(ctx), node.Name,
				metav1.DeleteOptions{}))
		})
	}
	h := newHealthy(t, c.reader)
	sets := h.AppsV1().DaemonSets(namespace)
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: podLabels}, Template: template("agent:1")}}
	set.Spec.Template.Spec.NodeSelector = disk
	_, err := sets.Create(ctx, set, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, repeat(2, "agent-* agent:1"), h.settleIn(namespace))
	set, err = sets.Get(ctx, "agent", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, set.Status.NumberReady)
	set.Spec.Template.Spec.Containers[0].Image = "agent:2"
	_, err = sets.Update(ctx, set, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, repeat(2, "agent-* agent:2"), h.settleIn(namespace))
	pods, err := h.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.NoError(t, h.CoreV1().Pods(namespace).Delete(ctx, pods.Items[0].Name, metav1.DeleteOptions{}))
	require.Equal(t, repeat(2, "agent-* agent:2"), h.settleIn(namespace))
	c.requireNoWrites(t)
}
