//go:build !purego

package intern

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"unicode"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// namer makes the messages of types in JSON, each once, as a messenger does for protobuf.
type namer map[reflect.Type]*message

// A struct of more fields is left to package json.
const maxNamed = 128

var (
	textSelfMade = reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()
	numberType   = reflect.TypeFor[json.Number]()
	// Of what decodes itself, these do not change when they are read.
	constant = map[reflect.Type]bool{
		timeType: true, fieldsType.Elem(): true, reflect.TypeFor[metav1.MicroTime](): true,
		reflect.TypeFor[metav1.Duration](): true, reflect.TypeFor[intstr.IntOrString](): true,
	}
)

// selfDecoding reports whether package json calls a method of t.
func selfDecoding(t reflect.Type) bool {
	to := reflect.PointerTo(t)
	return to.Implements(selfMade) || to.Implements(textSelfMade) || t == numberType
}

func (n namer) message(t reflect.Type) *message {
	made, known := n[t]
	if known {
		return made
	}
	made = &message{named: map[string]*field{}}
	n[t] = made
	if t.Kind() == reflect.Struct && !selfDecoding(t) && n.fields(made, t, 0) {
		return made
	}
	made.lazy = !constant[t] && !plain(t)
	if reflect.PointerTo(t).Implements(selfMade) {
		made.itself = func(at unsafe.Pointer, b []byte) error {
			return reflect.NewAt(t, at).Interface().(json.Unmarshaler).UnmarshalJSON(b)
		}
	} else {
		made.itself = func(at unsafe.Pointer, b []byte) error {
			return kjson.Unmarshal(b, reflect.NewAt(t, at).Interface())
		}
	}
	return made
}

// plain reports whether nothing in a t has a method that may change it. The quantities in a map are copies.
func plain(t reflect.Type) bool {
	switch kind := t.Kind(); kind {
	case reflect.Slice, reflect.Array:
		return plain(t.Elem()) && t.Elem().Kind() != reflect.Uint8
	case reflect.Map:
		return plain(t.Key()) && (plain(t.Elem()) || t.Elem() == quantityType)
	default:
		return kind <= reflect.Complex128 && kind != reflect.Invalid || kind == reflect.String
	}
}

// fields adds the fields of t, which is at an offset. It returns false if t is to be left to package json.
func (n namer) fields(m *message, t reflect.Type, offset uintptr) bool {
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-":
			m.lazy = true
			continue
		case sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct:
			if !n.fields(m, sf.Type, offset+sf.Offset) {
				return false
			}
			continue
		case sf.Anonymous && (name == "" || !sf.IsExported()):
			return false
		case !sf.IsExported():
			m.lazy = true // its methods may keep there what they find out
			continue
		case name == "":
			name = sf.Name
		}
		odd := strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./$", r)
		})
		if odd || m.named[name] != nil || len(m.named) == maxNamed || strings.Contains(","+options+",", ",string,") {
			return false
		}
		f := n.field(sf.Type)
		f.offset, f.number = offset+sf.Offset, len(m.named)
		if t == metaType && unique[sf.Name] {
			f.value.habit = nil
		}
		m.named[name] = f
	}
	return true
}

func (n namer) field(t reflect.Type) *field {
	f, of := &field{typ: t, salt: rand.Uint64()}, t
	switch kind := t.Kind(); {
	case selfDecoding(t):
	case kind == reflect.Pointer:
		f.shape, of = pointer, t.Elem()
	case kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		f.shape, of = slice, t.Elem()
	case kind == reflect.Map && t != untypedType:
		f.shape, f.key.habit = mapping, &habit{}
	}
	f.value = n.value(of)
	if t == textsType {
		f.value.habit = &habit{}
	}
	return f
}

func (n namer) value(t reflect.Type) value {
	v := value{typ: t, size: int(t.Size())}
	switch kind := t.Kind(); {
	case t == timeType:
		v.encoding = instant
	case selfDecoding(t):
		v.message = n.message(t)
	case t == untypedType:
		v.encoding = object
	case kind == reflect.Interface && t.NumMethod() == 0:
		v.encoding = anything
	case kind == reflect.String:
		v.encoding, v.habit = text, &habit{}
	case kind == reflect.Bool:
		v.encoding = truth
	case reflect.Int <= kind && kind < reflect.Uintptr:
		v.encoding = integer
	default:
		v.message = n.message(t)
	}
	return v
}
