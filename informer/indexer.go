package informer

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/store"
)

// indexer is what an informer holds: the objects, in a table with indexes over it, and what is known of them as a whole.
//
// Its writer is whoever holds the informer's writer token, see [SharedIndexInformer].
type indexer[T any] struct {
	*store.Store[Key, facts, T] // its lock guards the rest, too

	// invalid holds the keys whose present state on the server could not be taken. There is a row, too, if an earlier state could.
	invalid map[Key]rejection
	// resourceVersion is the version of the list or bookmark or object that was applied last; empty before the first list is complete.
	resourceVersion string
	// moved is closed, and forgotten, when resourceVersion changes; nil while nobody waits for that.
	moved chan struct{}
}

// facts are what the pipeline needs to know of an object, and cannot ask its value for.
type facts struct {
	uid             types.UID
	resourceVersion string
	// epoch is that of the list, or of the watch that followed it, which saw the object last. Lists are seconds apart, so it fits.
	epoch    uint32
	deleting bool
}

// rejection says why a state could not be taken, and which list, or the watch after it, saw that last.
type rejection struct {
	err   error
	epoch uint64
}

func newIndexer[T any]() *indexer[T] {
	return &indexer[T]{Store: store.New[Key, facts, T](), invalid: make(map[Key]rejection)}
}

func (x *indexer[T]) rejected(key Key) error {
	x.RLock()
	defer x.RUnlock()
	return x.invalid[key].err
}

func (x *indexer[T]) version() string {
	x.RLock()
	defer x.RUnlock()
	return x.resourceVersion
}

// versionAndMove returns the present version and a channel that is closed when there is another.
func (x *indexer[T]) versionAndMove() (string, <-chan struct{}) {
	x.Lock()
	defer x.Unlock()
	if x.moved == nil {
		x.moved = make(chan struct{})
	}
	return x.resourceVersion, x.moved
}

// item returns what stands in a row. The caller is the writer, or holds the lock.
func (x *indexer[T]) item(row store.Row) item[T] {
	f := x.Facts(row)
	return item[T]{key: x.Key(row), uid: f.uid, resourceVersion: f.resourceVersion, deleting: f.deleting, value: x.Value(row)}
}

// put stores an item whose value was planned. The caller is the writer, and holds the lock.
func (x *indexer[T]) put(it item[T], epoch uint64) {
	x.Put(it.key, facts{uid: it.uid, resourceVersion: it.resourceVersion, epoch: uint32(epoch), deleting: it.deleting}, it.value)
}

// move records that a version has been reached. The caller is the writer.
func (x *indexer[T]) move(resourceVersion string) {
	x.Lock()
	defer x.Unlock()
	x.resourceVersion = resourceVersion
	if x.moved != nil {
		close(x.moved)
		x.moved = nil
	}
}
