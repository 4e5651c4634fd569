package informer

import (
	"reflect"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/informer/internal/weigh"
	"github.com/thermostat-go/thermostat/internal/store"
)

// weighEvery is how long an estimate holds if the number of objects hardly changes.
const weighEvery = 5 * time.Minute

// weight is the latest estimate of how much memory a store takes: see [Health].Bytes. Nothing is counted while objects
// come and go: who asks pays for it.
type weight[T any] struct {
	mu sync.Mutex
	// Guarded by mu: the estimate, of when it is, and how many objects there were.
	bytes   int
	at      time.Time
	objects int
}

func (w *weight[T]) get(from *indexer[T]) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	objects := from.Len()
	if changed := max(objects-w.objects, w.objects-objects); changed*8 > objects || time.Since(w.at) >= weighEvery {
		w.bytes, w.objects, w.at = estimate(from), objects, time.Now()
	}
	return w.bytes
}

// weighed is what is weighed of an object besides its row in the table.
type weighed[T any] struct {
	Key             Key
	UID             string
	ResourceVersion string
	Value           T
}

// estimate weighs a sample of the objects. It holds no lock meanwhile: objects of a cache do not change.
func estimate[T any](from *indexer[T]) int {
	var blocks [][]weighed[T]
	from.RLock()
	rows, table := from.Rows(), from.Bytes()
	size := min(weigh.BlockSize, (rows+weigh.Blocks-1)/weigh.Blocks)
	for b := range weigh.Blocks {
		first := rows * b / weigh.Blocks
		var block []weighed[T]
		for row := first; row < min(first+size, rows*(b+1)/weigh.Blocks); row++ {
			r := store.Row(row)
			f := from.Facts(r)
			block = append(block, weighed[T]{from.Key(r), string(f.uid), f.resourceVersion, from.Value(r)})
		}
		blocks = append(blocks, block)
	}
	from.RUnlock()
	var sample weigh.Sample
	for _, block := range blocks {
		sample.NextBlock()
		for _, w := range block {
			sample.Add(reflect.ValueOf(w))
		}
	}
	return table + sample.Total(rows)
}
