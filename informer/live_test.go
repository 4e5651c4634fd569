package informer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func TestLiveAsksPastTheCache(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{
		LabelSelector: labels.SelectorFromSet(labels.Set{"app": ""}),
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "node-1"),
		Transform: func(o *corev1.Pod) (*corev1.Pod, error) {
			if o.Name == "bad" {
				return nil, errPicky
			}
			return o, nil
		},
	}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		p.Create(pod("web", "app"))
		p.Create(pod("bad", "app"))

		web, ok, err := inf.Live(t.Context(), named("web"))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "web", web.Name)
		asked := p.requests()
		require.Len(t, asked, 1)
		require.Equal(t, "app=", asked[0].opts.LabelSelector)
		require.Equal(t, "metadata.name=web,metadata.namespace=default,spec.nodeName=node-1",
			asked[0].opts.FieldSelector)

		_, ok, err = inf.Live(t.Context(), named("a"))
		require.NoError(t, err)
		require.False(t, ok, "the selectors of the informer hold")
		_, ok, err = inf.Live(t.Context(), named("bad"))
		require.ErrorIs(t, err, errPicky)
		require.False(t, ok)
		p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) { return nil, errForbidden }
		_, _, err = inf.Live(t.Context(), named("web"))
		require.ErrorIs(t, err, errForbidden)
		require.ErrorContains(t, err, "default/web")
		require.Zero(t, inf.Len())
	})
}

// The version of an object that cannot be held is known nevertheless: the server has it.
func TestVersionsOfTheCacheAndOfTheServer(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true, Transform: func(o *corev1.Pod) (*corev1.Pod, error) {
		if o.Labels["bad"] != "" {
			return nil, errPicky
		}
		return o, nil
	}}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synced(t, inf)
		before, exists := inf.Version(named("a"))
		require.True(t, exists)
		held, _ := inf.Get(named("a"))
		require.Equal(t, Version{UID: held.UID, ResourceVersion: held.ResourceVersion}, before)
		p.Update("default", "a", func(o *corev1.Pod) {
			o.Labels = map[string]string{"bad": "yes"}
			o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		})
		synctest.Wait()
		now, _ := inf.Version(named("a"))
		require.Equal(t, before, now, "its last good state")
		_, exists = inf.Version(named("c"))
		require.False(t, exists)
	})
}

// An object is asked for to be changed and written: what the cache holds shares nothing with it.
func TestWhatLiveReturnsIsTheCallersOwn(t *testing.T) {
	overREST(t, Options[*corev1.Pod]{}, func(t *testing.T, s *overHTTP, inf *informerOfPods) {
		s.api.Create(pod("d", "app"))
		run(t, inf)
		synced(t, inf)
		live, exists, err := inf.Live(t.Context(), named("d"))
		require.NoError(t, err)
		require.True(t, exists)
		held, _ := inf.Get(named("d"))
		require.Equal(t, held, live)
		live.Labels["mine"] = "yes"
		require.NotContains(t, held.Labels, "mine")
	})
}
