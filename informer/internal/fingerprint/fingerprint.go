// Package fingerprint finds out whether a value has been changed, and where, without a copy of the value.
package fingerprint

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Print is the fingerprint of a value: a number for everything that can be reached from it.
type Print []uint64

// Of takes the fingerprint of what value points to.
func Of[T any](seed maphash.Seed, value *T) Print {
	w := walk{seed: seed, recording: true}
	w.value(reflect.ValueOf(value).Elem())
	return w.leaves
}

// Changed returns the path of the first change of what value points to since its fingerprint was taken with the same
// seed, such as "Labels" or "Spec.Containers[0].Image". It is empty if there is none.
func Changed[T any](seed maphash.Seed, since Print, value *T) (path string) {
	w := walk{seed: seed, leaves: since}
	w.value(reflect.ValueOf(value).Elem())
	return w.changed
}

// walk goes through everything that can be reached from a value, always in the same order, and records its leaves or
// compares them. The number of a collection's elements is a leaf that stands before them, so the first leaf that
// differs stands in what was changed.
type walk struct {
	seed      maphash.Seed
	recording bool
	leaves    Print // recorded, or to be compared with
	at        int
	path      []step
	seen      map[visit]struct{} // pointers that were followed: they may run in a circle

	changed string // the path of the first difference; empty: none
}

type visit struct {
	pointer uintptr
	typ     reflect.Type
}

func (w *walk) leaf(number uint64) {
	switch {
	case w.recording:
		w.leaves = append(w.leaves, number)
	case w.changed != "":
	case w.leaves[w.at] != number:
		w.changed = w.where()
	default:
		w.at++
	}
}

// step leads to a field of a struct, to an element of a list, or to a named value in a map.
type step struct {
	of    reflect.Type // the struct or list; nil: a map
	index int
	name  string
}

func (s step) String() string {
	switch {
	case s.of == nil:
		return "." + s.name
	case s.of.Kind() == reflect.Struct:
		return "." + s.of.Field(s.index).Name
	default:
		return fmt.Sprintf("[%d]", s.index)
	}
}

func (w *walk) step(s step, v reflect.Value) {
	w.path = append(w.path, s)
	w.value(v)
	w.path = w.path[:len(w.path)-1]
}

func (w *walk) where() string {
	var where strings.Builder
	for _, s := range w.path {
		where.WriteString(s.String())
	}
	return cmp.Or(strings.TrimPrefix(where.String(), "."), "the value")
}

var (
	typeOfTime     = reflect.TypeFor[time.Time]()
	typeOfQuantity = reflect.TypeFor[resource.Quantity]()
)

func (w *walk) value(v reflect.Value) {
	if w.changed != "" {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		w.pointer(v)
	case reflect.Interface:
		if v.IsNil() {
			w.leaf(0)
			return
		}
		w.leaf(maphash.String(w.seed, v.Elem().Type().String()))
		w.value(v.Elem())
	case reflect.Struct:
		if v.Type() == typeOfTime { // its third field is the time zone, which all times share
			w.leaf(v.Field(0).Uint())
			w.leaf(uint64(v.Field(1).Int()))
			return
		}
		for i := range v.NumField() {
			if v.Type() == typeOfQuantity && v.Type().Field(i).Name == "s" { // String keeps its result there
				continue
			}
			w.step(step{of: v.Type(), index: i}, v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		w.leaf(uint64(v.Len()))
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			w.leaf(maphash.Bytes(w.seed, v.Bytes()))
			return
		}
		for i := range v.Len() {
			w.step(step{of: v.Type(), index: i}, v.Index(i))
		}
	case reflect.Map:
		w.entries(v)
	case reflect.String:
		w.leaf(maphash.String(w.seed, v.String()))
	case reflect.Bool:
		w.leaf(maphash.Comparable(w.seed, v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.leaf(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		w.leaf(v.Uint())
	case reflect.Float32, reflect.Float64:
		w.leaf(math.Float64bits(v.Float())) // that of a NaN is always the same, its hash never
	case reflect.Complex64, reflect.Complex128:
		w.leaf(math.Float64bits(real(v.Complex())))
		w.leaf(math.Float64bits(imag(v.Complex())))
	default: // a function, a channel: it can only be another one
		w.leaf(uint64(v.Pointer()))
	}
}

// pointer walks what a pointer leads to, once.
func (w *walk) pointer(v reflect.Value) {
	to := visit{v.Pointer(), v.Type()}
	switch _, again := w.seen[to]; {
	case v.IsNil():
		w.leaf(0)
	case again:
		w.leaf(1)
	default:
		w.leaf(2)
		if w.seen == nil {
			w.seen = make(map[visit]struct{})
		}
		w.seen[to] = struct{}{}
		w.value(v.Elem())
	}
}

// entries walks a map in the order of the hashes of its keys. The keys of a typed map are data, which is not told;
// those of an untyped one are the fields of an unstructured object, and are, down to the maps that hold data there.
func (w *walk) entries(v reflect.Value) {
	w.leaf(uint64(v.Len()))
	type entry struct {
		hash       uint64
		key, value reflect.Value
	}
	sorted := make([]entry, 0, v.Len())
	for i := v.MapRange(); i.Next(); {
		key := walk{seed: w.seed, recording: true}
		key.value(i.Key())
		hash := uint64(0)
		for _, leaf := range key.leaves {
			hash = hash*31 + leaf
		}
		sorted = append(sorted, entry{hash, i.Key(), i.Value()})
	}
	slices.SortFunc(sorted, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	untyped := v.Type().Key().Kind() == reflect.String && v.Type().Elem().Kind() == reflect.Interface &&
		!slices.ContainsFunc(w.path, func(s step) bool { return slices.Contains(dataMaps, s.name) })
	for _, e := range sorted {
		w.leaf(e.hash)
		if untyped {
			w.step(step{name: e.key.String()}, e.value)
		} else {
			w.value(e.value)
		}
	}
}

// dataMaps are the maps of unstructured objects whose keys are data.
var dataMaps = []string{"data", "stringData", "binaryData", "labels", "annotations"}
