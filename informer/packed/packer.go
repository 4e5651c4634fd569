package packed

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

// Options of a Packer. The zero value is right for most.
type Options struct {
	// Hot is how many decoded objects are kept, about. Zero means 1,024, and a negative number none.
	Hot int
}

// Packer makes values of objects. An informer has one, and it may have several informers of one type. Its methods may
// be called by several goroutines at once.
type Packer[T informer.Object] struct {
	object   reflect.Type // a struct; T is a pointer to it, or an interface that the pointer implements
	protobuf bool
	hot      hot[T]

	mu      sync.Mutex // guards samples
	samples [][]byte
	zip     atomic.Pointer[zip] // nil until there are samples enough
	kind    atomic.Pointer[schema.GroupVersionKind]
}

// New makes a Packer. T is a pointer to a struct, such as *corev1.Pod or *unstructured.Unstructured; if not, the error
// says so.
func New[T informer.Object](o Options) (*Packer[T], error) {
	p, err := newOf[T](reflect.TypeFor[T](), o)
	if err != nil {
		return nil, fmt.Errorf("packed: New: %w", err)
	}
	return p, nil
}

// newOf makes a Packer of objects of one type.
func newOf[T informer.Object](t reflect.Type, o Options) (*Packer[T], error) {
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is no pointer to a struct, so objects of it cannot be made", t)
	}
	p := &Packer[T]{object: t.Elem()}
	// Methods that come from an embedded struct would lose the other fields.
	if t.Implements(reflect.TypeFor[message]()) {
		p.protobuf = wire.Type{Item: t.Elem()}.Protobuf()
	}
	switch {
	case o.Hot == 0:
		p.hot.slots = make([]atomic.Pointer[slot[T]], 1024)
	case o.Hot > 0:
		p.hot.slots = make([]atomic.Pointer[slot[T]], o.Hot)
	}
	return p, nil
}

// message is what the types of k8s.io/api have for protobuf.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// Value is an object, packed. The zero Value is none.
type Value[T informer.Object] struct {
	data string // the first byte is a format
	by   *Packer[T]
}

// The formats of a Value.
const (
	plainProto = 'p'
	plainJSON  = 'j'
	zipProto   = 'P'
	zipJSON    = 'J'
)

// samplesWanted is how many objects make the dictionary.
const samplesWanted = 16

// Pack returns the object's bytes. It is the function to give to [informer.Project]. It fails if the object cannot be
// encoded.
func (p *Packer[T]) Pack(object T) (Value[T], error) {
	plain, zipped := byte(plainJSON), byte(zipJSON)
	var raw []byte
	var err error
	if p.protobuf && p.ofKind(object.GetObjectKind().GroupVersionKind()) {
		plain, zipped = plainProto, zipProto
		raw, err = any(object).(message).Marshal()
	} else {
		raw, err = json.Marshal(object)
	}
	if err != nil {
		return Value[T]{}, fmt.Errorf("packed: encode a %T: %w", object, err)
	}
	if z := p.zip.Load(); z != nil {
		return Value[T]{data: z.pack(zipped, raw), by: p}, nil
	}
	p.sample(raw)
	return Value[T]{data: string(plain) + string(raw), by: p}, nil
}

// ofKind reports whether an object has the kind of all others. Protobuf does not encode it, so Object restores it.
func (p *Packer[T]) ofKind(kind schema.GroupVersionKind) bool {
	if of := p.kind.Load(); of != nil {
		return *of == kind
	}
	p.kind.CompareAndSwap(nil, &kind)
	return *p.kind.Load() == kind
}

// sample takes one of the first objects for the dictionary.
func (p *Packer[T]) sample(raw []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.zip.Load() != nil {
		return
	}
	if p.samples = append(p.samples, raw); len(p.samples) == samplesWanted {
		p.zip.Store(newZip(p.samples))
		p.samples = nil
	}
}

// Object returns the object. As with every cached object, others see it too, so copy it before you change it. A zero
// Value has none, and the result is nil. The error says that the bytes cannot be decoded: T's methods do not fit each
// other, since the bytes are what they encoded.
func (v Value[T]) Object() (object T, err error) {
	if v.by == nil {
		return object, nil
	}
	if object, ok := v.by.hot.get(v.data); ok {
		return object, nil
	}
	if object, err = v.by.decode(v.data); err != nil {
		return *new(T), fmt.Errorf("packed: decode a %T: %w", object, err)
	}
	v.by.hot.put(v.data, object)
	return object, nil
}

func (p *Packer[T]) decode(data string) (object T, err error) {
	object = reflect.New(p.object).Interface().(T)
	decode := func(raw []byte) error { return json.Unmarshal(raw, object) }
	format, raw := data[0], unsafe.Slice(unsafe.StringData(data), len(data))[1:] // nobody writes to it
	if format == plainProto || format == zipProto {
		object.GetObjectKind().SetGroupVersionKind(*p.kind.Load())
		decode = any(object).(message).Unmarshal
	}
	if format == zipProto || format == zipJSON {
		return object, p.zip.Load().unpack(raw, decode)
	}
	return object, decode(raw)
}

// Index makes a function for [informer.AddIndex] of one that takes the object. An object that cannot be decoded is
// found under no value, and the index's Err says so.
func Index[T informer.Object, V comparable](fn func(object T, add func(V))) func(Value[T], func(V)) {
	return func(v Value[T], add func(V)) {
		object, err := v.Object()
		if err != nil {
			panic(err) // which the informer reports
		}
		fn(object, add)
	}
}
