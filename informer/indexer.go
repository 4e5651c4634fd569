package informer

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/store"
)

// indexer is what an informer holds: the objects, in a table with indexes over it, and what is known of them as a
// whole. Only the [writer] changes it, and may read it without the lock.
type indexer[T any] struct {
	*store.Store[Key, facts, T] // its lock guards the rest, too

	// invalid holds the keys whose present state on the server could not be taken. There is a row, too, if an earlier
	// state could.
	invalid map[Key]rejection
	// untold are the changes of invalid that have not been told yet. They belong to the writer.
	untold []invalidChange
	// rejections is len(invalid), to be read without the lock: mostly it is zero.
	rejections atomic.Int64
}

// facts are what the pipeline needs to know of an object, and cannot ask its value for.
type facts struct {
	uid             types.UID
	resourceVersion string
	// epoch is that of the list, or of the watch that followed it, which saw this state last. Lists are seconds apart,
	// so it fits.
	epoch    uint32
	deleting bool   // the object has a deletionTimestamp
	slice    uint16 // see item
}

func newIndexer[T any]() *indexer[T] {
	return &indexer[T]{Store: store.New[Key, facts, T](), invalid: make(map[Key]rejection)}
}

// rejected returns the rejection of the key's present state, or none.
func (x *indexer[T]) rejected(key Key) rejection {
	if x.rejections.Load() == 0 {
		return rejection{}
	}
	x.RLock()
	defer x.RUnlock()
	return x.invalid[key]
}

// getOrInvalid returns the value of a key, or why there is none although the object exists, both of one moment.
func (x *indexer[T]) getOrInvalid(key Key) (value T, held bool, invalid error) {
	x.RLock()
	defer x.RUnlock()
	if row, ok := x.Find(key); ok {
		return x.Value(row), true, nil
	}
	if r, rejected := x.invalid[key]; rejected {
		invalid = r.InvalidError
	}
	return value, false, invalid
}

// item returns what stands in a row. The caller is the writer, or holds the lock.
func (x *indexer[T]) item(row store.Row) item[T] {
	f := x.Facts(row)
	return item[T]{key: x.Key(row), uid: f.uid, resourceVersion: f.resourceVersion, deleting: f.deleting,
		slice: f.slice, value: x.Value(row)}
}

// stored returns what the store has of a key.
func (x *indexer[T]) stored(key Key) (s stored) {
	x.RLock()
	defer x.RUnlock()
	_, s.rejected = x.invalid[key]
	row, held := x.Find(key)
	s.held = held
	if held {
		s.resourceVersion = x.Facts(row).resourceVersion
	}
	return s
}

// putLocked stores an item whose value was planned, in the row that Find has returned for its key. Only the writer
// calls it.
func (x *indexer[T]) putLocked(row store.Row, it item[T], epoch uint64) {
	x.PutAt(row, it.key, facts{uid: it.uid, resourceVersion: it.resourceVersion, epoch: uint32(epoch),
		deleting: it.deleting, slice: it.slice}, it.value)
}
