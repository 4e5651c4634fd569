package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
)

const manyKeys = 100_000

// BenchmarkInspectKeys lists 100,000 keys that wait in the queue, while a goroutine adds a key every 100 µs. The
// longest time of one such add, all locks of the loop included, is longest-ns.
func BenchmarkInspectKeys(b *testing.B) {
	c, err := reconcile.NewController("test", reconcile.Func(func(context.Context, reconcile.Key) (reconcile.Result,
		error) {
		return reconcile.Result{}, nil
	}), reconcile.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range manyKeys {
		c.Enqueue(reconcile.Key{Namespace: "default", Name: fmt.Sprintf("key-%07d", i)})
	}
	longest, stop, stopped := time.Duration(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
			}
			began := time.Now()
			c.Enqueue(reconcile.Key{Namespace: "default", Name: "key-0000007"})
			longest = max(longest, time.Since(began))
		}
	}()
	for b.Loop() {
		if n := len(c.InspectKeys()); n != manyKeys {
			b.Fatal(n)
		}
	}
	b.StopTimer()
	close(stop)
	<-stopped
	b.ReportMetric(float64(longest.Nanoseconds()), "longest-ns")
}
