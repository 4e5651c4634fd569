package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Event is one object as the server sent it: that of a watch event, or an item of a list.
type Event struct {
	Type   watch.EventType // ADDED for an item of a list
	Object runtime.Object  // of an ERROR event, a *metav1.Status
	Size   int64           // bytes of the encoded form; zero if the client has not shown them
	// Err says why the object could not be decoded. Then Object holds only the name, namespace, UID and
	// resourceVersion, as far as they could be read.
	Err error
}

// Decoder decodes the objects of one resource. It decodes each alone, so that no object keeps the memory of its
// neighbours alive. It is safe for concurrent use.
type Decoder struct {
	item     reflect.Type // decode makes pointers to it
	protobuf bool         // item can be decoded from protobuf
	interner *intern.Interner
	exits    lifecycle.Exits
}

// NewDecoder makes a decoder of the items of a list type, a pointer to a struct with a field Items. Objects of one
// decoder share memory for the strings that they have in common. If frozen, the caller promises that nobody changes
// the objects: then they share maps, slices and what pointers point to as well.
func NewDecoder(list reflect.Type, frozen bool) (*Decoder, error) {
	if list.Kind() == reflect.Pointer && list.Elem().Kind() == reflect.Struct {
		if items, ok := list.Elem().FieldByName("Items"); ok && items.Type.Kind() == reflect.Slice {
			item := items.Type.Elem()
			if item.Kind() == reflect.Pointer {
				item = item.Elem()
			}
			if pointer := reflect.PointerTo(item); pointer.Implements(reflect.TypeFor[object]()) {
				shared := item
				if item == unstructuredType {
					shared = reflect.TypeFor[map[string]any]()
				}
				// The tags of a type say how its fields are called in protobuf: those of a list must be the ones that
				// splitProtoList knows.
				return &Decoder{item: item, interner: intern.New(shared, frozen),
					protobuf: pointer.Implements(reflect.TypeFor[protobufUnmarshaler]()) &&
						strings.HasPrefix(items.Tag.Get("protobuf"), "bytes,2,rep")}, nil
			}
		}
	}
	return nil, fmt.Errorf("a %s has no field Items of objects", list)
}

// Protobuf reports whether the objects can be decoded from protobuf.
func (d *Decoder) Protobuf() bool { return d.protobuf }

type object interface {
	metav1.Object
	runtime.Object
}

type protobufUnmarshaler interface{ Unmarshal([]byte) error }

var unstructuredType = reflect.TypeFor[unstructured.Unstructured]()

// untyped reports whether the objects carry their kind themselves.
func (d *Decoder) untyped() bool { return d.item == unstructuredType }

// raw is one object as it stands in a response.
type raw struct {
	event watch.EventType // ADDED for an item of a list
	// In protobuf, the version and kind that the envelope says. Of an item of a list, those of the list, as far as they
	// are known.
	apiVersion, kind string
	data             []byte
	size             int64 // bytes of the whole object
	cut              bool  // the object is too large, and data is only its beginning
}

// decode makes an object of its bytes, or says in the event why it cannot.
func (d *Decoder) decode(r raw, protobuf bool) Event {
	e := Event{Type: r.event, Size: r.size}
	if r.event == watch.Error {
		status := &metav1.Status{}
		if d.decodeInto(status, r, protobuf) != nil {
			e.Err = ErrUndecodable
			return e
		}
		e.Object = status
		return e
	}
	o := reflect.New(d.item).Interface().(object)
	var err error
	if r.cut {
		err = fmt.Errorf("%w: an object of more than %d bytes", ErrTooLarge, maxObject)
	} else {
		err = d.decodeInto(o, r, protobuf)
	}
	if err != nil {
		id := &metav1.PartialObjectMetadata{}
		if protobuf {
			id.ObjectMeta = protoIdentity(r.data, r.cut)
		} else {
			id.ObjectMeta = jsonIdentity(r.data)
		}
		key := types.NamespacedName{Namespace: id.Namespace, Name: id.Name}
		e.Object = id
		e.Err = fmt.Errorf("%s: a %s of %d bytes: %w", kube.Brief(key.String()), d.item, r.size, err)
		return e
	}
	if u, untyped := runtime.Object(o).(*unstructured.Unstructured); untyped {
		d.interner.Object(&u.Object)
	} else if !protobuf { // from protobuf it shares already
		d.interner.Object(o)
	}
	e.Object = o
	return e
}

// decodeInto decodes r. It drops the decoder's own error, which may quote the object. Only a type that decodes itself
// panics or ends its goroutine.
func (d *Decoder) decodeInto(o runtime.Object, r raw, protobuf bool) error {
	var err error
	panicked := d.exits.Try(func() {
		switch into := o.(type) {
		case *unstructured.Unstructured:
			if err = json.Unmarshal(r.data, &into.Object); err == nil {
				err = complete(into, r)
			}
			r.apiVersion, r.kind = into.GetAPIVersion(), into.GetKind()
			return
		case protobufUnmarshaler:
			switch {
			case !protobuf:
				err = json.Unmarshal(r.data, o)
			case r.event == watch.Error:
				err = into.Unmarshal(r.data) // a Status, which is not of the interner's type
			default:
				err = d.interner.Unmarshal(r.data, into)
			}
		default:
			err = json.Unmarshal(r.data, o)
		}
		if own := o.GetObjectKind().GroupVersionKind(); own.Kind != "" {
			r.apiVersion, r.kind = own.GroupVersion().String(), own.Kind
		}
		// As with a typed client of client-go, only the Go type says what the object is.
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	})
	if err != nil || panicked != nil {
		return ErrUndecodable
	}
	if r.event != watch.Error {
		return isObject(r.apiVersion, r.kind)
	}
	return nil
}

// complete gives an item of a list the kind and version that only the list says.
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

// isObject returns an error for a Status or a Table: a server that has not understood a request sends these in place of
// objects. A custom resource may have one of these kinds in a group of its own.
func isObject(apiVersion, kind string) error {
	if kind != "Status" && kind != "Table" {
		return nil
	}
	if of, err := schema.ParseGroupVersion(apiVersion); err == nil && of.Group != "" && of.Group != metav1.GroupName {
		return nil
	}
	return fmt.Errorf("%w: it answered with a %s", ErrViolation, kind)
}

// identify sets one of the fields that tell an object from others.
func identify(id *metav1.ObjectMeta, field, value string) {
	switch field {
	case "name":
		id.Name = value
	case "namespace":
		id.Namespace = value
	case "uid":
		id.UID = types.UID(value)
	case "resourceVersion":
		id.ResourceVersion = value
	}
}
