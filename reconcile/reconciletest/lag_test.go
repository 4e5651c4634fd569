package reconciletest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestLagBehind is about a server of several that was left behind: what comes from its cache is old.
func TestLagBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := NewServer(t, Options{})
		maps := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps("default")
		create := func(name string) *corev1.ConfigMap {
			m, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
			require.NoError(t, err)
			return m
		}
		first := create("a")
		version := server.Version()
		link := server.Link()
		link.LagBehind(version)
		second := create("b")
		behind := kubernetes.NewForConfigOrDie(link.Config()).CoreV1().ConfigMaps("default")

		names := func(o metav1.ListOptions) (all []string) {
			list, err := behind.List(t.Context(), o)
			require.NoError(t, err)
			for _, m := range list.Items {
				all = append(all, m.Name)
			}
			return all
		}
		require.Equal(t, []string{"a"}, names(metav1.ListOptions{ResourceVersion: "0"}))
		require.Equal(t, []string{"a"}, names(metav1.ListOptions{ResourceVersion: first.ResourceVersion}))
		require.Equal(t, []string{"a", "b"}, names(metav1.ListOptions{}), "a consistent list")
		_, err := behind.Get(t.Context(), "b", metav1.GetOptions{ResourceVersion: "0"})
		require.True(t, apierrors.IsNotFound(err), err)
		_, err = behind.Get(t.Context(), "b", metav1.GetOptions{})
		require.NoError(t, err)

		began := time.Now()
		_, err = behind.List(t.Context(), metav1.ListOptions{ResourceVersion: second.ResourceVersion})
		require.ErrorContains(t, err, "Too large resource version")
		require.GreaterOrEqual(t, time.Since(began), patience, "client-go tries again")

		yes := true
		_, err = behind.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		require.True(t, apierrors.IsInvalid(err), err)

		w, err := behind.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
		require.NoError(t, err)
		defer w.Stop()
		synctest.Wait()
		require.Empty(t, w.ResultChan(), "the cache has not seen it")
		link.LagBehind(0)
		event := <-w.ResultChan()
		require.Equal(t, "b", event.Object.(*corev1.ConfigMap).Name)
	})
}
