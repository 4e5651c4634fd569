package inspect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

const busyKeys = 100_000

// BenchmarkPages asks for the pages of a controller with 100,000 keys, of which 1,000 a second are reconciled, and
// every tenth comes back after an hour.
func BenchmarkPages(b *testing.B) {
	m, c := newBusyManager(b)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(b, <-ended)
	}()
	for c.Inspect().Runs < busyKeys {
		time.Sleep(10 * time.Millisecond)
	}
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; <-tick.C {
			for range 10 {
				c.Enqueue(types.NamespacedName{Namespace: "default", Name: webName(i % busyKeys)})
				i++
			}
		}
	}()
	h := Handler(Options{Manager: m, Unguarded: true})
	for name, path := range map[string]string{"overview": "", "keys": "keys?controller=webs",
		"search": "keys?controller=webs&search=web-4711&sort=runs",
		"key":    "key?controller=webs&namespace=default&name=web-4711",
		"json":   "keys.json?controller=webs&sort=runs"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+path, nil))
				require.Equal(b, http.StatusOK, w.Code)
			}
		})
	}
}

// BenchmarkLoopBesideAPage says how many of its runs a loop loses to a list of 100,000 keys, once a second: with 1,000
// events a second, and with as many as the loop can take. Seconds with and without a list alternate.
func BenchmarkLoopBesideAPage(b *testing.B) {
	b.Run("1000 events a second", func(b *testing.B) { besideAPage(b, 10*time.Millisecond) })
	b.Run("saturated", func(b *testing.B) { besideAPage(b, 0) })
}

// besideAPage has a source of ten events after each pause.
func besideAPage(b *testing.B, pause time.Duration) {
	m, c := newBusyManager(b)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	for c.Inspect().Runs < busyKeys {
		time.Sleep(10 * time.Millisecond)
	}
	var source sync.WaitGroup
	source.Go(func() {
		begin := time.Now()
		for i := 0; ctx.Err() == nil; i++ {
			if pause > 0 && i%10 == 0 {
				time.Sleep(time.Until(begin.Add(time.Duration(i/10) * pause)))
			}
			c.Enqueue(types.NamespacedName{Namespace: "default", Name: webName(i % busyKeys)})
		}
	})
	h := Handler(Options{Manager: m, Unguarded: true})
	var runs, seconds [2]float64 // without and with
	for turn := 0; b.Loop(); turn++ {
		before, begin := c.Inspect().Runs, time.Now()
		if turn%2 == 1 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/keys?controller=webs", nil))
			require.Equal(b, http.StatusOK, w.Code)
		}
		time.Sleep(time.Second - time.Since(begin))
		runs[turn%2] += float64(c.Inspect().Runs - before)
		seconds[turn%2] += time.Since(begin).Seconds()
	}
	stop()
	require.NoError(b, <-ended)
	source.Wait()
	if b.N > 1 {
		alone, beside := runs[0]/seconds[0], runs[1]/seconds[1]
		b.ReportMetric(alone, "runs/s")
		b.ReportMetric((1-beside/alone)*100, "lost-%")
	}
}

func newBusyManager(b *testing.B) (*reconcile.Manager, *reconcile.Controller) {
	maps, err := informer.New(webs{}, informer.Options[*corev1.ConfigMap]{Name: "webs"})
	require.NoError(b, err)
	run := func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
		if key.Name[len(key.Name)-1] == '7' {
			return reconcile.Result{RequeueAfter: time.Hour}, nil
		}
		return reconcile.Result{}, nil
	}
	c, err := reconcile.NewController("webs", reconcile.Func(run), reconcile.Options{Workers: 4})
	require.NoError(b, err)
	reconcile.For(c, maps)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.NoError(b, err)
	return m, c
}

// webs is a client whose objects do not change.
type webs struct{}

func (webs) List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error) {
	l := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range busyKeys {
		l.Items = append(l.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: webName(i), UID: types.UID(webName(i)), ResourceVersion: "1"}})
	}
	return l, nil
}

func (webs) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}
