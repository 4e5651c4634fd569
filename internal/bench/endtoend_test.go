package main

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	peer "k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

const (
	manyEvents  = 100_000
	manyWorkers = 5
)

// BenchmarkEndToEnd lets a server send 100,000 new pods as fast as they are read, and waits until five workers, who are
// given their keys by a queue, have read each from the cache. It asks for the CPU time of the whole process, so each
// side needs one of its own. With the managers more than that goes on for each key: the time that a call may take, a
// recovered panic, the outcome. controller-runtime also counts, which cannot be switched off. The work here asks its
// ctx for nothing; if it did, for the logger or a request, ours would make a context with a deadline first, and need
// about 2 µs more for each key.
func BenchmarkEndToEnd(b *testing.B) { endToEnd(b, 0) }

// BenchmarkEndToEndLatency sends them at a steady rate, and asks how long it takes from the server's write to the
// worker's read.
func BenchmarkEndToEndLatency(b *testing.B) {
	rate := 50_000
	if r, err := strconv.Atoi(os.Getenv(rateEnv)); err == nil {
		rate = r
	}
	endToEnd(b, rate)
}

func endToEnd(b *testing.B, rate int) {
	for _, side := range []struct {
		name  string
		start func(*testing.B, *rest.Config, func(*corev1.Pod))
	}{
		{"thermostat", ourWorkers},
		{"client-go", peerWorkers},
		{"thermostat,manager", ourManager(0)},
		{"thermostat,manager,forgetful", ourManager(-1)},
		{"controller-runtime", peerManager},
	} {
		b.Run(side.name, func(b *testing.B) {
			c := startServer(b, serverOptions{Pods: manyEvents, Later: true})
			seen, done := make([]time.Duration, manyEvents), make(chan struct{})
			var count atomic.Int64
			side.start(b, c, func(p *corev1.Pod) {
				sent, err := strconv.ParseInt(p.Annotations[sentAt], 10, 64)
				if err != nil {
					b.Error(err)
				}
				n := count.Add(1)
				seen[n-1] = time.Since(time.Unix(0, sent))
				if n == manyEvents {
					close(done)
				}
			})
			heap()
			cpu := cpuTime(b)
			b.ResetTimer()
			send(b, c, rate)
			<-done
			b.StopTimer()
			b.ReportMetric(manyEvents/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64((cpuTime(b) - cpu).Nanoseconds()), "cpu-ns/op")
			if rate > 0 {
				slices.Sort(seen)
				b.ReportMetric(float64(seen[manyEvents/2].Nanoseconds()), "p50-ns")
				b.ReportMetric(float64(seen[manyEvents/100*99].Nanoseconds()), "p99-ns")
			}
		})
	}
}

func ourWorkers(b *testing.B, c *rest.Config, work func(*corev1.Pod)) {
	inf, err := informer.New[*corev1.Pod](podClient(b, c), informer.Options[*corev1.Pod]{})
	must(b, err)
	q := newQueue[informer.Key](b)
	_, err = inf.AddHandler(func(e informer.Event[*corev1.Pod]) { q.Add(e.Key) }, informer.HandlerOptions{Inline: true})
	must(b, err)
	workers(b, q, func(k informer.Key) {
		if p, ok := inf.Get(k); ok {
			work(p)
		}
	})
	background(b, inf.Run)
	must(b, inf.WaitForSync(b.Context()))
}

func peerWorkers(b *testing.B, c *rest.Config, work func(*corev1.Pod)) {
	clientset, err := kubernetes.NewForConfig(c)
	must(b, err)
	pods := informers.NewSharedInformerFactory(clientset, 0).Core().V1().Pods()
	inf, lister := pods.Informer(), pods.Lister()
	q := peer.NewTypedRateLimitingQueue(peer.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	add := func(o any) {
		if k, err := cache.DeletionHandlingObjectToName(o); err == nil {
			q.Add(k)
		}
	}
	_, err = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) },
		DeleteFunc: add})
	must(b, err)
	workers(b, q, func(k cache.ObjectName) {
		if p, err := lister.Pods(k.Namespace).Get(k.Name); err == nil {
			work(p)
		}
	})
	background(b, func(ctx context.Context) error {
		inf.RunWithContext(ctx)
		return nil
	})
	if !cache.WaitForCacheSync(b.Context().Done(), inf.HasSynced) {
		b.Fatal("not synced")
	}
}

// workers starts workers, which end with the benchmark.
func workers[K comparable](b *testing.B, q peer.TypedRateLimitingInterface[K], work func(K)) {
	var running sync.WaitGroup
	for range manyWorkers {
		running.Go(func() {
			for k, down := q.Get(); !down; k, down = q.Get() {
				work(k)
				q.Forget(k)
				q.Done(k)
			}
		})
	}
	b.Cleanup(func() {
		q.ShutDown()
		running.Wait()
	})
}

// ourManager makes a manager whose controller remembers that many runs: zero is the default, and -1 is none.
func ourManager(history int) func(*testing.B, *rest.Config, func(*corev1.Pod)) {
	return func(b *testing.B, c *rest.Config, work func(*corev1.Pod)) { startManager(b, c, work, history) }
}

func startManager(b *testing.B, c *rest.Config, work func(*corev1.Pod), history int) {
	c = rest.CopyConfig(c)
	c.Wrap(reconcile.TrackWrites)
	inf, err := informer.New[*corev1.Pod](podClient(b, c), informer.Options[*corev1.Pod]{})
	must(b, err)
	r := reconcile.Func(func(_ context.Context, k reconcile.Key) (reconcile.Result, error) {
		if p, ok := inf.Get(k); ok {
			work(p)
		}
		return reconcile.Result{}, nil
	})
	controller, err := reconcile.NewController("bench", r, reconcile.Options{Workers: manyWorkers, History: history})
	must(b, err)
	reconcile.For(controller, inf)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{controller}})
	must(b, err)
	background(b, m.Run)
	must(b, inf.WaitForSync(b.Context()))
}

func peerManager(b *testing.B, c *rest.Config, work func(*corev1.Pod)) {
	ctrl.SetLogger(logr.Discard())
	m, err := ctrl.NewManager(c, ctrl.Options{
		Metrics:        metricsserver.Options{BindAddress: "0"},
		MapperProvider: onlyPods,
	})
	must(b, err)
	reader := m.GetClient()
	must(b, ctrl.NewControllerManagedBy(m).Named("bench").For(&corev1.Pod{}).WithOptions(
		controller.Options{MaxConcurrentReconciles: manyWorkers}).
		Complete(ctrlreconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			p := new(corev1.Pod)
			if err := reader.Get(ctx, r.NamespacedName, p); client.IgnoreNotFound(err) != nil {
				return ctrl.Result{}, err
			}
			work(p)
			return ctrl.Result{}, nil
		})))
	background(b, m.Start)
	if !m.GetCache().WaitForCacheSync(b.Context()) {
		b.Fatal("not synced")
	}
	// The cache starts with nothing in it, and this one is asked for its first informer now.
	inf, err := m.GetCache().GetInformer(b.Context(), &corev1.Pod{})
	must(b, err)
	for !inf.HasSynced() {
		time.Sleep(time.Millisecond)
	}
}

// onlyPods spares the server from discovery.
func onlyPods(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	return m, nil
}
