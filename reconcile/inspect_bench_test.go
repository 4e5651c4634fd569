package reconcile

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

const manyKeys = 100_000

// BenchmarkInspectKeys lists 100,000 keys that wait in the queue, while a goroutine adds a key every 100 µs. The
// longest time of one such add, all locks of the loop included, is longest-ns.
func BenchmarkInspectKeys(b *testing.B) {
	c, err := NewController("test", Func(func(context.Context, Key) (Result, error) { return Result{}, nil }),
		Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range manyKeys {
		c.Enqueue(Key{Namespace: "default", Name: fmt.Sprintf("key-%07d", i)})
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
			c.Enqueue(Key{Namespace: "default", Name: "key-0000007"})
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

// BenchmarkHistory measures what is kept of 10,000 keys after a run of each: one that has failed, one that has nothing
// to say, and one that has failed in a controller that remembers nothing.
func BenchmarkHistory(b *testing.B) {
	for _, side := range []struct {
		name    string
		history int
		fails   bool
	}{{"remembered", 0, true}, {"quiet", 0, false}, {"forgetful", -1, true}} {
		b.Run(side.name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(historyBytes(side.history, side.fails)/defaultHistory, "B/key")
			}
		})
	}
}

// historyBytes returns the bytes that a history keeps of defaultHistory keys.
func historyBytes(runs int, fails bool) float64 {
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	keys := make([]Key, defaultHistory)
	for i := range keys {
		keys[i] = Key{Namespace: "default", Name: fmt.Sprintf("key-%07d", i)}
	}
	before := heap()
	h := newKeyHistory(false, max(runs, -1))
	if runs == 0 {
		h.past.limit = defaultHistory
	}
	w := &worker{Controller: &Controller{history: h}}
	for _, key := range keys {
		h.recordCause(key, "For pods", key, "4711", sighting{})
		w.began, w.claim = time.Now(), workqueue.Claim[Key]{}
		r := &run{worker: w, key: key}
		h.beginRun(r)
		o := outcome{}
		if fails {
			o = outcome{kind: retry, err: context.Canceled, why: &status.Error{Type: "*errors.errorString"}}
		}
		h.endRun(r, o, o.result(), w.began.Add(time.Millisecond))
	}
	kept := heap() - before
	runtime.KeepAlive(h)
	runtime.KeepAlive(keys)
	return kept
}
