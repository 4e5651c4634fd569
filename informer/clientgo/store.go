package clientgo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/internal/store"
)

// StoreOption changes what NewStore and NewIndexer make. It stands in for cache.StoreOption, which only client-go can
// use.
type StoreOption func(*indexer)

// WithTransformer lets a store hold what fn makes of each object.
func WithTransformer(fn cache.TransformFunc) StoreOption {
	return func(x *indexer) { x.transform = fn }
}

// NewStore makes a store of anything that keyFunc finds a key for.
func NewStore(keyFunc cache.KeyFunc, opts ...StoreOption) cache.Store {
	return newIndexer(keyFunc, cache.Indexers{}, opts...)
}

// NewIndexer makes a store with indexes.
func NewIndexer(keyFunc cache.KeyFunc, indexers cache.Indexers, opts ...StoreOption) cache.Indexer {
	return newIndexer(keyFunc, indexers, opts...)
}

// indexer is a cache.Indexer, and a cache.TransactionStore, on our own table.
type indexer struct {
	keyFunc   cache.KeyFunc
	transform cache.TransformFunc // nil: objects are stored as they come
	packs     packs

	// A goroutine that changes the table holds writer. The index functions, the user's code, run meanwhile: they may
	// read the store but not write to it.
	writer sync.Mutex
	table  *store.Store[string, struct{}, any]
	// Guarded by writer; nil unless the store is an informer's: the keys that were written or deleted by hand,
	// each with the number of the list, as listed tells it, that was the latest to be complete then.
	byHand map[string]int
	listed func() int

	// Guarded by the table's lock, and written with writer held, too. The two maps have the same keys.
	funcs           cache.Indexers
	indexes         map[string]*index
	resourceVersion string
	// versions is told of each resourceVersion; nil: no metric is wanted.
	versions cache.GaugeMetric
}

type index = store.Index[string, string, struct{}, any]

var _ cache.Indexer = (*indexer)(nil)

func newIndexer(keyFunc cache.KeyFunc, funcs cache.Indexers, opts ...StoreOption) *indexer {
	x := &indexer{keyFunc: keyFunc, table: store.New[string, struct{}, any](), funcs: cache.Indexers{},
		indexes: map[string]*index{}}
	for _, opt := range opts {
		opt(x)
	}
	if err := x.AddIndexers(funcs); err != nil {
		panic(err) // there is nothing yet that it could fail on
	}
	return x
}

// keyError is a cache.KeyError that does not show the object in its text.
type keyError struct{ cache.KeyError }

func (e keyError) Error() string {
	return fmt.Sprintf("no key for an object of type %T: %v", e.Obj, e.Err)
}

// As lets errors.As find the cache.KeyError.
func (e keyError) As(target any) bool {
	k, ok := target.(*cache.KeyError)
	if ok {
		*k = e.KeyError
	}
	return ok
}

func (x *indexer) keyOf(obj any) (string, error) {
	key, err := x.keyFunc(obj)
	if err != nil {
		return "", keyError{cache.KeyError{Obj: obj, Err: err}}
	}
	return key, nil
}

func (x *indexer) transformed(obj any) (any, error) {
	if x.transform == nil {
		return obj, nil
	}
	obj, err := x.transform(obj)
	if err != nil {
		return nil, fmt.Errorf("transforming: %w", err)
	}
	return obj, nil
}

// change is one step: to put a value, or to remove it.
type change struct {
	key    string
	obj    any
	remove bool
}

// apply makes changes under one lock. The caller holds writer.
func (x *indexer) apply(changes ...change) error {
	var errs []error
	for _, c := range changes {
		if !c.remove {
			x.table.Plan(c.key, c.obj, func(err error) { errs = append(errs, err) })
		}
	}
	x.table.Lock()
	for _, c := range changes {
		if !c.remove {
			x.table.Put(c.key, struct{}{}, c.obj)
		} else if row, held := x.table.Find(c.key); held {
			x.table.Remove(row)
		}
	}
	x.table.Unlock()
	return errors.Join(errs...)
}

// write makes changes by hand, after which the store is at the version of the last object, if that has one.
func (x *indexer) write(changes ...change) error {
	x.writer.Lock()
	defer x.writer.Unlock()
	for _, c := range changes {
		x.written(c.key)
	}
	err := x.apply(changes...)
	if len(changes) > 0 {
		if object, notOne := meta.Accessor(changes[len(changes)-1].obj); notOne == nil {
			x.Bookmark(object.GetResourceVersion())
		}
	}
	return err
}

// written notes that keys have been changed by hand. The caller holds writer.
func (x *indexer) written(keys ...string) {
	if x.byHand == nil {
		return
	}
	listed := x.listed()
	for _, key := range keys {
		x.byHand[key] = listed
	}
}

// writtenBefore returns, and forgets, the keys that were changed by hand before the latest list was complete. The
// caller holds writer.
func (x *indexer) writtenBefore() (keys []string) {
	if len(x.byHand) == 0 {
		return nil
	}
	latest := x.listed()
	maps.DeleteFunc(x.byHand, func(key string, list int) bool {
		if list < latest {
			keys = append(keys, key)
		}
		return list < latest
	})
	return keys
}

