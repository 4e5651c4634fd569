package informer

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// What doc.go says about tests.
func TestWorksWithTheFakeClientset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset(pod("a"))
		pods := clientset.CoreV1().Pods(metav1.NamespaceAll)
		inf, err := New[*corev1.Pod](pods, Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		require.Equal(t, []string{"a"}, names(inf), "%s", inf.Health())

		_, err = clientset.CoreV1().Pods("default").Create(t.Context(), pod("b"), metav1.CreateOptions{})
		require.NoError(t, err)
		changed := pod("a")
		changed.Spec.NodeName = "node-1"
		_, err = clientset.CoreV1().Pods("default").Update(t.Context(), changed, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, names(inf), "%s", inf.Health())
		a, _ := inf.Get(Key{Namespace: "default", Name: "a"})
		require.Equal(t, "node-1", a.Spec.NodeName)
		require.NoError(t, clientset.CoreV1().Pods("default").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		synctest.Wait()
		require.Equal(t, []string{"b"}, names(inf), "%s", inf.Health())
		require.Equal(t, 1, inf.Health().Lists)
	})
}
