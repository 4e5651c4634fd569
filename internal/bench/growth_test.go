package main

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"
	peer "k8s.io/client-go/util/workqueue"

	"github.com/thermostat-go/thermostat/informer"
)

// BenchmarkGrowthQueue adds n keys, then takes each of them out again; in between it looks at the heap.
func BenchmarkGrowthQueue(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		keys := keys(n)
		eachQueue(b, func(b *testing.B, make func() peer.TypedRateLimitingInterface[key]) {
			var bytes uint64
			for range b.N {
				b.StopTimer()
				q, before := make(), heap()
				b.StartTimer()
				for _, k := range keys {
					q.Add(k)
				}
				b.StopTimer()
				bytes += heap() - before
				b.StartTimer()
				for range keys {
					k, _ := q.Get()
					q.Forget(k)
					q.Done(k)
				}
				q.ShutDown()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
			b.ReportMetric(float64(bytes)/float64(b.N*n), "B/key")
		})
	})
}

// BenchmarkGrowthStore gets each of n objects by its key, from a store with three indexes.
func BenchmarkGrowthStore(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		pods, keys := smallPods(n), make([]informer.Key, n)
		for i := range keys {
			keys[i] = podKey(i)
		}
		measure := func(b *testing.B, fill func() (get func(informer.Key) bool)) {
			before := heap()
			get := fill()
			bytes := heap() - before
			rounds := max(1, 1_000_000/n)
			b.ResetTimer()
			for range b.N * rounds {
				for _, k := range keys {
					if !get(k) {
						b.Fatal("missing")
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n*rounds), "ns/key")
			b.ReportMetric(float64(bytes)/float64(n), "B/key")
		}
		b.Run("thermostat", func(b *testing.B) {
			measure(b, func() func(informer.Key) bool {
				s, _ := ourStore(b, newFeed(), pods)
				return func(k informer.Key) bool {
					_, ok := s.Get(k)
					return ok
				}
			})
		})
		b.Run("client-go", func(b *testing.B) {
			measure(b, func() func(informer.Key) bool {
				s := peerStore(b, pods)
				return func(k informer.Key) bool {
					_, ok, _ := s.GetByKey(cache.NewObjectName(k.Namespace, k.Name).String())
					return ok
				}
			})
		})
		keep(pods)
	})
}

func eachSize(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint("n=", n), func(b *testing.B) { run(b, n) })
	}
}
