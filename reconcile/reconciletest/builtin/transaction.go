package builtin

import (
	"context"
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// transaction is what stands for etcd in one write: it holds the object as it is stored, if there is one, and notes
// what is to be stored in its place. The server in memory stores it, or finds that somebody else was faster, and asks
// again.
type transaction struct {
	live    runtime.Object // nil: there is none
	is      runtime.Object
	deleted bool
}

type transactionKey struct{}

// begin returns a context in which every store has the transaction for its storage.
func (t *transaction) begin(ctx context.Context) context.Context {
	return context.WithValue(ctx, transactionKey{}, t)
}

// of returns the transaction of a context.
func of(ctx context.Context) (*transaction, error) {
	t, ok := ctx.Value(transactionKey{}).(*transaction)
	if !ok {
		return nil, errors.New("builtin: a storage was asked outside of a write")
	}
	return t, nil
}

// storages makes the storages of the stores.
type storages struct{}

func (storages) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	decorator := func(_ *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error),
		_, _ func() runtime.Object, attributes storage.AttrFunc, _ storage.IndexerFuncs,
		_ *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		return &transactions{attributes: attributes}, func() {}, nil
	}
	return generic.RESTOptions{StorageConfig: &storagebackend.ConfigForResource{}, Decorator: decorator,
		EnableGarbageCollection: true, DeleteCollectionWorkers: 1, ResourcePrefix: resource.String()}, nil
}

// transactions is the storage of a store: that of the transaction that a context has. It is for writes only: the server
// in memory reads by itself.
type transactions struct {
	attributes storage.AttrFunc
}

var errNotAsked = errors.New("builtin: registries are not asked for this")

func (*transactions) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// Create notes a new object.
func (*transactions) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	t, err := of(ctx)
	if err != nil {
		return err
	}
	if t.live != nil {
		return storage.NewKeyExistsError(key, 0)
	}
	t.is = obj.DeepCopyObject()
	assign(out, obj)
	return nil
}

// GuaranteedUpdate notes what an update makes of the object.
func (*transactions) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	t, err := of(ctx)
	if err != nil {
		return err
	}
	if t.live == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	if err := preconditions.Check(key, t.live); err != nil {
		return err
	}
	version, err := storage.APIObjectVersioner{}.ObjectResourceVersion(t.live)
	if err != nil {
		return err
	}
	is, _, err := update(t.live.DeepCopyObject(), storage.ResponseMeta{ResourceVersion: version})
	if err != nil {
		return err
	}
	t.is = is.DeepCopyObject()
	assign(destination, is)
	return nil
}

// Delete notes that an update was the last thing that kept the object.
func (*transactions) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	t, err := of(ctx)
	if err != nil {
		return err
	}
	if t.live == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	if err := preconditions.Check(key, t.live); err != nil {
		return err
	}
	if err := validate(ctx, t.live); err != nil {
		return err
	}
	t.deleted = true
	assign(out, t.live)
	return nil
}

// Get returns the object as it is stored.
func (*transactions) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	t, err := of(ctx)
	switch {
	case err != nil:
		return err
	case t.live == nil || reflect.TypeOf(t.live) != reflect.TypeOf(out):
		return storage.NewKeyNotFoundError(key, 0)
	}
	assign(out, t.live)
	return nil
}

func (*transactions) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return nil, errNotAsked
}

func (*transactions) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return errNotAsked
}

func (*transactions) Stats(context.Context) (storage.Stats, error) {
	return storage.Stats{}, errNotAsked
}

func (*transactions) ReadinessCheck() error { return nil }

func (*transactions) RequestWatchProgress(context.Context) error { return errNotAsked }

func (*transactions) GetCurrentResourceVersion(context.Context) (uint64, error) {
	return 0, errNotAsked
}

func (*transactions) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

func (*transactions) CompactRevision() int64 { return 0 }

// assign makes an object what another one of its type is, without sharing memory.
func assign(o, is runtime.Object) {
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(is.DeepCopyObject()).Elem())
}
