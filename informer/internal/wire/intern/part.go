//go:build !purego

package intern

import (
	"hash/maphash"
	"sync/atomic"
	"unsafe"
)

// part is what a field holds that is a pointer, slice or map, and the bytes it was made of. Where the same field has
// the same bytes again, it is shared, unless
//   - it holds more than maxMade, which a few bytes are enough for;
//   - readers of one object would change it in others: a Quantity. Of those that are the values of a map everybody has
//     a copy;
//   - it is the content of a Secret, which is not to be kept longer than the Secret.
type part struct {
	field *field
	bytes string         // behind a pointer: the value's; otherwise those of all elements or entries, and of their tags
	is    unsafe.Pointer // the pointer, the first of the elements, the map
	len   int            // of a slice
	made  int            // as of the decoder
}

// A slice as the compiler lays it out.
type anySlice struct {
	first    unsafe.Pointer
	len, cap int
}

// put lets the field at that address be the part.
func (p *part) put(at unsafe.Pointer) {
	if p.field.shape == slice {
		*(*anySlice)(at) = anySlice{p.is, p.len, p.len} // who appends to it gets one of his own
	} else {
		*(*unsafe.Pointer)(at) = p.is
	}
}

// maker makes a part at an address. It returns it by value, so that only what is remembered has to be on the heap.
type maker func(at unsafe.Pointer) (part, bool)

// share lets the field at that address hold what was made of the same bytes before, or else what make makes. Of an
// object that may be changed at first, it is a copy that has a twin.
func (d *decoder) share(f *field, at unsafe.Pointer, b []byte, make maker) bool {
	slot := d.parts.slot(maphash.Bytes(d.seed, b) ^ f.salt)
	known := slot.Load()
	if known != nil && (known.field != f || known.bytes != string(b)) {
		known = nil
	}
	f.habit.learn(known != nil, d.curious)
	switch {
	case d.change == AtFirst && len(b) <= maxPart:
		return d.twin(known, slot, at, b, make)
	case known != nil:
		known.put(at)
		d.made += known.made
		return true
	}
	_, ok := d.first(slot, at, b, make)
	return ok
}

// first makes a part, and remembers it unless it is not to be shared: then known is nil.
func (d *decoder) first(slot *atomic.Pointer[part], at unsafe.Pointer, b []byte, make maker) (known *part, ok bool) {
	made, lazy := d.made, d.lazy
	p, ok := make(at)
	if p.made = d.made - made; !ok || len(b) > maxPart || p.made > maxMade || d.lazy != lazy {
		return nil, ok
	}
	p.bytes = string(b)
	return remember(slot, p), true
}
