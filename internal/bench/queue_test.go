package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	peer "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/thermostat-go/thermostat/workqueue"
)

type key = types.NamespacedName

func keys(n int) []key {
	keys := make([]key, n)
	for i := range keys {
		keys[i] = key{Namespace: fmt.Sprint("namespace-", i%100), Name: fmt.Sprint("name-", i)}
	}
	return keys
}

func newQueue[K comparable](b *testing.B) *workqueue.Queue[K] {
	q, err := workqueue.New(workqueue.Options[K]{})
	must(b, err)
	return q
}

// eachQueue runs a benchmark on both queues. Each has its default back-off and no name, and so no metrics.
func eachQueue(b *testing.B, run func(b *testing.B, make func() peer.TypedRateLimitingInterface[key])) {
	b.Run("thermostat", func(b *testing.B) {
		run(b, func() peer.TypedRateLimitingInterface[key] { return newQueue[key](b) })
	})
	b.Run("client-go", func(b *testing.B) {
		run(b, func() peer.TypedRateLimitingInterface[key] {
			return peer.NewTypedRateLimitingQueue(peer.DefaultTypedControllerRateLimiter[key]())
		})
	})
}

// BenchmarkQueueOneKey is the way of one key through a queue that has no other: 10,000 keys in turn, one goroutine.
func BenchmarkQueueOneKey(b *testing.B) {
	keys := keys(10_000)
	eachQueue(b, func(b *testing.B, make func() peer.TypedRateLimitingInterface[key]) {
		q := make()
		defer q.ShutDown()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			q.Add(keys[i%len(keys)])
			k, _ := q.Get()
			q.Forget(k)
			q.Done(k)
		}
	})
}

// BenchmarkQueuePriority is the same with one of three priorities for each key. controller-runtime's queue would report
// metrics by default, ours would not: so it is given a provider that drops them.
func BenchmarkQueuePriority(b *testing.B) {
	keys := keys(10_000)
	b.Run("thermostat", func(b *testing.B) {
		q := newQueue[key](b)
		defer q.ShutDown()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			q.AddWith(keys[i%len(keys)], workqueue.AddOptions{Priority: workqueue.Priority(i%3 - 1)})
			k, _ := q.Get()
			q.Forget(k)
			q.Done(k)
		}
	})
	b.Run("controller-runtime", func(b *testing.B) {
		q := priorityqueue.New("bench", func(o *priorityqueue.Opts[key]) { o.MetricProvider = noMetrics{} })
		defer q.ShutDown()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			priority := i%3 - 1
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, keys[i%len(keys)])
			k, _, _ := q.GetWithPriority()
			q.Forget(k)
			q.Done(k)
		}
	})
}

// BenchmarkQueueContended adds 100,000 keys with 8 producers while 8 workers take them.
func BenchmarkQueueContended(b *testing.B) {
	keys := keys(100_000)
	eachQueue(b, func(b *testing.B, make func() peer.TypedRateLimitingInterface[key]) {
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

// BenchmarkQueueDelayed puts a million keys into a queue that are due in an hour or two, in random order.
func BenchmarkQueueDelayed(b *testing.B) {
	keys := keys(1_000_000)
	delays := make([]time.Duration, len(keys))
	for i := range delays {
		delays[i] = time.Hour + rand.N(time.Hour)
	}
	eachQueue(b, func(b *testing.B, make func() peer.TypedRateLimitingInterface[key]) {
		var bytes uint64
		for range b.N {
			b.StopTimer()
			q, before := make(), heap()
			b.StartTimer()
			for i, k := range keys {
				q.AddAfter(k, delays[i])
			}
			b.StopTimer()
			bytes += heap() - before
			q.ShutDown()
			b.StartTimer()
		}
		n := float64(b.N * len(keys))
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/key")
		b.ReportMetric(float64(bytes)/n, "B/key")
	})
}

type noMetrics struct{}

func (noMetrics) NewDepthMetric(string) peer.GaugeMetric                         { return noMetric{} }
func (noMetrics) NewAddsMetric(string) peer.CounterMetric                        { return noMetric{} }
func (noMetrics) NewLatencyMetric(string) peer.HistogramMetric                   { return noMetric{} }
func (noMetrics) NewWorkDurationMetric(string) peer.HistogramMetric              { return noMetric{} }
func (noMetrics) NewUnfinishedWorkSecondsMetric(string) peer.SettableGaugeMetric { return noMetric{} }
func (noMetrics) NewLongestRunningProcessorSecondsMetric(string) peer.SettableGaugeMetric {
	return noMetric{}
}
func (noMetrics) NewRetriesMetric(string) peer.CounterMetric { return noMetric{} }

type noMetric struct{}

func (noMetric) Inc()            {}
func (noMetric) Dec()            {}
func (noMetric) Set(float64)     {}
func (noMetric) Observe(float64) {}
