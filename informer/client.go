package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Client is where an informer gets its objects from. The typed, the dynamic and the metadata client of client-go have these two
// methods for each resource, so each is one as it stands:
//
//	clientset.CoreV1().Pods(metav1.NamespaceAll)      // Client[*corev1.PodList]
//	dynamicClient.Resource(gvr).Namespace("default")  // Client[*unstructured.UnstructuredList]
//	metadataClient.Resource(gvr)                      // Client[*metav1.PartialObjectMetadataList]
//
// Which namespaces the informer sees is the client's choice; selectors belong to [Options].
type Client[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// source is a Client whose list type has been forgotten: what follows looks at items only.
type source struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func newSource[L runtime.Object](c Client[L]) source {
	return source{
		list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			// The client's L may be a nil pointer next to an error: as a runtime.Object that would not be nil any more.
			l, err := c.List(ctx, opts)
			if err != nil {
				return nil, discreet(err)
			}
			return l, nil
		},
		watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := c.Watch(ctx, opts)
			return w, discreet(err)
		},
	}
}

// errUndecodable stands for what a decoder said of bytes that it could not make an object of.
var errUndecodable = errors.New("the answer could not be read or decoded; the details are withheld, as they may quote the object")

// discreet hides an error that quotes the object it is about: errors are logged, and the object may be a Secret.
func discreet(err error) error {
	if runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) || apierrors.HasStatusCause(err, decoding) {
		return errUndecodable
	}
	return err
}

// decoding is the cause that client-go's watches give for an event that they cannot decode.
const decoding metav1.CauseType = "ClientWatchDecoding"

// checkItemType compares T with the element type of L's Items, so that a mismatch is an error of New and not of the first list, at night.
// List types without an Items field of structs or pointers are left to that first list.
func checkItemType[T Object, L runtime.Object]() error {
	list := reflect.TypeFor[L]()
	if list.Kind() != reflect.Pointer || list.Elem().Kind() != reflect.Struct {
		return nil
	}
	items, ok := list.Elem().FieldByName("Items")
	if !ok || items.Type.Kind() != reflect.Slice {
		return nil
	}
	item := items.Type.Elem()
	if item.Kind() == reflect.Struct {
		item = reflect.PointerTo(item)
	}
	if want := reflect.TypeFor[T](); item.Kind() == reflect.Pointer && item != want {
		return fmt.Errorf("the client lists %s, but the informer was asked to hold %s", item, want)
	}
	return nil
}

// eachItem calls fn for every object of a list until fn returns an error. Each is copied out of the list's array, because one object that
// stays in the cache would otherwise keep the memory of its whole page alive (kubernetes/kubernetes#111370).
func eachItem(list runtime.Object, fn func(runtime.Object) error) error {
	var failed error
	err := meta.EachListItemWithAlloc(list, func(o runtime.Object) error {
		failed = fn(o)
		return failed
	})
	if err != nil && failed == nil {
		return fmt.Errorf("a %T is no list of objects", list) // the error itself may show an item, which may be a Secret
	}
	return failed
}
