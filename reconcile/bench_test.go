package reconcile

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/klog/v2"
)

// BenchmarkReconcile is what the loop costs for one key, from the source that names it to the end of its run: for a Reconcile that only reads caches, and for
// one that logs and makes requests, which needs what its ctx holds and the channel that tells of its end.
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
			defer w.leave()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Enqueue(keys[i%len(keys)])
				w.turn()
			}
		})
	}
}
