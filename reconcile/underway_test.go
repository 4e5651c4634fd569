package reconcile_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestWhateverBecomesOfAWriteThatIsUnderWayItsKeyWaits has a Reconciler that creates a child in a goroutine, and gives
// up waiting for it after a moment. Something names the key all the time. There is one child in the end, and no second
// one at any time, whatever becomes of the first request.
func TestWhateverBecomesOfAWriteThatIsUnderWayItsKeyWaits(t *testing.T) {
	ordinary := func(ctx context.Context) context.Context { return ctx }
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "child", errors.New("no"))
	for name, test := range map[string]struct {
		ctx   func(context.Context) context.Context
		fault reconciletest.Fault // of the first creation
	}{
		"the call's ctx, and the answer is late":        {ordinary, reconciletest.Delay(0, 5*time.Second)},
		"a ctx that goes on, and the answer is late":    {context.WithoutCancel, reconciletest.Delay(0, 5*time.Second)},
		"a ctx that goes on, and the write is late":     {context.WithoutCancel, reconciletest.Delay(5*time.Second, 0)},
		"a ctx that goes on, and the answer is lost":    {context.WithoutCancel, late(reconciletest.LoseAnswer)},
		"a ctx that goes on, and the write is not made": {context.WithoutCancel, late(reconciletest.Reset)},
		"a ctx that goes on, and the write is refused":  {context.WithoutCancel, late(reconciletest.Refuse(refused))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { createInTheBackground(t, test.ctx, test.fault) })
		})
	}
}

// late is a fault after 5 s.
func late(fault reconciletest.Fault) reconciletest.Fault {
	return func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
		time.Sleep(5 * time.Second)
		return fault(ctx, serve)
	}
}

func createInTheBackground(t *testing.T, childCtx func(context.Context) context.Context, fault reconciletest.Fault) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	link := server.Link()
	link.DelayWatches("configmaps", 2*time.Second)
	var first sync.Once
	link.Inject(func(r reconciletest.Request) (f reconciletest.Fault) {
		if r.Writes() {
			first.Do(func() { f = fault })
		}
		return f
	})
	cfg, err := reconcile.ClientConfig(link.Config())
	require.NoError(t, err)
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
	children, err := informer.New(maps, informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	hints := make(chan int)
	key := reconcile.Key{Namespace: "default", Name: "parent"}
	var underWay sync.WaitGroup
	controller, err := reconcile.NewController("children",
		reconcile.Func(func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			for range children.All() {
				return reconcile.Result{}, nil
			}
			created, ctx := make(chan struct{}), childCtx(ctx)
			underWay.Go(func() {
				defer close(created)
				_, _ = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "child-"}},
					metav1.CreateOptions{})
			})
			select {
			case <-created:
			case <-time.After(50 * time.Millisecond):
			}
			return reconcile.Result{}, nil
		}), reconcile.Options{AllowHotLoops: true})
	require.NoError(t, err)
	reconcile.Watches(controller, children, func(*corev1.ConfigMap) []reconcile.Key { return []reconcile.Key{key} })
	reconcile.WatchesChan(controller, "hints", hints, func(int) []reconcile.Key { return []reconcile.Key{key} })
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{controller}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for range 6_000 {
		hints <- 0
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	require.NoError(t, <-done)
	underWay.Wait()
	admin := kubernetes.NewForConfigOrDie(server.Link().Config())
	list, err := admin.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, 1, len(list.Items), "children")
}
