package informer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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

// Where nothing has a version a watch cannot be resumed: what was missed is found by a list.
func TestWithoutVersionsTheEndOfAWatchMeansAList(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		inf.listeners = nil // it knows objects by their version
		p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
			list, err := p.podAPI.List(ctx, opts)
			for i := range list.Items {
				list.Items[i].ResourceVersion = ""
			}
			return list, err
		}
		p.onWatch = silence
		run(t, inf)
		synced(t, inf)
		p.Delete("default", "a")
		time.Sleep(20 * time.Minute) // the watchdog ends the watch
		synctest.Wait()
		require.Equal(t, []string{"b"}, names(inf))
	})
}
