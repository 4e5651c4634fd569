package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer"
)

// BenchmarkInformerUpdate sends updates of 10,000 pods in turn through a watch, and waits until each handler was told of each.
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
		next := make([]*corev1.Pod, b.N) // beforehand, as they would come from a decoder, and that is another benchmark
		for i := range next {
			p := *pods[i%objects]
			p.ResourceVersion = fmt.Sprint(objects + 1 + i)
			next[i] = &p
		}
		heap()
		cpu := cpuTime(b)
		b.ReportAllocs()
		b.ResetTimer()
		// At most window updates are under way. As there are more objects than that, no update can be merged with another one of its object.
		const window = 8000
		for sent := 0; sent < len(next); {
			n := min(window/2, len(next)-sent)
			waitFor(told, sent+n-window)
			for _, p := range next[sent : sent+n] {
				w.Modify(p)
			}
			sent += n
		}
		waitFor(told, len(next))
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
			_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { told[i].Add(1) }})
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
