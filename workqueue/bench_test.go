package workqueue

import (
	"fmt"
	"math/rand"
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/util/workqueue"
)

func mk(n int) []types.NamespacedName {
	keys := make([]types.NamespacedName, n)
	for i := range keys {
		keys[i] = types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("name-%d", i)}
	}
	return keys
}

type rl = clientgo.TypedRateLimitingInterface[types.NamespacedName]

func both(b *testing.B, f func(b *testing.B, q rl)) {
	b.Run("ours", func(b *testing.B) { f(b, New(Options[types.NamespacedName]{})) })
	b.Run("client-go", func(b *testing.B) {
		f(b, clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[types.NamespacedName]()))
	})
}

func BenchmarkOneKey(b *testing.B) {
	keys := mk(10000)
	both(b, func(b *testing.B, q rl) {
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			q.Add(keys[i%10000])
			i++
			k, _ := q.Get()
			q.Forget(k)
			q.Done(k)
		}
	})
	b.Run("claim", func(b *testing.B) {
		q := New(Options[types.NamespacedName]{})
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			q.Add(keys[i%10000])
			i++
			c, _ := q.Take(b.Context())
			c.Done()
		}
	})
}

func BenchmarkContended(b *testing.B) {
	keys := mk(100000)
	both(b, func(b *testing.B, q rl) {
		for b.Loop() {
			var p, w sync.WaitGroup
			for i := range 8 {
				p.Go(func() {
					for j := i; j < len(keys); j += 8 {
						q.Add(keys[j])
					}
				})
			}
			var mu sync.Mutex
			total := 0
			fin := make(chan struct{})
			for range 8 {
				w.Go(func() {
					n := 0
					for {
						k, down := q.Get()
						if down {
							return
						}
						q.Forget(k)
						q.Done(k)
						n++
						if n%100 == 0 || k.Name == "" {
							mu.Lock()
							total += 100
							mu.Unlock()
						}
					}
				})
			}
			p.Wait()
			for q.Len() > 0 {
				runtime.Gosched()
			}
			close(fin)
			b.StopTimer()
			q.ShutDown()
			w.Wait()
			if _, ok := q.(*Queue[types.NamespacedName]); ok {
				q = New(Options[types.NamespacedName]{})
			} else {
				q = clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[types.NamespacedName]())
			}
			b.StartTimer()
		}
		b.ReportMetric(float64(b.N)*float64(len(keys))/b.Elapsed().Seconds()/1e6, "Mdone/s")
	})
}

func BenchmarkDelayedMillion(b *testing.B) {
	keys := mk(1000000)
	d := make([]time.Duration, len(keys))
	for i := range d {
		d[i] = time.Hour + time.Duration(rand.Int63n(int64(time.Hour)))
	}
	both(b, func(b *testing.B, q rl) {
		var m1, m2 runtime.MemStats
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			if _, ok := q.(*Queue[types.NamespacedName]); ok {
				q = New(Options[types.NamespacedName]{})
			} else {
				q = clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[types.NamespacedName]())
			}
			runtime.GC()
			runtime.ReadMemStats(&m1)
			b.StartTimer()
			for i, k := range keys {
				q.AddAfter(k, d[i])
			}
			b.StopTimer()
			runtime.GC()
			runtime.ReadMemStats(&m2)
			b.StartTimer()
		}
		b.ReportMetric(float64(m2.HeapAlloc-m1.HeapAlloc)/1e6, "B/key")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1e6/float64(b.N), "ns/key")
		q.ShutDown()
	})
}
