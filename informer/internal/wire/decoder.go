package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

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
	// Err says why the object could not be decoded, or is ErrNotKept. Then Object is a PartialObjectMetadata: see
	// raw.metadata, and Decoder.Keep.
	Err error

	twins intern.Twins
}

// Settle lets the object share more with others. It is called when the object may be changed no longer; of it see
// [intern.AtFirst].
func (e Event) Settle() { e.twins.Settle() }

// Type says what the objects of a resource are.
type Type struct {
	Item reflect.Type // a struct; pointers to it are objects
	// The kind that the objects have, and the version of the resource. Empty for objects that carry their kind
	// themselves, and for metadata.
	APIVersion, Kind string
}

// Protobuf reports whether the objects can be decoded from protobuf as an API server encodes it. The tag says so: an
// Unmarshal method may also come from a struct that is embedded, or be of another encoding.
func (t Type) Protobuf() bool {
	metadata, ok := t.Item.FieldByName("ObjectMeta")
	return ok && len(metadata.Index) == 1 && strings.HasPrefix(metadata.Tag.Get("protobuf"), "bytes,1,") &&
		reflect.PointerTo(t.Item).Implements(reflect.TypeFor[protobufUnmarshaler]())
}

// Decode decodes the answer to a request for one object. The object belongs to the caller and shares nothing.
func (t Type) Decode(body []byte) (runtime.Object, error) {
	r := raw{event: watch.Modified, data: body, size: int64(len(body))}
	protobuf := strings.HasPrefix(string(body[:min(len(body), len(protoMagic))]), protoMagic)
	if protobuf && !(t.Protobuf() && unwrap(body, &r, &response{})) {
		return nil, errGarbled
	}
	d := &Decoder{Type: t, deep: protobuf && len(body) > 2*maxDepth && recursive(t.Item, map[reflect.Type]bool{})}
	e := d.decode(r, protobuf)
	return e.Object, e.Err
}

// Decoder decodes the objects of one resource. It decodes each alone, so that no object keeps the memory of its
// neighbours alive. It is safe for concurrent use.
type Decoder struct {
	Type
	// Quiet says that there may be thousands of watches at once, each of which brings little: so each holds little
	// memory while it waits. Set it before the first Read.
	Quiet bool
	// Keep, if not nil, says by an object's metadata whether it is decoded: see [ErrNotKept]. It is given the
	// namespace, name, UID and resourceVersion and, unless KeyOnly says that it looks at the first two only, the labels
	// and owner references. Set it before the first Read; several goroutines call it.
	Keep    func(*metav1.ObjectMeta) bool
	KeyOnly bool

	protobuf bool             // what Protobuf returns
	deep     bool             // an object can be nested without a bound
	interner *intern.Interner // nil: objects share nothing
	first    atomic.Int32     // how many objects have shared nothing, up to few
}

// So many objects of a resource are decoded without an Interner: its tables, and what it learns of a type, would take
// more memory and time than they save, and most kinds have fewer objects than these.
const few = 32

// NewDecoder makes a decoder of the objects of a resource. They share memory for what they have in common, as far as
// it is never changed.
func NewDecoder(t Type, change intern.Change) *Decoder {
	shared := t.Item
	if shared == unstructuredType {
		shared = reflect.TypeFor[map[string]any]()
	}
	return &Decoder{Type: t, interner: intern.New(shared, change), protobuf: t.Protobuf(),
		deep: recursive(t.Item, map[reflect.Type]bool{})}
}

type object interface {
	metav1.Object
	runtime.Object
}

type protobufUnmarshaler interface{ Unmarshal([]byte) error }

var unstructuredType = reflect.TypeFor[unstructured.Unstructured]()

// untyped reports whether the objects carry their kind themselves.
func (d *Decoder) untyped() bool { return d.Item == unstructuredType }

// raw is one object as it stands in a response.
type raw struct {
	event watch.EventType // ADDED for an item of a list
	// In protobuf, the version and kind that the envelope says. Of an item of a list, those of the list, as far as they
	// are known.
	apiVersion, kind string
	data             []byte
	size             int64 // bytes of the whole object
	cut              bool  // the object is too large, and data is only its beginning
	listed           bool  // the kind is that of the list: the object has not said its own
}

