package processnode_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodRunsAndEnds(t *testing.T) {
	w := newWorld(t)
	w.create(w.pod("runs", "say=hello", "wait"))
	pod := w.until("runs", "ready", ready)
	require.Equal(t, corev1.PodRunning, pod.Status.Phase)
	require.Regexp(t, `^127\.`, pod.Status.PodIP)
	require.NotNil(t, pod.Status.ContainerStatuses[0].State.Running)
	w.says("runs", "hello")
	path, err := w.pool.LogFile(w.key("runs"), "c")
	require.NoError(t, err)
	require.NoError(t, w.client.CoreV1().Pods(w.namespace).Delete(t.Context(), "runs", metav1.DeleteOptions{}))
	w.gone("runs")
	require.FileExists(t, path)
}
