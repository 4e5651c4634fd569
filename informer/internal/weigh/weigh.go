// Package weigh estimates how much of the heap values take.
//
// It weighs a sample of them, part by part. Objects of a cache share much: what more than one block of the sample leads
// to is taken for something that all share, and counted once; the rest is counted for all. Blocks are neighbours in the
// cache, which mostly have come together, such as the pods of one ReplicaSet: so what a few share is counted once for
// these few.
//
// What a value leads to by fields that are exported is taken to be read-only, as what is in a cache. Of the other
// fields only those of the value itself are followed, and no pointers: they may lead to anything.
package weigh

import (
	"math/bits"
	"reflect"
	"runtime/metrics"
	"slices"
	"sync"
	"time"
)

// Blocks and BlockSize are how many values are weighed, of many: blocks of neighbours.
const Blocks, BlockSize = 16, 32

// Sample is what has been weighed so far. The zero Sample is empty.
type Sample struct {
	block, values int
	parts         map[uintptr]part
	apart, shared int // the bytes of parts that one block leads to, and of those that several do
}

// part is a piece of memory that is allocated as a whole.
type part struct{ block, bytes int }

const several = -1 // in the place of a part's block

// NextBlock says that the following values are not neighbours of those before.
func (s *Sample) NextBlock() { s.block++ }

// Add weighs what a value leads to, but not the value itself.
func (s *Sample) Add(value reflect.Value) {
	if s.parts == nil {
		s.parts = make(map[uintptr]part)
	}
	s.values++
	s.inside(value, true)
}

// Total estimates what that many values lead to, of which those of the sample are some.
func (s *Sample) Total(values int) int {
	if s.values == 0 {
		return 0
	}
	return s.shared + int(float64(s.apart)/float64(s.values)*float64(values))
}

// first reports whether nothing has led to a part before, whose weight it adds.
func (s *Sample) first(at uintptr, bytes int) bool {
	p, again := s.parts[at]
	switch {
	case !again:
		s.parts[at] = part{s.block, bytes}
		s.apart += bytes
	case p.block != several && p.block != s.block:
		s.apart -= p.bytes
		s.shared += p.bytes
		s.parts[at] = part{several, p.bytes}
	}
	return !again
}

// inside weighs what a value leads to. own says that the value is no memory that others may change.
func (s *Sample) inside(v reflect.Value, own bool) {
	switch v.Kind() {
	case reflect.String:
		if v.Len() > 0 {
			s.first(uintptr(v.UnsafePointer()), allocated(v.Len(), false))
		}
	case reflect.Pointer:
		if !v.IsNil() && s.first(v.Pointer(), allocated(int(v.Type().Elem().Size()), holdsPointers(v.Type().Elem()))) {
			s.inside(v.Elem(), false)
		}
	case reflect.Interface:
		s.boxed(v)
	case reflect.Slice:
		s.elements(v)
	case reflect.Array:
		for i := range v.Len() {
			s.inside(v.Index(i), own)
		}
	case reflect.Map:
		s.entries(v)
	case reflect.Struct:
		s.fields(v, own)
	}
}

func (s *Sample) fields(v reflect.Value, own bool) {
	t := v.Type()
	if t == typeOfTime || !holdsPointers(t) {
		return
	}
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case f.IsExported():
			s.inside(v.Field(i), own)
		case own && isData(f.Type):
			s.inside(v.Field(i), true)
		}
	}
}

// isData reports whether a field that is not exported is likely to hold nothing but data of its own.
func isData(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer:
		return !holdsPointers(t.Elem()) || t.Elem() == typeOfTime
	case reflect.String, reflect.Slice, reflect.Map, reflect.Struct, reflect.Array:
		return true
	}
	return false
}

var typeOfTime = reflect.TypeFor[time.Time]()

// boxed weighs what an interface holds: a pointer, or a box with a value, which nobody changes. Objects share boxes,
// too.
func (s *Sample) boxed(v reflect.Value) {
	if v.IsNil() {
		return
	}
	content := v.Elem()
	switch content.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Chan, reflect.Func, reflect.UnsafePointer:
	default:
		//lint:ignore SA1019 nothing else tells which box it is, and the number is never made a pointer
		box := v.InterfaceData()[1]
		if !s.first(box, allocated(int(content.Type().Size()), holdsPointers(content.Type()))) {
			return
		}
	}
	s.inside(content, true)
}

func (s *Sample) elements(v reflect.Value) {
	elem := v.Type().Elem()
	if v.Cap() == 0 || !s.first(v.Pointer(), allocated(v.Cap()*int(elem.Size()), holdsPointers(elem))) ||
		!holdsPointers(elem) {
		return
	}
	for i := range v.Len() {
		s.inside(v.Index(i), false)
	}
}

// entries weighs a map: its header, and groups of eight slots, of which the runtime fills at most seven once there is
// more than one.
func (s *Sample) entries(v reflect.Value) {
	if v.IsNil() {
		return
	}
	const header, control, groupSlots, table = 48, 8, 8, 32
	slot := int(v.Type().Key().Size() + v.Type().Elem().Size())
	bytes := allocated(header, true)
	switch n := v.Len(); {
	case n == 0:
	case n <= groupSlots:
		bytes += allocated(control+groupSlots*slot, true)
	default:
		groups := 1 << bits.Len(uint((n-1)/(groupSlots-1)))
		bytes += allocated(groups*(control+groupSlots*slot), true) + allocated(table, true) + allocated(8, true)
	}
	if !s.first(v.Pointer(), bytes) {
		return
	}
	for i := v.MapRange(); i.Next(); {
		s.inside(i.Key(), false)
		s.inside(i.Value(), false)
	}
}

// pointers remembers which types hold pointers.
var pointers sync.Map

func holdsPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && holdsPointers(t.Elem())
	case reflect.Struct:
		if known, ok := pointers.Load(t); ok {
			return known.(bool)
		}
		holds := false
		for i := range t.NumField() {
			holds = holds || holdsPointers(t.Field(i).Type)
		}
		pointers.Store(t, holds)
		return holds
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32,
		reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	}
	return true
}

// allocated returns what the runtime takes for that many bytes.
func allocated(bytes int, pointers bool) int {
	const tiny, headerFrom, header, pages = 16, 512, 8, 8 << 10
	if bytes < tiny && !pointers { // several share a block
		return (bytes + 7) &^ 7
	}
	if bytes > headerFrom && pointers {
		bytes += header
	}
	classes := sizeClasses()
	if i, _ := slices.BinarySearch(classes, bytes); i < len(classes) {
		return classes[i]
	}
	return (bytes + pages - 1) &^ (pages - 1)
}

// sizeClasses returns the sizes that the runtime rounds up to, in order.
var sizeClasses = sync.OnceValue(func() (classes []int) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs-by-size:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return nil
	}
	for _, bound := range sample[0].Value.Float64Histogram().Buckets {
		if bound > 1 && bound < 1<<20 { // each bound is one more than a size
			classes = append(classes, int(bound)-1)
		}
	}
	return classes
})
