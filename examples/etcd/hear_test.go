package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
)

// TestEar looks at a leader, and compares only with what the same leader has counted long enough ago.
func TestEar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ear
		at := func(seconds int) map[uint64]float64 { return map[uint64]float64{1: float64(seconds)} }
		key := reconcile.Key{Name: "a"}
		began := time.Now()
		look := func(leader uint64, after time.Duration) map[uint64]float64 {
			time.Sleep(after)
			return e.compare(key, leader, at(int(time.Since(began)/time.Second)))
		}
		require.Nil(t, look(7, 0))
		require.Nil(t, look(7, time.Second), "too early")
		require.Equal(t, at(0), look(7, time.Second))
		require.Equal(t, at(0), look(7, time.Second), "what is older is kept until the next one is old enough")
		require.Equal(t, at(2), look(7, time.Second))
		require.Equal(t, at(4), look(7, time.Minute))
		require.Nil(t, look(8, 2*time.Second), "another leader")
		require.Nil(t, look(7, 2*time.Second), "the first leader again")
		require.Nil(t, e.compare(reconcile.Key{Name: "b"}, 7, at(0)), "another cluster")
		require.Equal(t, at(68), look(7, 2*time.Second))
		e.forget(key)
		require.Nil(t, look(7, 2*time.Second))
	})
}
