package reconcile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// maxFields bounds how many fields changedFields names.
const maxFields = 4

// changedFields names the fields in which two states of an object differ, as its JSON has them: "status.conditions[0].reason". It tells no value, since the
// object may be a Secret, and of maps whose keys somebody has chosen, such as labels and data, no key. What the server changes by itself is left out.
//
// It looks at everything, so it is for rare occasions.
func changedFields(old, now any) []string {
	if u, ok := old.(runtime.Unstructured); ok {
		old = u.UnstructuredContent()
	}
	if u, ok := now.(runtime.Unstructured); ok {
		now = u.UnstructuredContent()
	}
	d := difference{walked: make(map[pair]struct{})}
	d.walk(nil, reflect.ValueOf(old), reflect.ValueOf(now))
	return d.fields
}

// difference walks through two values at once.
type difference struct {
	fields []string
	// walked are the pairs that have been met. Values of the user's may run in circles, and be reached on very many ways, so each pair is walked once: if it
	// is in several fields, the first is named.
	walked map[pair]struct{}
}

// pair are two pointers, slices of one length, or maps of a type.
type pair struct {
	of   reflect.Type
	a, b uintptr
	n    int
}

// again reports whether a pair has been walked, and takes note of it.
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
	// chosenKeys are the maps of unstructured objects whose keys are data. In typed objects, all maps are such.
	chosenKeys = []string{"data", "stringData", "binaryData", "labels", "annotations"}

	marshaler   = reflect.TypeFor[json.Marshaler]()
	untypedMap  = reflect.TypeFor[map[string]any]()
	deepestPath = 32 // of an object of the API; a chain of the user's may be long
)

func (d *difference) walk(path []string, a, b reflect.Value) {
	if len(d.fields) == maxFields || slices.Contains(byServer, strings.Join(path, ".")) || !a.IsValid() && !b.IsValid() {
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
	case a.Type().Implements(marshaler): // a time, a quantity: one value, however it is made up
		differ = !bytes.Equal(marshalled(a), marshalled(b))
	case len(path) > deepestPath:
		differ = !reflect.DeepEqual(a.Interface(), b.Interface())
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			if field := a.Type().Field(i); field.IsExported() {
				d.walk(append(slices.Clip(path), jsonName(field)...), a.Field(i), b.Field(i))
			}
		}
	case a.Kind() == reflect.Slice && len(path) > 0 && a.Len() == b.Len() && a.Type().Elem().Kind() != reflect.Uint8:
		if d.again(a, b) {
			return
		}
		for i := range a.Len() {
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
			d.walk(append(slices.Clip(path), name), reflect.ValueOf(before[name]), reflect.ValueOf(after[name]))
		}
	default:
		differ = !reflect.DeepEqual(a.Interface(), b.Interface())
	}
	if differ {
		d.fields = append(d.fields, cmp.Or(strings.Join(path, "."), "all of it"))
	}
}

// jsonName returns the step that leads to a field of a struct in JSON: none if the field is inlined.
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
