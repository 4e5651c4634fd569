package main

import (
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
