//go:build !client_go_0_35

package clientgo

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// configMapsIn is what a generated factory takes for a constructor. It is the generated one with another package name
// in its last call.
func configMapsIn(namespace string) func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	return func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		maps := client.CoreV1().ConfigMaps(namespace)
		lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return maps.List(ctx, opts)
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return maps.Watch(ctx, opts)
			},
		}, client)
		return NewSharedIndexInformer(lw, &corev1.ConfigMap{}, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
}

func names(t *testing.T, lister listers.ConfigMapNamespaceLister, selector string) []string {
	parsed, err := labels.Parse(selector)
	require.NoError(t, err)
	found, err := lister.List(parsed)
	require.NoError(t, err)
	var names []string
	for _, m := range found {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

func TestAGeneratedFactoryOverTheFakeClientset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := configMap("a", "app")
		here.Namespace = "here"
		clientset := fake.NewClientset(here)
		factory := informers.NewSharedInformerFactory(clientset, 0)
		inf := factory.InformerFor(&corev1.ConfigMap{}, configMapsIn(metav1.NamespaceAll))
		require.Same(t, inf, factory.InformerFor(&corev1.ConfigMap{}, nil), "the factory keeps it")
		lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps("here")
		typed := cache.NewTypedSharedIndexInformer[*corev1.ConfigMap](inf)
		var deleted []string
		_, err := typed.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.ConfigMap]{
			DeleteFunc: func(m cache.DeletedObject[*corev1.ConfigMap]) { deleted = append(deleted, m.GetName()) },
		})
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		factory.StartWithContext(ctx)
		require.NoError(t, factory.WaitForCacheSyncWithContext(ctx).AsError())
		synctest.Wait() // a fake tells its watches of nothing that was before them
		require.Equal(t, []string{"a"}, names(t, lister, "app"))
		maps := clientset.CoreV1().ConfigMaps("here")
		_, err = maps.Create(ctx, configMap("b"), metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, names(t, lister, ""))
		_, err = maps.Update(ctx, configMap("b", "app"), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, maps.Delete(ctx, "a", metav1.DeleteOptions{}))
		synctest.Wait()
		require.Equal(t, []string{"b"}, names(t, lister, "app"))
		require.Equal(t, []string{"a"}, deleted)
		found, err := typed.GetTypedIndexer().ByTypedIndex(cache.NamespaceIndex, "here")
		require.NoError(t, err)
		require.Len(t, found, 1)
		_, err = lister.Get("a")
		require.ErrorContains(t, err, "not found")

		cancel()
		factory.Shutdown() // waits for Run
		require.True(t, inf.IsStopped())
	})
}

func TestAGeneratedFactoryOverAControlPlane(t *testing.T) {
	c := testcluster.Shared(t)
	namespace := c.Namespace(t)
	maps := c.Client().CoreV1().ConfigMaps(namespace)
	_, err := maps.Create(t.Context(), configMap("before", "app"), metav1.CreateOptions{})
	require.NoError(t, err)

	factory := informers.NewSharedInformerFactoryWithOptions(c.Client(), 0, informers.WithNamespace(namespace))
	inf := factory.InformerFor(&corev1.ConfigMap{}, configMapsIn(namespace))
	lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps(namespace)
	var updates, deletions atomic.Int64
	handler, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, _ any) { updates.Add(1) },
		DeleteFunc: func(any) { deletions.Add(1) },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	factory.StartWithContext(ctx)
	require.True(t, cache.WaitFor(ctx, "", inf.HasSyncedChecker(), handler.HasSyncedChecker()))
	require.Equal(t, []string{"before"}, names(t, lister, "app"))

	_, err = maps.Create(ctx, configMap("after"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, err := lister.Get("after"); return err == nil }, time.Minute,
		time.Millisecond)
	changed, err := maps.Update(ctx, configMap("after", "app"), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return slices.Equal(names(t, lister, "app"), []string{"after", "before"}) },
		time.Minute, time.Millisecond)
	require.NoError(t, maps.Delete(ctx, "before", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return updates.Load() == 1 && deletions.Load() == 1 }, time.Minute,
		time.Millisecond)
	require.Equal(t, []string{"after"}, names(t, lister, "app"))
	require.NotEmpty(t, inf.LastSyncResourceVersion())
	held, err := lister.Get("after")
	require.NoError(t, err)
	require.Equal(t, changed.ResourceVersion, held.ResourceVersion)
	cancel()
	factory.Shutdown()
	require.True(t, inf.IsStopped())
}
