package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// TestAReconcilerWithAFakeClientset is what the package's doc says of testing one.
func TestAReconcilerWithAFakeClientset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset(configMap("parent"))
		client := clientset.CoreV1().ConfigMaps("default")
		maps, err := informer.New[*corev1.ConfigMap](client,
			informer.Options[*corev1.ConfigMap]{DisableWatchList: true})
		require.NoError(t, err)
		var told error
		r := reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			if _, ok := maps.Get(reconcile.Key{Namespace: key.Namespace, Name: "child"}); ok {
				return reconcile.Result{}, nil
			}
			child, err := client.Create(ctx, configMap("child"), metav1.CreateOptions{})
			if err == nil {
				told = reconcile.Wrote(ctx, maps, child)
			}
			return reconcile.Result{}, err
		})

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- maps.Run(ctx) }()
		synctest.Wait()
		_, err = r.Reconcile(ctx, parent)
		require.NoError(t, err)
		require.ErrorContains(t, told, "the ctx is not that of a call of Reconcile")
		synctest.Wait()
		_, err = r.Reconcile(ctx, parent)
		require.NoError(t, err)
		writes := 0
		for _, a := range clientset.Actions() {
			if a.GetVerb() == "create" {
				writes++
			}
		}
		require.Equal(t, 1, writes)
		cancel()
		require.NoError(t, <-ended)

		require.NoError(t, client.Delete(t.Context(), "child", metav1.DeleteOptions{}))
		maps, err = informer.New[*corev1.ConfigMap](client, informer.Options[*corev1.ConfigMap]{DisableWatchList: true})
		require.NoError(t, err)
		c := newController(t, r, reconcile.Options{})
		reconcile.DependsOn(c, maps)
		c.Enqueue(parent)
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		require.ErrorContains(t, told, "a fake client answers without them")
	})
}
