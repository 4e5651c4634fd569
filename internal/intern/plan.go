package intern

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"reflect"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// visitor shares what is in a value, which can be set.
type visitor func(*Interner, reflect.Value)

var (
	fieldsType    = reflect.TypeFor[*metav1.FieldsV1]()
	textsType     = reflect.TypeFor[map[string]string]()
	resourcesType = reflect.TypeFor[corev1.ResourceList]()
	untypedType   = reflect.TypeFor[map[string]any]()
	metaType      = reflect.TypeFor[metav1.ObjectMeta]()
	selfMade      = reflect.TypeFor[json.Unmarshaler]()
)

// What is different in every object is not worth a look.
var unique = map[string]bool{"Name": true, "UID": true, "ResourceVersion": true}

// planner makes the visitor of a type, once, out of those of its parts: nothing of the type's own is looked up when objects come.
type planner map[reflect.Type]visitor

func planOf(t reflect.Type) visitor { return planner{}.plan(t) }

// plan returns nil for a type that has nothing to share.
func (p planner) plan(t reflect.Type) visitor {
	if v, planned := p[t]; planned {
		return v
	}
	// A type that contains itself, as the schemas of custom resources do, comes back to this one, whose plan is not known yet.
	var made visitor
	p[t] = func(s *Interner, v reflect.Value) {
		if made != nil {
			made(s, v)
		}
	}
	made = p.make(t)
	p[t] = made
	return made
}

func (p planner) make(t reflect.Type) visitor {
	switch {
	case t == fieldsType:
		return shareFields
	case t == textsType:
		return shareTexts
	case t == resourcesType:
		return shareResources
	case reflect.PointerTo(t).Implements(selfMade):
		return nil // what decodes itself may hold what is not its own
	}
	switch t.Kind() {
	case reflect.String:
		return shareString
	case reflect.Struct:
		return p.makeStruct(t)
	case reflect.Pointer:
		if elem := p.plan(t.Elem()); elem != nil {
			return func(s *Interner, v reflect.Value) {
				if !v.IsNil() {
					elem(s, v.Elem())
				}
			}
		}
	case reflect.Slice:
		if elem := p.plan(t.Elem()); elem != nil {
			return func(s *Interner, v reflect.Value) {
				for i := range v.Len() {
					elem(s, v.Index(i))
				}
			}
		}
	case reflect.Map:
		if t == untypedType {
			return func(s *Interner, v reflect.Value) { s.untyped(v.Interface().(map[string]any)) }
		}
	}
	return nil
}

func (p planner) makeStruct(t reflect.Type) visitor {
	type field struct {
		index int
		visit visitor
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || t == metaType && unique[f.Name] {
			continue
		}
		if visit := p.plan(f.Type); visit != nil {
			fields = append(fields, field{i, visit})
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return func(s *Interner, v reflect.Value) {
		for _, f := range fields {
			f.visit(s, v.Field(f.index))
		}
	}
}

func shareString(s *Interner, v reflect.Value) {
	if text := v.String(); text != "" {
		v.SetString(s.string(text))
	}
}

func shareFields(s *Interner, v reflect.Value) {
	f := v.Interface().(*metav1.FieldsV1)
	if !s.whole || f == nil || f.GetRawReader().Size() > maxFields {
		return
	}
	slot := s.fields.slot(maphash.Bytes(s.seed, f.GetRawBytes()))
	if known := slot.Load(); known != nil && known.Equal(*f) {
		v.Set(reflect.ValueOf(known))
		return
	}
	slot.Store(f)
}

// shareTexts shares labels, annotations and their like.
func shareTexts(s *Interner, v reflect.Value) {
	m := v.Interface().(map[string]string)
	if len(m) == 0 {
		return
	}
	var slot *atomic.Pointer[map[string]string]
	if s.whole {
		hash, size := uint64(0), 0
		for k, text := range m {
			hash += maphash.String(s.seed, k) * (1 + 2*maphash.String(s.seed, text)) // the order does not matter
			size += len(k) + len(text)
		}
		if size <= maxTexts {
			slot = s.texts.slot(hash)
			if known := slot.Load(); known != nil && maps.Equal(*known, m) {
				v.Set(reflect.ValueOf(*known))
				return
			}
		}
	}
	for k, text := range m {
		m[s.string(k)] = s.string(text) // to set a value sets the key, too, if it is a string
	}
	if slot != nil {
		remember(slot, m) // not before: from now on others read it
	}
}

// shareResources shares requests, limits, capacities.
func shareResources(s *Interner, v reflect.Value) {
	m := v.Interface().(corev1.ResourceList)
	if !s.whole || len(m) == 0 || len(m) > maxResources {
		return
	}
	hash := uint64(0)
	for k, q := range m {
		hash += maphash.String(s.seed, string(k)) * (1 + 2*maphash.Comparable(s.seed, q))
	}
	slot := s.resources.slot(hash)
	if known := slot.Load(); known != nil && maps.Equal(*known, m) {
		v.Set(reflect.ValueOf(*known))
		return
	}
	remember(slot, m)
}

// untyped shares strings between objects that have no type.
func (s *Interner) untyped(m map[string]any) {
	for k, v := range m {
		m[s.string(k)] = s.value(v) // to set a value sets the key, too, if it is a string
	}
}

func (s *Interner) value(v any) any {
	switch v := v.(type) {
	case string:
		return s.string(v)
	case map[string]any:
		s.untyped(v)
	case []any:
		for i := range v {
			v[i] = s.value(v[i])
		}
	}
	return v
}
