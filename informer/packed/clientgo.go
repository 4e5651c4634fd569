package packed

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/clientgo"
)

// Informers is for programs that are written against client-go's informers, such as managers of controller-runtime. It
// returns a constructor for them, by which objects of some kinds are packed, and all others are held as they are:
//
//	cache.Options{NewInformer: packed.Informers(packed.Options{}, &corev1.Pod{}, &corev1.Secret{})}
//
// A kind is an object of the type that the informer has; an unstructured object, or metadata, says its kind as well.
// Without kinds, all are packed. Options hold for each informer by itself.
//
// The informer's users notice nothing but the time. An object that was not asked for lately is decoded: once for each
// Get, each object of a List or ByIndex, each index function when the object changes, and each handler, twice for an
// update. The package's doc says what that takes. The objects of a List are new ones, so they take as much memory as
// without this package for as long as the caller keeps them.
func Informers(o Options, kinds ...runtime.Object) clientgo.Constructor {
	var wanted []kind
	for _, k := range kinds {
		wanted = append(wanted, kindOf(k))
	}
	return clientgo.PackedInformers(func(example runtime.Object) clientgo.Packing {
		if len(wanted) > 0 && !slices.Contains(wanted, kindOf(example)) {
			return nil
		}
		return packing(example, o)
	})
}

// kind tells the kinds of objects apart.
type kind struct {
	object reflect.Type
	gvk    schema.GroupVersionKind // empty unless the type does not say it
}

func kindOf(o runtime.Object) kind {
	k := kind{object: reflect.TypeOf(o)}
	switch o.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata: // which may be of any kind
		k.gvk = o.GetObjectKind().GroupVersionKind()
	}
	return k
}

// packing makes a Packing for objects like example; a nil one may be of any type, and is not packed.
func packing(example runtime.Object, o Options) clientgo.Packing {
	if example == nil {
		return nil
	}
	p, err := newOf[informer.Object](reflect.TypeOf(example), o)
	return func(object informer.Object) (clientgo.Packed, error) {
		if err != nil {
			return nil, fmt.Errorf("packed: %w", err)
		}
		return p.Pack(object)
	}
}
