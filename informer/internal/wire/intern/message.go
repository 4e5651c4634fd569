//go:build !purego

package intern

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// message is where in a value of one type the fields of its protobuf message are. Like a plan, it is made once.
type message struct {
	fields []*field          // by number; nil for numbers that it does not have
	named  map[string]*field // in JSON: by name
	// itself decodes a message that cannot be told from the tags of its fields.
	itself func(at unsafe.Pointer, b []byte) error
	// lazy says that it is a Quantity, which keeps for later what its methods find out, although these are said to
	// change nothing. In JSON, where types may be anybody's, it may be one like that.
	lazy bool
}

// field is one of a message.
type field struct {
	offset uintptr
	number int // in JSON: counts the fields of the message
	shape  shape
	typ    reflect.Type // of a slice or mapping
	key    value        // of a mapping
	value  value        // of the field itself, behind the pointer, of each element

	// Of the field as a part, see part.
	salt  uint64 // tells it from other fields with the same bytes
	habit habit
}

type shape uint8

const (
	single shape = iota
	pointer
	slice
	mapping
)

// value is how one value is encoded.
type value struct {
	encoding encoding
	typ      reflect.Type
	message  *message // of a submessage
	size     int
	habit    *habit // of a text; nil if it is different in every object
}

type encoding uint8

const (
	submessage encoding = iota
	text                // of any string type
	octets              // a slice of bytes
	truth
	number32 // signed or not, its bits are the same
	number64

	// In JSON only:
	integer  // of any size
	instant  // a Time
	object   // a map[string]any
	anything // an any
)

// Wire types of https://protobuf.dev/programming-guides/encoding/#structure.
const wireVarint, wireFixed64, wireBytes, wireFixed32 = 0, 1, 2, 5

func (f *field) wire() uint64 {
	if f.shape != mapping && f.value.encoding >= truth {
		return wireVarint
	}
	return wireBytes
}

var (
	unmarshalerType = reflect.TypeFor[unmarshaler]()
	timeType        = reflect.TypeFor[metav1.Time]()
	quantityType    = reflect.TypeFor[resource.Quantity]()
)

// In packages whose path begins so, a struct whose fields have tags decodes itself as these say: nearly all is
// generated so, and TestEveryMessageIsDecodedAsItDecodesItself looks at each. In others the tags may say anything.
const kubernetes = "k8s.io/"

// messenger makes the messages of types, each once: a type that contains itself comes back to a message that is being
// made.
type messenger struct {
	planner
	messages map[reflect.Type]*message
}

func (m messenger) message(t reflect.Type) *message {
	made, known := m.messages[t]
	if known {
		return made
	}
	made = &message{}
	m.messages[t] = made
	if t.Kind() == reflect.Struct && strings.HasPrefix(t.PkgPath(), kubernetes) {
		made.fields = m.fields(t)
	}
	made.lazy = t == quantityType
	switch {
	case made.fields != nil:
	case t == timeType: // there are many of them, and to look the method up takes longer than to call it
		made.itself = func(at unsafe.Pointer, b []byte) error { return (*metav1.Time)(at).Unmarshal(b) }
	default:
		made.itself = func(at unsafe.Pointer, b []byte) error {
			return reflect.NewAt(t, at).Interface().(unmarshaler).Unmarshal(b)
		}
	}
	return made
}

// fields returns nil if t has to decode itself.
func (m messenger) fields(t reflect.Type) (fields []*field) {
	for i := range t.NumField() {
		tag, tagged := t.Field(i).Tag.Lookup("protobuf")
		if !tagged {
			continue // it is not encoded, as the TypeMeta of an object
		}
		number, f := numberOf(tag), m.field(t.Field(i).Type)
		if number == 0 || f == nil {
			return nil
		}
		f.offset = t.Field(i).Offset
		if t == metaType && unique[t.Field(i).Name] {
			f.value.habit = nil
		}
		if more := number + 1 - len(fields); more > 0 {
			fields = append(fields, make([]*field, more)...)
		}
		fields[number] = f
	}
	return fields
}

// numberOf returns zero if a tag is not as those of generated messages are.
func numberOf(tag string) int {
	parts := strings.Split(tag, ",")
	if len(parts) < 2 || parts[0] != "bytes" && parts[0] != "varint" {
		return 0
	}
	// a higher one would make the list of fields long, and there is none
	number, err := strconv.ParseUint(parts[1], 10, 10)
	if err != nil {
		return 0
	}
	return int(number)
}

// field returns nil if it is of a type that is not known here.
func (m messenger) field(t reflect.Type) *field {
	f := &field{typ: t}
	of := t
	switch kind := t.Kind(); {
	case reflect.PointerTo(t).Implements(unmarshalerType):
	case kind == reflect.Pointer:
		f.shape, of = pointer, t.Elem()
	case kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		f.shape, of = slice, t.Elem()
	case kind == reflect.Map && t.Key().Kind() == reflect.String:
		f.shape, of = mapping, t.Elem()
		f.key, _ = m.value(t.Key())
	}
	var known bool
	if f.value, known = m.value(of); !known || f.shape == mapping && f.value.encoding >= truth {
		return nil
	}
	f.salt = rand.Uint64()
	return f
}

func (m messenger) value(t reflect.Type) (v value, known bool) {
	v = value{typ: t, size: int(t.Size())}
	switch kind := t.Kind(); {
	case reflect.PointerTo(t).Implements(unmarshalerType):
		v.encoding, v.message = submessage, m.message(t)
		// If it decodes itself and there is something to share in it, then who holds it decodes itself, too, and
		// everything is shared afterwards. What is no struct may not be nil where it is encoded as nothing.
		known = v.message.itself == nil || kind == reflect.Struct && len(m.plan(t).places) == 0
		return v, known
	case kind == reflect.String:
		v.encoding, v.habit = text, &habit{}
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		v.encoding = octets
	case kind == reflect.Bool:
		v.encoding = truth
	case kind == reflect.Int32 || kind == reflect.Uint32:
		v.encoding = number32
	case kind == reflect.Int64 || kind == reflect.Uint64:
		v.encoding = number64
	default:
		return v, false
	}
	return v, true
}
