package inspect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// BenchmarkPages asks for the pages of a controller with 100,000 keys of which 1,000 a second are reconciled.
func BenchmarkPages(b *testing.B) {
	server := reconciletest.NewServer(b, reconciletest.Options{})
	cfg, err := reconcile.ClientConfig(server.Config())
	require.NoError(b, err)
	m, c := newBusyManager(b, cfg, 100_000)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(b, <-ended)
	}()
	for c.Inspect().Runs < 100_000 {
		time.Sleep(10 * time.Millisecond)
	}
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; <-tick.C {
			for range 10 {
				c.Enqueue(types.NamespacedName{Namespace: "default", Name: webName(i % 100_000)})
				i++
			}
		}
	}()
	h := Handler(Options{Manager: m, Unguarded: true})
	for name, path := range map[string]string{"overview": "", "keys": "keys?controller=webs",
		"search": "keys?controller=webs&search=web-4711&sort=runs",
		"key":    "key?controller=webs&namespace=default&name=web-4711"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+path, nil))
				require.Equal(b, http.StatusOK, w.Code)
			}
		})
	}
}

// newBusyManager makes a Manager with n keys.
func newBusyManager(b *testing.B, cfg *rest.Config, n int) (*reconcile.Manager, *reconcile.Controller) {
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(b, err)
	maps, err := informer.New[*corev1.ConfigMap](client.CoreV1().ConfigMaps(metav1.NamespaceAll),
		informer.Options[*corev1.ConfigMap]{Name: "configmaps"})
	require.NoError(b, err)
	c, err := reconcile.NewController("webs", reconcile.Func(func(_ context.Context, key reconcile.Key) (reconcile.Result,
		error) {
		if key.Name[len(key.Name)-1] == '7' {
			return reconcile.Result{RequeueAfter: time.Hour}, nil
		}
		return reconcile.Result{}, nil
	}), reconcile.Options{Workers: 4})
	require.NoError(b, err)
	reconcile.For(c, maps)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.NoError(b, err)
	for i := range n {
		_, err := client.CoreV1().ConfigMaps("default").Create(b.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: webName(i)}}, metav1.CreateOptions{})
		require.NoError(b, err)
	}
	return m, c
}
