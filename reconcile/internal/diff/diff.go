// Package diff compares two states of an object and names the fields in which they differ, without a value of either:
// the object may be a Secret. It has no lock and no goroutine.
package diff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

const (
	maxFields  = 4  // how many fields Names names
	MaxChanges = 16 // how many are told apart
)

// Change is a field in which two states of an object differ. The object may be a Secret, so a change holds no value,
// only hashes with a seed of this process.
type Change struct {
	// as in the object's JSON: "status.conditions[0].reason"; without the keys of maps in which keys are data
	Name string
	Path uint64 // the hash of the name and of the key that the name leaves out
	Now  uint64 // the hash of the value
	Old  uint64 // the same of the value before
	// Step is 1 if an integer has grown, -1 if it has shrunk, and 0 for other values. Below says that it is negative
	// now.
	Step  int8
	Below bool
}

// Of returns the fields in which two states of an object differ, except those that the server sets with every
// write. It compares the whole object, so it is for rare occasions.
func Of(seed maphash.Seed, old, now any) []Change {
	if u, ok := old.(runtime.Unstructured); ok {
		old = u.UnstructuredContent()
	}
	if u, ok := now.(runtime.Unstructured); ok {
		now = u.UnstructuredContent()
	}
	d := difference{seed: seed, walked: make(map[pair]struct{})}
	d.walk(nil, reflect.ValueOf(old), reflect.ValueOf(now))
	return d.changes
}

// Names returns the first maxFields names of changed fields, each once, for a log line.
func Names(changes []Change) (fields []string) {
	for _, c := range changes {
		if len(fields) < maxFields && !slices.Contains(fields, c.Name) {
			fields = append(fields, c.Name)
		}
	}
	return fields
}

// difference walks through two values at once.
type difference struct {
	seed    maphash.Seed
	changes []Change
	// walked has the pairs that have been walked. A user's values may be cyclic, or be reached by very many paths, so
	// each pair is walked once: of several fields that have it, the first is named.
	walked map[pair]struct{}
}

// pair are two pointers, slices of one length, or maps of a type.
type pair struct {
	of   reflect.Type
	a, b uintptr
	n    int
}

// again records a pair, and reports whether it has been walked before.
func (d *difference) again(a, b reflect.Value) bool {
	p := pair{of: a.Type(), a: a.Pointer(), b: b.Pointer()}
	if a.Kind() == reflect.Slice {
		p.n = a.Len()
	}
	_, walked := d.walked[p]
	d.walked[p] = struct{}{}
	return walked
}

var (
	// byServer are the fields that the server changes with every write.
	byServer = []string{"metadata.resourceVersion", "metadata.managedFields", "metadata.generation"}
	// chosenKeys are the maps of unstructured objects in which keys are data. In typed objects, all maps are.
	chosenKeys = []string{"data", "stringData", "binaryData", "labels", "annotations"}

	marshaler   = reflect.TypeFor[json.Marshaler]()
	untypedMap  = reflect.TypeFor[map[string]any]()
	deepestPath = 32 // enough for objects of the API; a user's type may be a long chain
)

