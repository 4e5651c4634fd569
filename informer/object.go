package informer

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Key names an object within its resource: namespace and name, or an empty namespace and the name of a cluster-scoped
// object.
type Key = types.NamespacedName

// Object is an API object: *corev1.Pod, *unstructured.Unstructured, *metav1.PartialObjectMetadata, or a type of your
// own.
type Object interface {
	metav1.Object
	runtime.Object
}

// KeyOf returns the key of an object.
func KeyOf(o metav1.Object) Key {
	return Key{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// item is one object as the store holds it: the facts that the informer needs, and the value that the user sees. The
// value may be of any type, so nothing after the reflector reads its metadata.
type item[T any] struct {
	key             Key
	uid             types.UID
	resourceVersion string
	deleting        bool   // it has a deletionTimestamp
	slice           uint16 // of Options.Shard, see sliceBits; zero before the object is judged
	value           T
}

// decoder makes an item of an object that a client delivered. With an error the item has no value, but what is known of
// the rest: the key, unless the name is missing.
type decoder[T any] func(runtime.Object) (item[T], error)

// decodeObject is the decoder of an informer that holds the API objects themselves.
func decodeObject[T Object](transform func(T) (T, error)) decoder[T] {
	return func(raw runtime.Object) (item[T], error) {
		meta, _ := raw.(metav1.Object)
		if kube.IsNil(meta) {
			return item[T]{}, fmt.Errorf("the client delivered a %T, which is no object", raw)
		}
		it := item[T]{key: KeyOf(meta), uid: meta.GetUID(), resourceVersion: meta.GetResourceVersion(),
			deleting: meta.GetDeletionTimestamp() != nil}
		object, ok := raw.(T)
		switch {
		case !ok:
			return it, fmt.Errorf("%s: the client delivered a %T where a %T was expected", briefKey(it.key), raw,
				object)
		case it.key.Name == "":
			return it, fmt.Errorf("a %T without a name", object)
		}
		it.value = object
		if transform != nil {
			value, err := transformed(transform, object)
			if err != nil {
				var none T
				it.value = none
				return it, fmt.Errorf("Options.Transform of %s: %w", briefKey(it.key), err)
			}
			it.value = value
		}
		return it, nil
	}
}

// transformed runs the user's transform and turns its panic into an error.
func transformed[T any](transform func(T) (T, error), object T) (value T, err error) {
	if panicked := lifecycle.Try(func() { value, err = transform(object) }); panicked != nil {
		return value, panicked
	}
	return value, err
}

// decodeProjection is the decoder of an informer that holds what fn returns for the objects.
func decodeProjection[T, V any](object decoder[T], fn func(T) (V, error)) decoder[V] {
	if fn == nil {
		return nil
	}
	return func(raw runtime.Object) (item[V], error) {
		from, err := object(raw)
		to := item[V]{key: from.key, uid: from.uid, resourceVersion: from.resourceVersion, deleting: from.deleting}
		if err != nil {
			return to, err
		}
		var value V
		if panicked := lifecycle.Try(func() { value, err = fn(from.value) }); panicked != nil {
			err = panicked
		}
		if err != nil {
			return to, fmt.Errorf("projection of %s: %w", briefKey(from.key), err)
		}
		to.value = value
		return to, nil
	}
}

// ErrTooLarge is wrapped by the errors of what exceeds a bound: with a [Resource] an object of more than 16 MB or a
// response to a list of more than 16 GB, both of the encoded form; with every client a list of more than 100,000 pages.
var ErrTooLarge = wire.ErrTooLarge

// briefKey is what an error shows of a key.
func briefKey(key Key) string { return kube.Brief(key.String()) }
