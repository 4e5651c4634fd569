package informer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// What the client creates, the cache shows, as far as the options of the cache let it.
func TestNewCached(t *testing.T) { synctest.Test(t, testNewCached) }

func testNewCached(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	maps, err := informer.NewCached(server.Config(), configMaps, informer.Options[*corev1.ConfigMap]{
		LabelSelector: labels.SelectorFromSet(labels.Set{"app": "web"})})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- maps.Cache.Run(ctx) }()
	for name, app := range map[string]string{"a": "web", "b": "other"} {
		_, err := maps.In("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"app": app}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NoError(t, maps.Cache.WaitForResourceVersion(t.Context(), "", list.ResourceVersion))
	require.Equal(t, 1, maps.Cache.Len())
	m, ok := maps.Cache.Get(informer.Key{Namespace: "default", Name: "a"})
	require.True(t, ok)
	require.Equal(t, "ConfigMap", m.Kind)
	stop()
	require.NoError(t, <-ended)

	_, err = informer.NewCached(server.Config(), pods, informer.Options[*corev1.ConfigMap]{})
	require.ErrorContains(t, err, "objects of type *v1.ConfigMap are configmaps, not pods")
	_, err = informer.NewCached(server.Config(), configMaps, informer.Options[*corev1.ConfigMap]{StopGrace: -1})
	require.Error(t, err)
}
