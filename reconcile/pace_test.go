package reconcile_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A client with client-go's default limit makes a run wait where nothing shows it. One line says so.
func TestALimitOnThisSideIsNamedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		config func(base *rest.Config) *rest.Config
		took   time.Duration
		lines  int32
	}{
		"client-go's limit": {func(base *rest.Config) *rest.Config {
			base.QPS = 0
			base.Wrap(reconcile.TrackWrites)
			return base
		}, 6 * time.Second, 1},
		"ClientConfig": {func(base *rest.Config) *rest.Config {
			base.QPS = 0
			return must(reconcile.ClientConfig(base))
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := kubernetes.NewForConfigOrDie(c.config(
					reconciletest.NewServer(t, reconciletest.Options{}).Config())).CoreV1().ConfigMaps("default")
				for _, name := range []string{"a", "b"} {
					_, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
						metav1.CreateOptions{})
					require.NoError(t, err)
				}
				maps, err := informer.New(client, informer.Options[*corev1.ConfigMap]{})
				require.NoError(t, err)
				var runs, lines atomic.Int32
				controller, err := reconcile.NewController("test", reconcile.Func(func(ctx context.Context,
					key reconcile.Key) (reconcile.Result, error) {
					began := time.Now()
					for range 40 {
						if _, err := client.Get(ctx, key.Name, metav1.GetOptions{}); err != nil {
							return reconcile.Result{}, err
						}
					}
					runs.Add(1)
					require.GreaterOrEqual(t, time.Since(began), c.took)
					return reconcile.Result{}, nil
				}), reconcile.Options{Timeout: time.Minute})
				require.NoError(t, err)
				reconcile.For(controller, maps)
				manager, err := reconcile.NewManager(reconcile.ManagerOptions{
					Controllers: []*reconcile.Controller{controller}})
				require.NoError(t, err)
				ctx, stop := context.WithTimeout(klog.NewContext(t.Context(), funcr.New(func(_, line string) {
					if strings.Contains(line, "before its requests") {
						lines.Add(1)
						require.Contains(t, line, `"requests"=40`)
					}
				}, funcr.Options{})), time.Minute)
				defer stop()
				require.NoError(t, manager.Run(ctx))
				require.GreaterOrEqual(t, runs.Load(), int32(2))
				require.Equal(t, c.lines, lines.Load())
			})
		})
	}
}

// The line is about runs of ten requests or more that have spent two seconds and four fifths of their time before them.
func TestThePaceOfALimitedClient(t *testing.T) {
	for name, c := range map[string]struct {
		requests     int
		before, each time.Duration // how long the run does something else before each request, and the request takes
		line         bool
	}{
		"nothing but the limit": {requests: 10, before: 200 * time.Millisecond, line: true},
		"four fifths": {requests: 10, before: 240 * time.Millisecond, each: 60 * time.Millisecond,
			line: true},
		"nearly four fifths":     {requests: 10, before: 239 * time.Millisecond, each: 61 * time.Millisecond},
		"hardly any time":        {requests: 10, before: 190 * time.Millisecond, each: 20 * time.Millisecond},
		"hardly any requests":    {requests: 9, before: 300 * time.Millisecond},
		"the requests take long": {requests: 10, before: 200 * time.Millisecond, each: time.Second},
		"it is over in a moment": {requests: 100, before: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := reconciletest.NewServer(t, reconciletest.Options{}).Config()
				config.QPS = -1
				config.Wrap(func(next http.RoundTripper) http.RoundTripper {
					return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
						if strings.HasSuffix(req.URL.Path, "/a") {
							time.Sleep(c.each)
						}
						return next.RoundTrip(req)
					})
				})
				config.Wrap(reconcile.TrackWrites)
				client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
				_, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
					metav1.CreateOptions{})
				require.NoError(t, err)
				maps, err := informer.New(client, informer.Options[*corev1.ConfigMap]{})
				require.NoError(t, err)
				controller, err := reconcile.NewController("test", reconcile.Func(func(ctx context.Context,
					key reconcile.Key) (reconcile.Result, error) {
					for range c.requests {
						time.Sleep(c.before)
						if _, err := client.Get(ctx, key.Name, metav1.GetOptions{}); err != nil {
							return reconcile.Result{}, err
						}
					}
					return reconcile.Result{}, nil
				}), reconcile.Options{Timeout: time.Minute})
				require.NoError(t, err)
				reconcile.For(controller, maps)
				manager, err := reconcile.NewManager(reconcile.ManagerOptions{
					Controllers: []*reconcile.Controller{controller}})
				require.NoError(t, err)
				var lines atomic.Int32
				ctx, stop := context.WithTimeout(klog.NewContext(t.Context(), funcr.New(func(_, line string) {
					if strings.Contains(line, "before its requests") {
						lines.Add(1)
					}
				}, funcr.Options{})), time.Minute)
				defer stop()
				require.NoError(t, manager.Run(ctx))
				require.Equal(t, c.line, lines.Load() == 1)
			})
		})
	}
}
