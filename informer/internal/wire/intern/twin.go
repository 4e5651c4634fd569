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
func (d *decoder) twin(known *part, slot *atomic.Pointer[part], at unsafe.Pointer, b []byte, make maker) (ok bool) {
	curious := d.curious
	defer func() { d.change, d.curious = AtFirst, curious }()
	if known == nil {
		d.change = Never
		if known, ok = d.first(slot, unsafe.Pointer(new(anySlice)), b, make); !ok {
			return false
		}
		d.curious = false // what it has just seen is no repetition
	}
	if known != nil {
		d.change = Always
		d.twins = append(d.twins, twin{at, known})
		_, ok = make(at)
		return ok
	}
	// What is inside is made for the second time. If that goes on at each level, it takes the square of their number.
	d.change = AtFirst
	if d.again == maxAgain {
		d.change = Always
	}
	d.again++
	defer func() { d.again-- }()
	_, ok = make(at)
	return ok
}

// At most so many levels of parts that are not shared are made twice each.
const maxAgain = 2

// Settle is called when the object may be changed no longer. It lets the fields that are as they were share.
func (t Twins) Settle() {
	if len(t) == 0 { // as nearly always, and then it allocates nothing
		return
	}
	shared := new(anySlice)
	for _, twin := range t {
		if twin.known.put(unsafe.Pointer(shared)); same(twin.known.field.typ, twin.at, unsafe.Pointer(shared)) {
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