func (d *difference) walk(path []string, a, b reflect.Value) {
	if len(d.changes) == MaxChanges || slices.Contains(byServer, strings.Join(path, ".")) || !a.IsValid() &&
		!b.IsValid() {
		return
	}
	differ := false
	switch {
	case !a.IsValid() || !b.IsValid() || a.Type() != b.Type():
		differ = true
	case a.Kind() == reflect.Pointer:
		if !d.again(a, b) {
			d.walk(path, a.Elem(), b.Elem())
		}
	case a.Kind() == reflect.Interface:
		d.walk(path, a.Elem(), b.Elem())
	case a.Type().Implements(marshaler): // one value, such as a time or a quantity
		differ = !bytes.Equal(marshalled(a), marshalled(b))
	case len(path) > deepestPath:
		differ = !reflect.DeepEqual(a.Interface(), b.Interface())
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			if field := a.Type().Field(i); field.IsExported() && !same(a.Field(i), b.Field(i)) {
				d.walk(append(slices.Clip(path), jsonName(field)...), a.Field(i), b.Field(i))
			}
		}
	case a.Kind() == reflect.Slice && len(path) > 0 && a.Len() == b.Len() && a.Type().Elem().Kind() != reflect.Uint8:
		if d.again(a, b) {
			return
		}
		for i := range a.Len() {
			if same(a.Index(i), b.Index(i)) {
				continue
			}
			within := slices.Clone(path)
			within[len(within)-1] += fmt.Sprintf("[%d]", i)
			d.walk(within, a.Index(i), b.Index(i))
		}
	case a.Type() == untypedMap && (len(path) == 0 || !slices.Contains(chosenKeys, path[len(path)-1])):
		if d.again(a, b) {
			return
		}
		before, after := a.Interface().(map[string]any), b.Interface().(map[string]any)
		either := maps.Clone(before)
		maps.Copy(either, after)
		for _, name := range slices.Sorted(maps.Keys(either)) {
			if reflect.DeepEqual(before[name], after[name]) {
				continue
			}
			d.walk(append(slices.Clip(path), name), reflect.ValueOf(before[name]), reflect.ValueOf(after[name]))
		}
	default:
		differ = !reflect.DeepEqual(a.Interface(), b.Interface())
	}
	if differ {
		d.found(cmp.Or(strings.Join(path, "."), "all of it"), a, b)
	}
}

// same reports whether two values are deeply equal, as most parts of two states of an object are. It costs much less
// than to walk through them, since it builds no paths.
func same(a, b reflect.Value) bool {
	if a.CanAddr() && b.CanAddr() { // without copying a large struct
		a, b = a.Addr(), b.Addr()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// found records a changed field, or each changed entry of a map.
func (d *difference) found(name string, a, b reflect.Value) {
	if a.IsValid() && b.IsValid() && a.Type() == b.Type() && a.Kind() == reflect.Map &&
		a.Type().Key().Kind() == reflect.String {
		for _, key := range append(a.MapKeys(), b.MapKeys()...) {
			before, after := a.MapIndex(key), b.MapIndex(key)
			old, now := d.hash(before), d.hash(after)
			path := maphash.String(d.seed, name+"\x00"+key.String())
			met := slices.ContainsFunc(d.changes, func(c Change) bool { return c.Path == path })
			if old != now && !met && len(d.changes) < MaxChanges {
				d.changes = append(d.changes, Change{Name: name, Path: path, Old: old, Now: now})
			}
		}
		return
	}
	c := Change{Name: name, Path: maphash.String(d.seed, name), Old: d.hash(a), Now: d.hash(b)}
	from, isNumber := integer(a)
	to, isAlso := integer(b)
	if isNumber && isAlso {
		c.Step, c.Below = int8(cmp.Compare(to, from)), to < 0
	}
	d.changes = append(d.changes, c)
}

// hash returns the hash of a value's JSON.
func (d *difference) hash(v reflect.Value) uint64 {
	if !v.IsValid() {
		return 0
	}
	return maphash.Bytes(d.seed, marshalled(v))
}

// integer returns the value of an integer, and zero for a field that is not there.
func integer(v reflect.Value) (n int64, ok bool) {
	switch {
	case !v.IsValid():
		return 0, true
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return int64(min(v.Uint(), math.MaxInt64)), true
	}
	return 0, false
}

// jsonName returns the name of a struct's field in JSON as a path: an empty one if the field is inlined.
func jsonName(field reflect.StructField) []string {
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	switch {
	case name != "":
		return []string{name}
	case field.Anonymous || options == "inline":
		return nil
	default:
		return []string{field.Name}
	}
}

func marshalled(v reflect.Value) []byte {
	b, _ := json.Marshal(v.Interface()) // what cannot be marshalled has no JSON to differ in
	return b
}
