package informer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWaitForResourceVersion(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Name: "pods"}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		ended, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the pod has been told to go"))
		defer cancel()
		err := inf.WaitForResourceVersion(ended, metav1.NamespaceAll, "1")
		require.ErrorContains(t, err, "informer pods")
		require.ErrorContains(t, err, "told to go")
		require.Error(t, inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, "abc"))
		require.Error(t, inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, ""))

		run(t, inf)
		require.NoError(t, inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, "3"),
			"the first list reaches it")
		waiting := make(chan error, 3)
		for range 3 {
			go func() {
				err := inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, "5")
				if err == nil {
					if c, ok := inf.Get(named("c")); !ok || c.ResourceVersion != "5" {
						err = errors.New("it is not there")
					}
				}
				waiting <- err
			}()
		}
		p.Create(pod("c"))
		synctest.Wait()
		require.Empty(t, waiting)
		p.Update("default", "c", func(*corev1.Pod) {})
		for range 3 {
			require.NoError(t, <-waiting)
		}
		p.Bookmark()
		require.NoError(t, inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, "6"),
			"a bookmark reaches it, too")
		require.NoError(t, inf.WaitForResourceVersion(ended, metav1.NamespaceAll, "2"),
			"what has been reached is reached, whatever the context")
	})
}

func TestWaitForResourceVersionEndsWithTheInformer(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waiting := make(chan error, 1)
		go func() { waiting <- inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, "1000") }()
		require.NoError(t, inf.Run(ctx))
		require.ErrorIs(t, <-waiting, ErrStopped)
		require.ErrorIs(t, inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, "1000"), ErrStopped)
	})
}

// The version that somebody waits for was in a future that will not be.
func TestWaitForResourceVersionEndsWithARewind(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		restore := p.Snapshot()
		for range 10 {
			p.Update("default", "a", func(*corev1.Pod) {})
		}
		synctest.Wait()
		waiting := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { waiting <- inf.WaitForResourceVersion(ctx, metav1.NamespaceAll, "1000") }()
		synctest.Wait() // it waits before the cluster goes back
		restore()
		require.ErrorIs(t, <-waiting, ErrRewound)
		time.Sleep(time.Minute)
		healed(t, p, inf, told)
	})
}
