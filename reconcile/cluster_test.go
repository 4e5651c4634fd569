package reconcile_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/testcluster"
	"github.com/thermostat-go/thermostat/reconcile"
)

// TestNoDuplicatesBehindASlowWatch runs a controller that gives each parent one child under a generated name, which makes every run on a cache
// older than its own writes visible as a second child. Its watch lags by a twentieth of a second and more. The same controller without TrackWrites fails.
func TestNoDuplicatesBehindASlowWatch(t *testing.T) {
	c := testcluster.Shared(t)
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			const parents = 30
			require.Equal(t, parents, children(t, c, parents, func(cfg *rest.Config) {
				cfg.ContentType = contentType
				cfg.Wrap(reconcile.TrackWrites)
			}))
			require.Greater(t, children(t, c, parents, func(cfg *rest.Config) { cfg.ContentType = contentType }), parents,
				"nothing went wrong without TrackWrites either: the watch is not slow enough to show anything")
		})
	}
}

// children runs the controller for a number of parents and returns how many children they have when all have been named three times.
func children(t *testing.T, c *testcluster.Cluster, parents int, configure func(*rest.Config)) int {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := c.Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return slowWatch{next, 50 * time.Millisecond} })
	configure(cfg)
	namespace := c.Namespace(t)
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(namespace)

	all, err := informer.New[*corev1.ConfigMap](maps, informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	byParent, err := informer.AddIndex(all, func(m *corev1.ConfigMap) []string {
		if parent, ok := m.Labels["parent"]; ok {
			return []string{parent}
		}
		return nil
	})
	require.NoError(t, err)
	controller, err := reconcile.NewController("children", reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		for range byParent.Get(key.Name) {
			return reconcile.Result{}, nil // it has one
		}
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: key.Name + "-", Labels: map[string]string{"parent": key.Name}}}
		_, err := maps.Create(ctx, child, metav1.CreateOptions{})
		return reconcile.Result{}, err
	}), reconcile.Options{Workers: 10})
	require.NoError(t, err)
	// A child's event names its parent; the informer is a source that the ledger can learn from.
	reconcile.Watches(controller, all, func(m *corev1.ConfigMap) []reconcile.Key {
		if parent, ok := m.Labels["parent"]; ok {
			return []reconcile.Key{{Namespace: namespace, Name: parent}}
		}
		return nil
	})
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{controller}})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	require.NoError(t, all.WaitForSync(ctx))
	for range 3 {
		for i := range parents {
			controller.Enqueue(reconcile.Key{Namespace: namespace, Name: fmt.Sprintf("parent-%d", i)})
		}
		time.Sleep(10 * time.Millisecond) // let some be reconciled before they are named again
	}
	require.Eventually(t, func() bool {
		s := controller.Stats()
		return len(byParent.Values()) == parents && s.Queue.Ready+s.Queue.Active+s.Queue.Delayed == 0
	}, 30*time.Second, 50*time.Millisecond)
	cancel()
	require.NoError(t, <-done)

	list, err := c.Client().CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "parent"})
	require.NoError(t, err)
	return len(list.Items)
}

// slowWatch lets everything that a watch tells arrive late.
type slowWatch struct {
	next http.RoundTripper
	lag  time.Duration
}

func (s slowWatch) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err == nil && strings.Contains(req.URL.RawQuery, "watch=") {
		resp.Body = lateBody{resp.Body, s.lag}
	}
	return resp, err
}

type lateBody struct {
	io.ReadCloser
	lag time.Duration
}

func (b lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	time.Sleep(b.lag)
	return n, err
}
