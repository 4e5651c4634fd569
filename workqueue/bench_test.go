package workqueue

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"
)

// The same work for this queue and for client-go's, with keys as controllers have them. The numbers mean something
// side by side only, on one machine that has nothing else to do: go test -bench . -count 10.

// name is shaped as types.NamespacedName is.
type name struct{ namespace, name string }

func manyKeys(n int) []name {
	keys := make([]name, n)
	for i := range keys {
		keys[i] = name{"default", fmt.Sprint("name-", i)}
	}
	return keys
}

func eachQueue(b *testing.B, run func(b *testing.B, make func() clientgo.TypedRateLimitingInterface[name])) {
	b.Run("thermostat", func(b *testing.B) {
		run(b, func() clientgo.TypedRateLimitingInterface[name] { return New(Options[name]{}) })
	})
	b.Run("client-go", func(b *testing.B) {
		run(b, func() clientgo.TypedRateLimitingInterface[name] {
			return clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[name]())
		})
	})
}

// BenchmarkOneKey is the way of one key through a queue that has no other, one worker, no waiting; 10,000 keys in turn.
func BenchmarkOneKey(b *testing.B) {
	keys := manyKeys(10_000)
	eachQueue(b, func(b *testing.B, make func() clientgo.TypedRateLimitingInterface[name]) {
		q := make()
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			q.Add(keys[i%len(keys)])
			i++
			k, _ := q.Get()
			q.Forget(k)
			q.Done(k)
		}
	})
	variant := func(label string, o Options[name], add AddOptions) {
		b.Run(label, func(b *testing.B) {
			q := New(o)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				q.AddWith(keys[i%len(keys)], add)
				i++
				c, _ := q.Take(b.Context())
				c.Done()
			}
		})
	}
	variant("claims", Options[name]{}, AddOptions{})
	variant("claims,priority", Options[name]{}, AddOptions{Priority: -1})
	variant("claims,group", Options[name]{Group: func(k name) string { return k.namespace }}, AddOptions{})
	variant("claims,metrics", Options[name]{Metrics: &recorder{}}, AddOptions{})
}

// BenchmarkContended adds 100,000 keys with 8 producers while 8 workers take them.
func BenchmarkContended(b *testing.B) {
	keys := manyKeys(100_000)
	eachQueue(b, func(b *testing.B, make func() clientgo.TypedRateLimitingInterface[name]) {
		for b.Loop() {
			q := make()
			var producers, workers sync.WaitGroup
			for i := range 8 {
				producers.Go(func() {
					for j := i; j < len(keys); j += 8 {
						q.Add(keys[j])
					}
				})
				workers.Go(func() {
					for k, down := q.Get(); !down; k, down = q.Get() {
						q.Forget(k)
						q.Done(k)
					}
				})
			}
			producers.Wait()
			q.ShutDown()
			workers.Wait()
		}
		b.ReportMetric(float64(b.N*len(keys))/b.Elapsed().Seconds(), "keys/s")
	})
}

// BenchmarkDelayed puts keys into a queue that are due in an hour or two, in random order.
func BenchmarkDelayed(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		keys, delays := manyKeys(n), make([]time.Duration, n)
		for i := range delays {
			delays[i] = time.Hour + rand.N(time.Hour)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			eachQueue(b, func(b *testing.B, make func() clientgo.TypedRateLimitingInterface[name]) {
				var before, after runtime.MemStats
				for b.Loop() {
					b.StopTimer()
					q := make()
					runtime.GC()
					runtime.ReadMemStats(&before)
					b.StartTimer()
					for i, k := range keys {
						q.AddAfter(k, delays[i])
					}
					b.StopTimer()
					runtime.GC()
					runtime.ReadMemStats(&after)
					q.ShutDown()
					b.StartTimer()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "B/key")
			})
		})
	}
}