func (x *indexer) Add(obj any) error { return x.Update(obj) }

func (x *indexer) Update(obj any) error {
	key, err := x.keyOf(obj)
	if err != nil {
		return err
	}
	if obj, err = x.transformed(obj); err != nil {
		return err
	}
	return x.write(change{key: key, obj: obj})
}

func (x *indexer) Delete(obj any) error {
	key, err := x.keyOf(obj)
	if err != nil {
		return err
	}
	return x.write(change{key: key, obj: obj, remove: true})
}

func (x *indexer) Replace(list []any, resourceVersion string) error {
	items := make(map[string]any, len(list))
	for _, obj := range list {
		key, err := x.keyOf(obj)
		if err != nil {
			return err
		}
		if items[key], err = x.transformed(obj); err != nil {
			return err
		}
	}
	x.writer.Lock()
	defer x.writer.Unlock()
	keys := slices.Collect(maps.Keys(items)) // twice in the same order
	x.written(keys...)
	x.written(x.table.Keys()...)
	var errs []error
	for _, key := range keys {
		x.table.Plan(key, items[key], func(err error) { errs = append(errs, err) })
	}
	x.table.Lock()
	for row := x.table.Rows(); row > 0; row-- {
		if _, stays := items[x.table.Key(store.Row(row-1))]; !stays {
			x.table.Remove(store.Row(row - 1))
		}
	}
	for _, key := range keys {
		x.table.Put(key, struct{}{}, items[key])
	}
	x.table.Unlock()
	x.Bookmark(resourceVersion)
	return errors.Join(errs...)
}

func (x *indexer) Resync() error { return nil } // meaningless, as client-go says

func (x *indexer) List() []any { return x.packs.objects(x.table.Values()) }

func (x *indexer) ListKeys() []string { return x.table.Keys() }

func (x *indexer) Get(obj any) (item any, exists bool, err error) {
	key, err := x.keyOf(obj)
	if err != nil {
		return nil, false, err
	}
	return x.GetByKey(key)
}

func (x *indexer) GetByKey(key string) (item any, exists bool, err error) {
	item, exists = x.table.Get(key)
	return x.packs.object(item), exists, nil
}

func (x *indexer) Bookmark(resourceVersion string) {
	x.table.Lock()
	x.resourceVersion = resourceVersion
	x.table.Unlock()
	if x.versions != nil {
		x.versions.Set(gauged(resourceVersion))
	}
}

func (x *indexer) LastStoreSyncResourceVersion() string {
	x.table.RLock()
	defer x.table.RUnlock()
	return x.resourceVersion
}

// find returns an index and its function by name.
func (x *indexer) find(name string) (*index, cache.IndexFunc, error) {
	x.table.RLock()
	defer x.table.RUnlock()
	ix, ok := x.indexes[name]
	if !ok {
		// nolint:staticcheck // as client-go writes it
		return nil, nil, fmt.Errorf("Index with name %s does not exist", name)
	}
	return ix, x.funcs[name], nil
}

func (x *indexer) Index(name string, obj any) ([]any, error) {
	ix, fn, err := x.find(name)
	if err != nil {
		return nil, err
	}
	values, err := fn(obj)
	if err != nil {
		return nil, err
	}
	return x.packs.objects(ix.GetAny(values)), nil
}

func (x *indexer) ByIndex(name, value string) ([]any, error) {
	ix, _, err := x.find(name)
	if err != nil {
		return nil, err
	}
	return x.packs.objects(ix.Get(value)), nil
}

func (x *indexer) IndexKeys(name, value string) ([]string, error) {
	ix, _, err := x.find(name)
	if err != nil {
		return nil, err
	}
	keys := ix.Keys(value)
	slices.Sort(keys)
	return keys, nil
}

func (x *indexer) ListIndexFuncValues(name string) []string {
	ix, _, err := x.find(name)
	if err != nil {
		return []string{}
	}
	return ix.Values()
}

func (x *indexer) GetIndexers() cache.Indexers {
	x.table.RLock()
	defer x.table.RUnlock()
	return maps.Clone(x.funcs)
}

// AddIndexers adds indexes, also of what is held already. An object that one of the functions fails on is not found in
// that index; the error says so, but the indexes are there.
func (x *indexer) AddIndexers(funcs cache.Indexers) error {
	x.writer.Lock()
	defer x.writer.Unlock()
	for name := range funcs {
		if _, ok := x.funcs[name]; ok {
			return fmt.Errorf("indexer conflict: there is an index %q already", name)
		}
	}
	var errs []error
	for name, fn := range funcs {
		ix := store.AddIndex(x.table, func(values []string, obj any) ([]string, error) {
			found, err := fn(x.packs.object(obj))
			return append(values, found...), err
		}, func(_ string, err error) { errs = append(errs, fmt.Errorf("index %q: %w", name, err)) })
		x.table.Lock()
		x.funcs[name], x.indexes[name] = fn, ix
		x.table.Unlock()
	}
	return errors.Join(errs...)
}
