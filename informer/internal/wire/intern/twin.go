//go:build !purego

package intern

import (
	"maps"
	"reflect"
	"sync/atomic"
	"unsafe"
)

// Twins are, of one object that may be changed at first, the parts that are shared if they are not.
type Twins []twin

type twin struct {
	at    unsafe.Pointer // the field
	known *part          // what it held when it was decoded; nobody changes it
}

// twin lets the field at that address hold a part of its own. If another may take its place later, nothing in it has a
// twin.
func (d *decoder) twin(known *part, slot *atomic.Pointer[part], p part, at unsafe.Pointer, b []byte,
	make func(*part, unsafe.Pointer) bool) bool {
	if known == nil {
		d.change = Never
		var ok bool
		known, ok = d.first(slot, p, unsafe.Pointer(&d.apart), b, make)
		if d.apart, d.change = (anySlice{}), AtFirst; !ok {
			return false
		}
	}
	if known == nil {
		return make(&p, at)
	}
	d.change = Always
	ok := make(&p, at)
	d.change = AtFirst
	d.twins = append(d.twins, twin{at, known})
	return ok
}

// Settle is called when the object may be changed no longer. It lets the fields that are as they were share.
func (t Twins) Settle() {
	for _, twin := range t {
		var shared anySlice
		if twin.known.put(unsafe.Pointer(&shared)); same(twin.known.field.typ, twin.at, unsafe.Pointer(&shared)) {
			twin.known.put(twin.at)
		}
	}
}

// same compares the values of a type at two addresses.
func same(t reflect.Type, a, b unsafe.Pointer) bool {
	if t == textsType {
		a, b := *(*map[string]string)(a), *(*map[string]string)(b)
		return (a == nil) == (b == nil) && maps.Equal(a, b)
	}
	return reflect.DeepEqual(reflect.NewAt(t, a).Interface(), reflect.NewAt(t, b).Interface())
}
