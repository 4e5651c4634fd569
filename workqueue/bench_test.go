package workqueue

import (
	"fmt"
	"testing"

	clientgo "k8s.io/client-go/util/workqueue"
)

// The same work for this queue and for client-go's, with keys as controllers have them. The numbers mean something
// side by side only, on one machine that has nothing else to do: go test -bench . -count 10.
// Many workers and long delays: make bench BENCH=queue.

// name is shaped as types.NamespacedName is.
type name struct{ namespace, name string }

func manyKeys(n int) []name {
	keys := make([]name, n)
	for i := range keys {
		keys[i] = name{"default", fmt.Sprint("name-", i)}
	}
	return keys
}

func eachQueue(b *testing.B, run func(b *testing.B, make func() clientgo.TypedRateLimitingInterface[name])) {
	b.Run("thermostat", func(b *testing.B) {
		run(b, func() clientgo.TypedRateLimitingInterface[name] { return newQueue(Options[name]{}) })
	})
	b.Run("client-go", func(b *testing.B) {
		run(b, func() clientgo.TypedRateLimitingInterface[name] {
			return clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[name]())
		})
	})
}

// BenchmarkOneKey is the way of one key through a queue that has no other, one worker, no waiting; 10,000 keys in turn.
func BenchmarkOneKey(b *testing.B) {
	keys := manyKeys(10_000)
	eachQueue(b, func(b *testing.B, make func() clientgo.TypedRateLimitingInterface[name]) {
		q := make()
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			q.Add(keys[i%len(keys)])
			i++
			k, _ := q.Get()
			q.Forget(k)
			q.Done(k)
		}
	})
	variant := func(label string, o Options[name], add AddOptions) {
		b.Run(label, func(b *testing.B) {
			q := newQueue(o)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				q.AddWith(keys[i%len(keys)], add)
				i++
				c, _ := q.Take(b.Context())
				c.Done()
			}
		})
	}
	variant("claims", Options[name]{}, AddOptions{})
	variant("claims,priority", Options[name]{}, AddOptions{Priority: -1})
	variant("claims,group", Options[name]{Group: func(k name) string { return k.namespace }}, AddOptions{})
	variant("claims,metrics", Options[name]{Metrics: &recorder{}}, AddOptions{})
}
