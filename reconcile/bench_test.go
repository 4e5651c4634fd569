package reconcile

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// BenchmarkReconcile is what the loop costs for one key, from the source that names it to the end of its run: for a
// Reconcile that only reads caches, and for one that logs and makes requests, which needs what its ctx holds and the
// channel that tells of its end.
func BenchmarkReconcile(b *testing.B) {
	for _, kind := range []struct {
		name string
		r    Func
	}{
		{"reads", func(context.Context, Key) (Result, error) { return Result{}, nil }},
		{"writes", func(ctx context.Context, _ Key) (Result, error) {
			_ = klog.FromContext(ctx)
			_ = ctx.Done()
			return Result{}, nil
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			c, err := NewController("bench", kind.r, Options{})
			if err != nil {
				b.Fatal(err)
			}
			keys := make([]Key, 10_000)
			for i := range keys {
				keys[i] = Key{Namespace: "default", Name: fmt.Sprint("object-", i)}
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			w := newWorker(c, ctx, ctx, nil)
			defer w.stopTimer()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Enqueue(keys[i%len(keys)])
				w.handleNext()
			}
		})
	}
}

// BenchmarkReached is what one more version of a cache costs while a controller has 50,000 open debts there, of which
// it settles one.
func BenchmarkReached(b *testing.B) {
	const debts = 50_000
	for _, keys := range []int{1, debts} {
		b.Run(fmt.Sprintf("%d keys", keys), func(b *testing.B) {
			l := newLedger(func(Key) {}, func(Key, time.Duration) {})
			pods := listing(l, &still{})
			owe := func(version int) {
				w := podWrite(fmt.Sprint("pod-", version), fmt.Sprint(version), false)
				l.wrote(klog.Background(), Key{Name: fmt.Sprint("key-", version%keys)}, w)
			}
			const first = 100
			for i := range debts {
				owe(first + i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				pods.resourceVersion = fmt.Sprint(first + i)
				l.reached(l.caches[0], "")
				b.StopTimer()
				owe(first + debts + i)
				if open := l.open.Load(); open != debts {
					b.Fatalf("%d debts are open", open)
				}
				b.StartTimer()
			}
		})
	}
}
