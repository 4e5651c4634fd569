package main

import (
	"context"
	"runtime"
	"testing"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// heap is how many bytes are in use on the heap after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what has a finalizer or a cleanup goes with the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// keep lets something live until here.
func keep(x any) { runtime.KeepAlive(x) }

// background runs something until the end of the benchmark.
func background(b *testing.B, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	b.Cleanup(func() {
		stop()
		must(b, <-ended)
	})
}
