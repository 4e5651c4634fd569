package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer"
)

// BenchmarkInformerUpdate sends updates of 10,000 pods in turn through a watch, and waits until each handler was told
// of each.
func BenchmarkInformerUpdate(b *testing.B) {
	for _, handlers := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("handlers=", handlers), func(b *testing.B) { updates(b, handlers) })
	}
}

func updates(b *testing.B, handlers int) {
	const objects = 10_000
	pods := smallPods(objects)
	// run sends the updates to an informer whose handlers count those that they are told of.
	run := func(b *testing.B, w *watch.FakeWatcher, told []atomic.Int64) {
		// The updates are made beforehand, as they would come from a decoder, and that is another benchmark. Three
		// states of each pod are enough: the one in the store, the next one, and one that nobody looks at any more.
		// More of them would be a heap that the collector has to walk, for both sides, in place of what they do
		// themselves.
		const states = 3
		next, versions := make([]corev1.Pod, states*objects), make([]string, b.N)
		for i := range next {
			next[i] = *pods[i%objects]
		}
		for i := range versions {
			versions[i] = strconv.Itoa(objects + 1 + i)
		}
		heap()
		cpu := cpuTime(b)
		b.ReportAllocs()
		b.ResetTimer()
		// At most window updates are under way. As there are more objects than that, no update can be merged with
		// another one of its object.
		const window = 8000
		for sent := 0; sent < b.N; {
			n := min(window/2, b.N-sent)
			waitFor(told, sent+n-window)
			for i := sent; i < sent+n; i++ {
				p := &next[i%len(next)]
				p.ResourceVersion = versions[i]
				w.Modify(p)
			}
			sent += n
		}
		waitFor(told, b.N)
		b.StopTimer()
		b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
	}
	b.Run("thermostat", func(b *testing.B) {
		f, told := newFeed(), make([]atomic.Int64, handlers)
		inf, err := informer.New[*corev1.Pod](f, informer.Options[*corev1.Pod]{})
		must(b, err)
		for i := range told {
			_, err := inf.AddHandler(func(e informer.Event[*corev1.Pod]) {
				if e.Type == informer.Updated {
					told[i].Add(1)
				}
			}, informer.HandlerOptions{})
			must(b, err)
		}
		background(b, inf.Run)
		f.list(pods)
		must(b, inf.WaitForSync(b.Context()))
		run(b, f.watch, told)
	})
	b.Run("client-go", func(b *testing.B) {
		f, told := newFeed(), make([]atomic.Int64, handlers)
		inf := cache.NewSharedIndexInformer(f.listWatch(), &corev1.Pod{}, 0, cache.Indexers{})
		for i := range told {
			_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any,
				any) {
				told[i].Add(1)
			}})
			must(b, err)
		}
		background(b, func(ctx context.Context) error {
			inf.RunWithContext(ctx)
			return nil
		})
		f.list(pods)
		if !cache.WaitForCacheSync(b.Context().Done(), inf.HasSynced) {
			b.Fatal("not synced")
		}
		run(b, f.watch, told)
	})
}

// waitFor returns when every handler has been told n times.
func waitFor(told []atomic.Int64, n int) {
	for i := range told {
		for told[i].Load() < int64(n) {
			time.Sleep(20 * time.Microsecond)
		}
	}
}
