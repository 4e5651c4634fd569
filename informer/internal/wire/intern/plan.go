//go:build !purego

package intern

import (
	"encoding/json"
	"reflect"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// plan is where in a value of one type there is something to share. It is made once, so that nothing of the type is
// looked up when objects come: to go through them by reflection took most of the time that sharing did.
type plan struct {
	places []place // nil while the plan is being made
}

// place is one in a value: in the value itself, or in a struct, however deep, that is part of it.
type place struct {
	offset uintptr
	kind   kind
	habit  habit
	// Of a pointer or slice: what is behind it, and how far one is from the next.
	to   *plan
	size uintptr
	// Of what can be nil and is shared as a whole.
	share sharer
}

type kind uint8

const (
	aString  kind = iota // of any string type
	aPointer             // to
	aSlice               // of
	aWhole               // a map, or a pointer to what is like one
)

// sharer shares what is at a place, which is not nil.
type sharer func(s *Interner, at unsafe.Pointer, h *habit, curious bool)

// visit shares what is in the value at that address. If it is curious, then also at places where nothing seems to
// repeat.
func (p *plan) visit(s *Interner, value unsafe.Pointer, curious bool) {
	for i := range p.places {
		place := &p.places[i]
		at := unsafe.Add(value, place.offset)
		switch place.kind {
		case aString:
			if text := (*string)(at); len(*text) >= minString && place.habit.worth(curious) {
				shared, known := s.string(*text)
				if known {
					*text = shared
				}
				place.habit.learn(known, curious)
			}
		case aPointer:
			if to := *(*unsafe.Pointer)(at); to != nil {
				place.to.visit(s, to, curious)
			}
		case aSlice:
			elems := *(*[]struct{})(at) // the length and address are where any slice has them
			first := unsafe.Pointer(unsafe.SliceData(elems))
			for i := range uintptr(len(elems)) {
				place.to.visit(s, unsafe.Add(first, i*place.size), curious)
			}
		case aWhole:
			if *(*unsafe.Pointer)(at) != nil {
				place.share(s, at, &place.habit, curious)
			}
		}
	}
}

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

// planner makes the plans of types, each once: a type that contains itself, as the schemas of custom resources do,
// comes back to a plan that is being made.
type planner struct {
	plans map[reflect.Type]*plan
	whole bool
}

func newPlanner(whole bool) planner { return planner{plans: map[reflect.Type]*plan{}, whole: whole} }

func (p planner) plan(t reflect.Type) *plan {
	made, planned := p.plans[t]
	if !planned {
		made = &plan{}
		p.plans[t] = made
		made.places = p.add([]place{}, t, 0)
	}
	return made
}

// add appends the places in a t that is at an offset.
func (p planner) add(places []place, t reflect.Type, offset uintptr) []place {
	whole := func(share sharer) []place { return append(places, place{offset: offset, kind: aWhole, share: share}) }
	switch {
	case t == textsType:
		return whole(textsSharer(p.whole))
	case t == fieldsType && p.whole:
		return whole(shareFields)
	case t == resourcesType && p.whole:
		return whole(resourcesSharer())
	case reflect.PointerTo(t).Implements(selfMade):
		return places // what decodes itself may hold what is not its own
	}
	switch t.Kind() {
	case reflect.String:
		return append(places, place{offset: offset, kind: aString})
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && !(t == metaType && unique[f.Name]) {
				places = p.add(places, f.Type, offset+f.Offset)
			}
		}
	case reflect.Pointer, reflect.Slice:
		if to := p.plan(t.Elem()); to.places == nil || len(to.places) > 0 {
			kinds := map[reflect.Kind]kind{reflect.Pointer: aPointer, reflect.Slice: aSlice}
			return append(places, place{offset: offset, kind: kinds[t.Kind()], to: to, size: t.Elem().Size()})
		}
	}
	return places
}
