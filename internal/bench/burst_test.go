package main

import (
	"strconv"
	"testing"
	"time"

	peer "k8s.io/client-go/util/workqueue"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/workqueue"
)

// A burst is 500,000 keys or objects, of which 10 are left. What is measured is the share of the burst's heap that is
// still in use, without the objects themselves. client-go's maps and heaps keep the size that they had at most.
const (
	burst     = 500_000
	leftAfter = 10
)

// reportKept reports what is left of the heap that a burst has taken.
func reportKept(b *testing.B, before, most, after uint64) {
	b.ReportMetric(max(0, float64(int64(after-before)))/float64(most-before), "kept/op")
}

// BenchmarkBurstQueue adds the keys, and takes all but ten of them out again.
func BenchmarkBurstQueue(b *testing.B) {
	keys := keys(burst)
	eachQueue(b, func(b *testing.B, make func() peer.TypedRateLimitingInterface[key]) {
		for range b.N {
			before := heap()
			q := make()
			for _, k := range keys {
				q.Add(k)
			}
			most := heap()
			for range burst - leftAfter {
				k, _ := q.Get()
				q.Forget(k)
				q.Done(k)
			}
			reportKept(b, before, most, heap())
			q.ShutDown()
		}
	})
	keep(keys)
}

// BenchmarkBurstLimiter lets all keys fail once, so that each has a back-off, and then all but ten succeed.
func BenchmarkBurstLimiter(b *testing.B) {
	keys := keys(burst)
	measure := func(b *testing.B, make func() peer.TypedRateLimiter[key]) {
		for range b.N {
			before := heap()
			l := make()
			for _, k := range keys {
				l.When(k)
			}
			most := heap()
			for _, k := range keys[leftAfter:] {
				l.Forget(k)
			}
			reportKept(b, before, most, heap())
			keep(l)
		}
	}
	const base, most = 5 * time.Millisecond, 1000 * time.Second
	b.Run("thermostat", func(b *testing.B) {
		measure(b, func() peer.TypedRateLimiter[key] { return workqueue.Exponential[key](base, most, 0) })
	})
	b.Run("client-go", func(b *testing.B) {
		measure(b, func() peer.TypedRateLimiter[key] {
			return peer.NewTypedItemExponentialFailureRateLimiter[key](base, most)
		})
	})
	keep(keys)
}

// longestGet calls get all the time until the function that it returns is called, which returns the longest call. It
// includes what the scheduler and the garbage collector take.
func longestGet(get func()) (stop func() time.Duration) {
	end, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			select {
			case <-end:
				longest <- most
				return
			default:
			}
			began := time.Now()
			get()
			most = max(most, time.Since(began))
		}
	}()
	return func() time.Duration {
		close(end)
		return <-longest
	}
}

// BenchmarkBurstStore deletes all but ten of the objects of a store with three indexes, one after the other, as a watch
// tells of it, while a goroutine gets one of the ten. Of ours it is the whole informer with its queue of changes, of
// the peer the store alone.
func BenchmarkBurstStore(b *testing.B) {
	pods := smallPods(burst)
	b.Run("thermostat", func(b *testing.B) {
		for range b.N {
			before := heap()
			f := newFeed()
			inf, _ := ourStore(b, f, pods)
			most := heap()
			stop := longestGet(func() { inf.Get(informer.KeyOf(pods[0])) })
			for i, p := range pods[leftAfter:] {
				gone := *p
				gone.ResourceVersion = strconv.Itoa(burst + 1 + i)
				f.watch.Delete(&gone)
			}
			last := informer.KeyOf(pods[burst-1])
			must(b, inf.WaitUntil(b.Context(), func() bool {
				_, held := inf.Get(last)
				return !held
			}))
			b.ReportMetric(stop().Seconds(), "longest-sec/op")
			reportKept(b, before, most, heap())
			keep(inf)
		}
	})
	b.Run("client-go", func(b *testing.B) {
		for range b.N {
			before := heap()
			s := peerStore(b, pods)
			most := heap()
			stop := longestGet(func() { _, _, _ = s.Get(pods[0]) })
			for _, p := range pods[leftAfter:] {
				must(b, s.Delete(p))
			}
			b.ReportMetric(stop().Seconds(), "longest-sec/op")
			reportKept(b, before, most, heap())
			keep(s)
		}
	})
	keep(pods)
}
