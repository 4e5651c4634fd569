package wire

import (
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// metadata returns the metadata of an object that could not be decoded, without its managed fields, which nobody reads
// and which are long. If the metadata cannot be decoded either, it has the name, namespace, UID and resourceVersion, as
// far as they could be read.
func (r raw) metadata(protobuf bool) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	var err error
	switch {
	case r.cut && protobuf:
		o.ObjectMeta = protoIdentity(r.data, true)
	case r.cut:
		o.ObjectMeta = jsonIdentity(r.data)
	case protobuf:
		if err = o.Unmarshal(r.data); err != nil {
			*o = metav1.PartialObjectMetadata{ObjectMeta: protoIdentity(r.data, false)}
		}
	default:
		if err = json.Unmarshal(r.data, o); err != nil {
			*o = metav1.PartialObjectMetadata{ObjectMeta: jsonIdentity(r.data)}
		}
	}
	o.TypeMeta, o.ManagedFields = metav1.TypeMeta{}, nil
	return o
}

// misfit is the error of a JSON value that does not fit the Go type of its field. It quotes no value, and no key of a
// map: these belong to the object, too.
type misfit struct {
	field string // its path, such as spec.hosts[2].port; empty: the object itself
	value string // what kind of JSON it is
	want  reflect.Type
}

func (m *misfit) Error() string {
	field := m.field
	if field == "" {
		field = "the object"
	}
	return fmt.Sprintf("%s is a JSON %s that cannot be decoded into the Go type %s", field, m.value, m.want)
}

func (m *misfit) Unwrap() error { return ErrUndecodable }

// maxMisfitDepth bounds the search, which decodes what it looks at once more at each level.
const maxMisfitDepth = 32

// misfitOf finds the first field, in the order of the Go type, whose value alone cannot be decoded. It returns nil for
// bytes that are no JSON, or fit. It calls the methods of types that decode themselves.
func misfitOf(value []byte, want reflect.Type) *misfit {
	if !stdjson.Valid(value) {
		return nil
	}
	return findMisfit(value, want, "", 0)
}

func findMisfit(value []byte, want reflect.Type, field string, depth int) (found *misfit) {
	if json.Unmarshal(value, reflect.New(want).Interface()) == nil {
		return nil
	}
	this := &misfit{strings.TrimPrefix(field, "."), kindOf(value), want}
	if depth == maxMisfitDepth || reflect.PointerTo(want).Implements(reflect.TypeFor[stdjson.Unmarshaler]()) {
		return this
	}
	// What does not have the shape of the Go type is the misfit itself: then parts stays empty.
	switch want.Kind() {
	case reflect.Pointer:
		found = findMisfit(value, want.Elem(), field, depth+1)
	case reflect.Struct:
		found = findMisfitMember(value, want, field, depth)
	case reflect.Slice, reflect.Array:
		var parts []stdjson.RawMessage
		_ = stdjson.Unmarshal(value, &parts)
		for i := 0; i < len(parts) && found == nil; i++ {
			found = findMisfit(parts[i], want.Elem(), fmt.Sprintf("%s[%d]", field, i), depth+1)
		}
	case reflect.Map:
		var parts map[string]stdjson.RawMessage
		_ = stdjson.Unmarshal(value, &parts)
		for _, part := range parts {
			if found = findMisfit(part, want.Elem(), field+"[...]", depth+1); found != nil {
				break
			}
		}
	}
	if found != nil {
		return found
	}
	return this
}

// findMisfitMember looks into the members of a JSON object.
func findMisfitMember(value []byte, want reflect.Type, field string, depth int) (found *misfit) {
	var members map[string]stdjson.RawMessage
	if stdjson.Unmarshal(value, &members) != nil {
		return nil
	}
	for i := 0; i < want.NumField() && found == nil; i++ {
		f := want.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		if name == "" && f.Anonymous && embedded.Kind() == reflect.Struct { // its members are members of this object
			found = findMisfit(value, embedded, field, depth+1)
			continue
		}
		if name == "" {
			name = f.Name
		}
		if member, ok := members[name]; ok && f.IsExported() {
			found = findMisfit(member, f.Type, field+"."+name, depth+1)
		}
	}
	return found
}

// kindOf says what kind of JSON a value is.
func kindOf(value []byte) string {
	switch value[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}
