package informer

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// indexer is the store: entries by key, and indexes over them. It asks nothing of K and V, so that a cache of projections, or of things
// that are no API objects, is the same code.
//
// Readers come at any time. There is one writer at a time, whoever holds the informer's writer token (see [SharedIndexInformer]): only
// so can it look at the entries and run the users' index functions without mu, then take mu for the change alone.
type indexer[K comparable, V any] struct {
	mu sync.RWMutex
	// Guarded by mu; written with mu held by the one writer, which may therefore read without it.
	//
	//	entries[k].key == k
	//	for each slot s of an entry e: s.bucket.members[s.position] == e
	//	for each member of a bucket: exactly one of its slots points back; no bucket is empty
	entries map[K]*entry[K, V]
	indexes []index[K, V]
	// invalid holds the keys whose present state on the server could not be taken. There is an entry, too, if an earlier state could.
	invalid map[K]rejection
	// resourceVersion is the version of the list or bookmark or object that was applied last; empty before the first list is complete.
	resourceVersion string
	// moved is closed, and forgotten, when resourceVersion changes; nil while nobody waits for that.
	moved chan struct{}
}

// entry is what the store holds for one key. Indexes share it, so that a lookup does not have to go back through the map.
type entry[K comparable, V any] struct {
	key             K
	uid             types.UID
	resourceVersion string
	deleting        bool
	// epoch is that of the list, or of the watch that followed it, which saw this entry last.
	epoch uint64
	value V
	slots []slot[K, V]
}

// rejection says why a state could not be taken, and which list, or the watch after it, saw that last.
type rejection struct {
	err   error
	epoch uint64
}

// slot is one membership of an entry: where it stands in which bucket.
type slot[K comparable, V any] struct {
	bucket   *bucket[K, V]
	position int
}

// bucket holds the entries that one index value selects.
type bucket[K comparable, V any] struct {
	members []*entry[K, V]
	// owner is the index that the bucket belongs to; id is its value there.
	owner index[K, V]
	id    any
}

func newIndexer[K comparable, V any]() *indexer[K, V] {
	return &indexer[K, V]{entries: make(map[K]*entry[K, V]), invalid: make(map[K]rejection)}
}

func (x *indexer[K, V]) get(key K) (V, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e, ok := x.entries[key]; ok {
		return e.value, true
	}
	var none V
	return none, false
}

func (x *indexer[K, V]) len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.entries)
}

func (x *indexer[K, V]) rejected(key K) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.invalid[key].err
}

// values copies all values, one consistent snapshot, in no particular order.
func (x *indexer[K, V]) values() []V {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make([]V, 0, len(x.entries))
	for _, e := range x.entries {
		all = append(all, e.value)
	}
	return all
}

func (x *indexer[K, V]) version() string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.resourceVersion
}

// versionAndMove returns the present version and a channel that is closed when there is another.
func (x *indexer[K, V]) versionAndMove() (string, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.moved == nil {
		x.moved = make(chan struct{})
	}
	return x.resourceVersion, x.moved
}

// The rest is the writer's.

// move records that a version has been reached.
func (x *indexer[K, V]) move(resourceVersion string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.resourceVersion = resourceVersion
	if x.moved != nil {
		close(x.moved)
		x.moved = nil
	}
}

// plan runs the index functions on a value that put will store, after those that were planned before it, and tells complain about each that
// failed. They are the user's code: mu is not held.
func (x *indexer[K, V]) plan(key K, value V, complain func(error)) {
	for _, i := range x.indexes {
		if err := i.plan(key, value); err != nil {
			complain(err)
		}
	}
}

// put stores a planned value. mu is held.
func (x *indexer[K, V]) put(key K, uid types.UID, resourceVersion string, epoch uint64, value V) *entry[K, V] {
	e, ok := x.entries[key]
	if !ok {
		e = &entry[K, V]{key: key}
		x.entries[key] = e
	}
	e.uid, e.resourceVersion, e.epoch, e.value = uid, resourceVersion, epoch, value
	for _, i := range x.indexes {
		i.commit(e)
	}
	return e
}

// remove takes an entry out of the store and of every bucket. mu is held.
func (x *indexer[K, V]) remove(e *entry[K, V]) {
	delete(x.entries, e.key)
	for len(e.slots) > 0 {
		e.leave(len(e.slots) - 1)
	}
}

func (e *entry[K, V]) join(b *bucket[K, V]) {
	e.slots = append(e.slots, slot[K, V]{bucket: b, position: len(b.members)})
	b.members = append(b.members, e)
}

// leave gives up the membership in slots[i]. The last member of the bucket moves into the gap, and the last slot into that of the entry.
func (e *entry[K, V]) leave(i int) {
	b, gap := e.slots[i].bucket, e.slots[i].position
	last := len(b.members) - 1
	if moved := b.members[last]; moved != e {
		b.members[gap] = moved
		for j := range moved.slots {
			if moved.slots[j].bucket == b {
				moved.slots[j].position = gap
				break
			}
		}
	}
	b.members[last] = nil
	b.members = b.members[:last]
	if last == 0 {
		b.owner.drop(b)
	}
	end := len(e.slots) - 1
	e.slots[i] = e.slots[end]
	e.slots[end] = slot[K, V]{}
	e.slots = e.slots[:end]
}
