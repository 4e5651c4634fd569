package reconcile

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/naming"
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
			defer w.stuckTimer.Stop()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Enqueue(keys[i%len(keys)])
				w.handleNext()
			}
		})
	}
}

// BenchmarkNaming is what an event of an informer costs until its key is queued, and, with run, until the key has been
// reconciled: for keys that are named while many others wait.
func BenchmarkNaming(b *testing.B) {
	names := map[bool]string{false: "event", true: "event and run"}
	for _, run := range []bool{false, true} {
		b.Run(names[run], func(b *testing.B) {
			c, err := NewController("bench", Func(func(context.Context, Key) (Result, error) { return Result{}, nil }),
				Options{})
			if err != nil {
				b.Fatal(err)
			}
			none := debts.New(c.keys, nil, nil) // so no key waits for the cache, which is never complete
			n := &naming.Namer[*corev1.Pod]{Subject: true, Cause: "For pods", Table: c.keys, Ledger: c.ledger,
				Cache: none.CacheOf(newMaps(b)), Add: c.add}
			events := make([]informer.Event[*corev1.Pod], 10_000)
			for i := range events {
				key := Key{Namespace: "default", Name: fmt.Sprint("object-", i)}
				events[i] = informer.Event[*corev1.Pod]{Type: informer.Added, Key: key,
					UID: types.UID(key.Name), ResourceVersion: fmt.Sprint(i), New: &corev1.Pod{}}
				n.Handle(events[i])
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			w := newWorker(c, ctx, ctx, nil)
			defer w.stuckTimer.Stop()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if run {
					w.handleNext()
				}
				n.Handle(events[i%len(events)])
			}
		})
	}
}
