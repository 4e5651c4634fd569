//go:build !race

package workqueue

// The race detector allocates for itself, so "make test" runs this file once more without it.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNoAllocations is about the steady state: keys come and go, workers wait and are woken.
func TestNoAllocations(t *testing.T) {
	keys := manyKeys(100)
	q := newQueue(Options[name]{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for label, cycle := range map[string]func(k name){
		"Get and Done": func(k name) { q.Add(k); q.Get(); q.Forget(k); q.Done(k) },
		"claims": func(k name) {
			q.Add(k)
			c, _ := q.Take(ctx)
			q.Add(k)
			c.Done()
			c, _ = q.Take(ctx)
			c.Done()
		},
		"delays":   func(k name) { q.AddAfter(k, time.Hour); q.Cancel(k) },
		"outcomes": func(k name) { q.Add(k); c, _ := q.Take(ctx); c.DoneAfter(time.Hour) },
	} {
		i := 0
		require.Zero(t, int(testing.AllocsPerRun(1000, func() {
			cycle(keys[i%len(keys)])
			i++
		})), label)
	}

	woken := make(chan struct{})
	go func() {
		for {
			c, err := q.Take(ctx)
			if err != nil {
				close(woken)
				return
			}
			c.Done()
			woken <- struct{}{}
		}
	}()
	require.Zero(t, int(testing.AllocsPerRun(1000, func() {
		q.Add(keys[0])
		<-woken
	})), "a worker that waits")
	cancel()
	<-woken
	priorities := newQueue(Options[name]{Group: func(k name) string { return k.namespace }})
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		priorities.AddWith(keys[0], AddOptions{Priority: -1})
		c, _ := priorities.Take(t.Context())
		c.Done()
	}), 1.0, "priorities and groups")
}
