package keys

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

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
	h := newTable(false, max(runs, -1))
	if runs == 0 {
		h.past.limit = defaultHistory
	}
	w := &Turn{}
	for _, key := range keys {
		h.Named(key, "For pods", key, "4711", Sighting{})
		w.Began = time.Now()
		r := &Run{Turn: w, Key: key}
		h.Begin(r)
		o := Outcome{Result: "success"}
		if fails {
			o = Outcome{Result: "error", Error: &status.Error{Type: "*errors.errorString"}}
		}
		h.End(r, o, w.Began.Add(time.Millisecond))
	}
	kept := heap() - before
	runtime.KeepAlive(h)
	runtime.KeepAlive(keys)
	return kept
}
