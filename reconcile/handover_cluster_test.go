package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/netproxy"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// candidate is one of several processes that run a controller for one key, as far as a test is concerned: a Manager
// with an elector and an informer of its own.
type candidate struct {
	maps *informer.SharedIndexInformer[*corev1.ConfigMap]
	stop context.CancelFunc
	done chan error // what Run has returned
}

// newCandidate starts one whose informer and whose writes take the given configurations; its elector takes cfg.
func newCandidate(t *testing.T, namespace, identity string, cfg, reading *rest.Config,
	r func(ctx context.Context, c *candidate, kube kubernetes.Interface) (reconcile.Result, error)) *candidate {
	t.Helper()
	reading.Wrap(reconcile.TrackWrites)
	writing := rest.CopyConfig(cfg)
	writing.Wrap(reconcile.TrackWrites)
	kube := kubernetes.NewForConfigOrDie(writing)
	c := &candidate{done: make(chan error, 1)}
	var err error
	c.maps, err = informer.New[*corev1.ConfigMap](kubernetes.NewForConfigOrDie(reading).CoreV1().ConfigMaps(namespace),
		informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	elector, err := leaderelection.New(leaderelection.Config{REST: cfg, Namespace: namespace, Name: "lock",
		Identity: identity, SkipFirstWait: true})
	require.NoError(t, err)
	controller, err := reconcile.NewController("children",
		reconcile.Func(func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			return r(ctx, c, kube)
		}), reconcile.Options{})
	require.NoError(t, err)
	reconcile.DependsOn(controller, c.maps)
	controller.Enqueue(reconcile.Key{Namespace: namespace, Name: "parent"})
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{controller},
		Elector: elector})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	t.Cleanup(stop)
	go func() { c.done <- m.Run(ctx) }()
	return c
}

func (c *candidate) has(namespace, name string) bool {
	_, ok := c.maps.Get(reconcile.Key{Namespace: namespace, Name: name})
	return ok
}

// TestTheNextLeaderBeginsWhereTheLastOneEnded has a leader that leaves right after a deletion and a creation, and a
// standby that sees both a second after it could lead. What its first run finds in its cache is what the leader has
// left behind.
func TestTheNextLeaderBeginsWhereTheLastOneEnded(t *testing.T) {
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	_, err := cluster.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "old"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	leads, leave := make(chan struct{}), make(chan struct{})
	var left time.Time // written before the first candidate is done
	first := newCandidate(t, namespace, "first", cluster.Config(), cluster.Config(),
		func(ctx context.Context, c *candidate, kube kubernetes.Interface) (reconcile.Result, error) {
			close(leads)
			<-leave
			if err := kube.CoreV1().ConfigMaps(namespace).Delete(ctx, "old", metav1.DeleteOptions{}); err != nil {
				return reconcile.Result{}, reconcile.Terminal(err)
			}
			_, err := kube.CoreV1().ConfigMaps(namespace).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
			left = time.Now()
			c.stop()
			return reconcile.Result{}, err
		})
	<-leads

	type view struct {
		old, new bool
		at       time.Time
	}
	found := make(chan view, 1)
	proxy, lagging := netproxy.ForConfig(t, cluster.Config())
	second := newCandidate(t, namespace, "second", cluster.Config(), lagging,
		func(_ context.Context, c *candidate, _ kubernetes.Interface) (reconcile.Result, error) {
			found <- view{old: c.has(namespace, "old"), new: c.has(namespace, "new"), at: time.Now()}
			return reconcile.Result{}, nil
		})
	require.NoError(t, second.maps.WaitForSync(t.Context()))
	require.True(t, second.has(namespace, "old"))
	proxy.Delay(time.Second)
	close(leave)
	require.NoError(t, <-first.done)

	begins := <-found
	t.Logf("the next leader's first run began %s after the last write", begins.at.Sub(left).Round(time.Millisecond))
	require.True(t, begins.new, "it was created by the last leader")
	require.False(t, begins.old, "it was deleted by the last leader")
	proxy.Delay(0)
	second.stop()
	require.NoError(t, <-second.done)
}