// decode makes an object of its bytes, or says in the event why it cannot.
func (d *Decoder) decode(r raw, protobuf bool) Event {
	e := Event{Type: r.event, Size: r.size}
	if r.event == watch.Error {
		status := &metav1.Status{}
		if _, err := d.decodeInto(status, r, protobuf); err != nil {
			e.Err = ErrUndecodable
			return e
		}
		e.Object = status
		return e
	}
	if d.Keep != nil && r.event != watch.Bookmark {
		if o, outside := d.outside(r, protobuf); outside {
			e.Object, e.Err = o, ErrNotKept
			return e
		}
	}
	o := reflect.New(d.Item).Interface().(object)
	var err error
	switch {
	case r.cut:
		err = fmt.Errorf("%w: an object of more than %d bytes", ErrTooLarge, maxObject)
	case protobuf && d.deep && deeper(r.data, maxDepth):
		err = fmt.Errorf("%w: an object nested more than %d deep", ErrTooLarge, maxDepth)
	default:
		e.twins, err = d.decodeInto(o, r, protobuf)
	}
	if err != nil {
		id := r.metadata(protobuf)
		id.APIVersion, id.Kind = d.APIVersion, d.Kind
		key := types.NamespacedName{Namespace: id.Namespace, Name: id.Name}
		e.Object = id
		e.Err = fmt.Errorf("%s: a %s of %d bytes: %w", kube.Brief(key.String()), d.Item, r.size, err)
		return e
	}
	e.Object = o
	return e
}

// decodeInto decodes r. It drops the decoder's own error, which may quote the object, and looks for the field itself.
// Only a type that decodes itself panics.
func (d *Decoder) decodeInto(o runtime.Object, r raw, protobuf bool) (twins intern.Twins, err error) {
	var found *misfit
	panicked := lifecycle.Try(func() {
		r, twins, err = d.parse(o, r, protobuf)
		if err != nil && !protobuf && r.event != watch.Error && !d.untyped() {
			found = misfitOf(r.data, reflect.TypeOf(o).Elem())
		}
	})
	switch {
	case found != nil:
		return twins, found
	case err != nil || panicked != nil:
		return twins, ErrUndecodable
	case r.event == watch.Error:
		return twins, nil
	}
	if err := isObject(r.apiVersion, r.kind); err != nil {
		return twins, err
	}
	if !r.listed && r.kind != "" && d.Kind != "" && r.kind != d.Kind {
		return twins, fmt.Errorf("%w: the server answers with objects of kind %s (%s), and a %s is of kind %s",
			ErrViolation, kube.Brief(r.kind), kube.Brief(r.apiVersion), reflect.PointerTo(d.Item), d.Kind)
	}
	return twins, nil
}

// sharing returns the Interner for an object, or nil if it is one of few. Changes of an object are no more objects.
func (d *Decoder) sharing(event watch.EventType) *intern.Interner {
	switch {
	case d.interner == nil || event == watch.Error: // a Status is not of the interner's type
		return nil
	case d.first.Load() >= few:
		return d.interner
	case event == watch.Added:
		d.first.Add(1)
	}
	return nil
}

// parse decodes r into o, and returns r with the kind that o says.
func (d *Decoder) parse(o runtime.Object, r raw, protobuf bool) (_ raw, twins intern.Twins, err error) {
	switch into := o.(type) {
	case *unstructured.Unstructured:
		if twins, err = d.unmarshalJSON(r, &into.Object); err == nil {
			err = complete(into, r)
		}
		r.apiVersion, r.kind = into.GetAPIVersion(), into.GetKind()
		return r, twins, err
	case protobufUnmarshaler:
		if !protobuf {
			twins, err = d.unmarshalJSON(r, o)
		} else if s := d.sharing(r.event); s != nil {
			twins, err = s.Unmarshal(r.data, into)
		} else {
			err = into.Unmarshal(r.data)
		}
	default:
		twins, err = d.unmarshalJSON(r, o)
	}
	own := o.GetObjectKind().GroupVersionKind()
	if own.Kind != "" {
		r.apiVersion, r.kind, r.listed = own.GroupVersion().String(), own.Kind, false
	}
	d.setKind(o, r.event)
	return r, twins, err
}

func (d *Decoder) unmarshalJSON(r raw, into any) (twins intern.Twins, err error) {
	if s := d.sharing(r.event); s != nil {
		return s.FromJSON(r.data, into)
	}
	return twins, json.Unmarshal(r.data, into)
}

// setKind gives an object the kind and version of its resource, or none: in lists of built-in resources the server
// sends them for the list only.
func (d *Decoder) setKind(o runtime.Object, event watch.EventType) {
	switch {
	case d.Kind == "" && d.interner == nil: // it belongs to the caller, and says more than its resource does
	case event == watch.Error:
		SetKind(o, "", "")
	default:
		SetKind(o, d.APIVersion, d.Kind)
	}
}

// SetKind sets the version and kind of an object. Objects that get the same two strings share them.
func SetKind(o runtime.Object, apiVersion, kind string) {
	if own, ok := o.GetObjectKind().(*metav1.TypeMeta); ok {
		own.APIVersion, own.Kind = apiVersion, kind
		return
	}
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
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

// IsStatus reports whether an answer in JSON is a Status: the server's answer to a request whose result is no object.
func IsStatus(body []byte) bool {
	var is metav1.TypeMeta
	return json.Unmarshal(body, &is) == nil && is.Kind == "Status" && isObject(is.APIVersion, is.Kind) != nil
}
