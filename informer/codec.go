package informer

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/internal/intern"
)

// raw is one object as it stands in an answer.
type raw struct {
	event watch.EventType // of an item of a list: ADDED
	// The kind and version that the envelope says, in protobuf; of an item of a list, those of the list, as far as they
	// are known.
	apiVersion, kind string
	data             []byte
	size             int64
	cut              bool // the object is too large, and data is only its beginning
}

// arrival is one object as the reflector gets it.
type arrival struct {
	event  watch.EventType
	object runtime.Object
	size   int64 // of the encoded form; zero if that was not seen
	// err is why the object could not be decoded. Then object has only the metadata that tells it from others, as far
	// as these could be read.
	err error
}

// codec decodes the objects of one resource, each alone, so that none keeps the memory of its neighbours alive. It is
// safe for concurrent use.
type codec struct {
	item     reflect.Type // of which decode makes pointers
	protobuf bool         // item can be decoded from protobuf
	interner *intern.Interner
	exits    *exits
}

type protobufUnmarshaler interface{ Unmarshal([]byte) error }

// newCodec finds the items of a list type, which the interner lets share; it is nil if nothing is to be decoded.
func newCodec(list reflect.Type, interner *intern.Interner) (codec, error) {
	if list.Kind() == reflect.Pointer && list.Elem().Kind() == reflect.Struct {
		if items, ok := list.Elem().FieldByName("Items"); ok && items.Type.Kind() == reflect.Slice {
			item := items.Type.Elem()
			if item.Kind() == reflect.Pointer {
				item = item.Elem()
			}
			if object := reflect.PointerTo(item); object.Implements(reflect.TypeFor[Object]()) {
				// What a type calls its fields in protobuf is in its tags: those of a list must be the ones that
				// splitProtoList knows.
				return codec{item: item, interner: interner, exits: &exits{},
					protobuf: object.Implements(reflect.TypeFor[protobufUnmarshaler]()) &&
						strings.HasPrefix(items.Tag.Get("protobuf"), "bytes,2,rep")}, nil
			}
		}
	}
	return codec{}, fmt.Errorf("a %s has no field Items of objects", list)
}

// newInterner makes what lets the objects T of one informer share. If they are changed after they have been decoded,
// they share nothing that can be.
func newInterner[T Object](changing bool) *intern.Interner {
	item := reflect.TypeFor[T]()
	switch {
	case item == reflect.TypeFor[*unstructured.Unstructured]():
		item = reflect.TypeFor[map[string]any]()
	case item.Kind() == reflect.Pointer:
		item = item.Elem()
	}
	return intern.New(item, !changing)
}

// decode makes an object of its bytes, or says in the arrival why that could not be done.
func (c codec) decode(r raw, protobuf bool) arrival {
	a := arrival{event: r.event, size: r.size}
	if r.event == watch.Error {
		status := &metav1.Status{}
		if c.decodeInto(status, r, protobuf) != nil {
			a.err = errUndecodable
			return a
		}
		a.object = status
		return a
	}
	object := reflect.New(c.item).Interface().(Object)
	switch {
	case r.cut:
		a.err = tooLargeObject()
	default:
		a.err = c.decodeInto(object, r, protobuf)
	}
	if a.err == nil {
		if !protobuf {
			// From protobuf it shares already.
			if u, untyped := runtime.Object(object).(*unstructured.Unstructured); untyped {
				c.interner.Object(&u.Object)
			} else {
				c.interner.Object(object)
			}
		}
		a.object = object
		return a
	}
	id := &metav1.PartialObjectMetadata{}
	if protobuf {
		id.ObjectMeta = protoIdentity(r.data, r.cut)
	} else {
		_, id.ObjectMeta = jsonIdentity(r.data)
	}
	a.object = id
	a.err = fmt.Errorf("%s: a %s of %d bytes: %w", briefKey(KeyOf(id)), c.item, r.size, a.err)
	return a
}

// untyped reports whether objects tell their kinds themselves.
func (c codec) untyped() bool { return c.item == reflect.TypeFor[unstructured.Unstructured]() }

// decodeInto decodes r. The decoder's own error is dropped, as it may quote the object; a panic is that of a type that
// decodes itself.
func (c codec) decodeInto(object runtime.Object, r raw, protobuf bool) error {
	var err error
	panicked := c.exits.try(func() {
		switch into := object.(type) {
		case *unstructured.Unstructured:
			if err = json.Unmarshal(r.data, &into.Object); err == nil {
				err = complete(into, r)
			}
			r.apiVersion, r.kind = into.GetAPIVersion(), into.GetKind()
			return
		case protobufUnmarshaler:
			switch {
			case !protobuf:
				err = json.Unmarshal(r.data, object)
			case r.event == watch.Error:
				err = into.Unmarshal(r.data) // a Status, which is not one of the objects
			default:
				err = c.interner.Unmarshal(r.data, into)
			}
		default:
			err = json.Unmarshal(r.data, object)
		}
		if own := object.GetObjectKind().GroupVersionKind(); own.Kind != "" {
			r.apiVersion, r.kind = own.GroupVersion().String(), own.Kind
		}
		// As with a typed client of client-go, the type alone says what it is.
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	})
	if err != nil || panicked != nil {
		return errUndecodable
	}
	if r.event != watch.Error {
		return misplaced(r.apiVersion, r.kind)
	}
	return nil
}

// complete gives an object of a list the kind and version that only the list says.
func complete(o *unstructured.Unstructured, r raw) error {
	if o.Object == nil {
		return errors.New("null")
	}
	if o.GetKind() == "" {
		o.SetKind(strings.TrimSuffix(r.kind, "List"))
	}
	if o.GetAPIVersion() == "" {
		o.SetAPIVersion(r.apiVersion)
	}
	return nil
}

// misplaced returns an error if an answer holds something of another kind than objects: a Status or a Table is what a
// server says when it has not understood what it was asked for. Others may call their kinds so, in groups of their own.
func misplaced(apiVersion, kind string) error {
	if kind != "Status" && kind != "Table" {
		return nil
	}
	if of, err := schema.ParseGroupVersion(apiVersion); err == nil && of.Group != "" && of.Group != metav1.GroupName {
		return nil
	}
	return fmt.Errorf("%w: it answered with a %s", errViolation, kind)
}

// statusError is the error that an ERROR event stands for.
func statusError(o runtime.Object) error {
	err := apierrors.FromObject(o)
	if odd := (*apierrors.UnexpectedObjectError)(nil); errors.As(err, &odd) {
		// the error itself would show the object
		err = fmt.Errorf("%w: an ERROR event that holds a %T", errViolation, o)
	}
	return discreet(err)
}
