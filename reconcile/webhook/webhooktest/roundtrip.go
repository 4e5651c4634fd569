// Package webhooktest tests conversions between versions of a kind.
//
//	func FuzzConversion(f *testing.F) {
//		webhooktest.FuzzRoundTrip(f, v1alpha1.ToV1, v1alpha1.FromV1)
//	}
//
// # Reading order
//
// roundtrip.go.
package webhooktest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"

	"github.com/thermostat-go/thermostat/informer"
)

// FuzzRoundTrip is the body of a fuzz target: an object of either version is the same after it was converted to the
// other version and back. go test tries 200 random objects of each, go test -fuzz many more. Objects are compared as
// their JSON is read, so that nil and empty are the same where both are left out; a Quantity is the same if its text
// is. Spec and status are random, and so are labels and annotations; the rest of the metadata is no business of a
// conversion. That holds for Quantities, RawExtensions, values of type any, and types with their JSON in a field Raw,
// as JSON of apiextensions.k8s.io.
//
// fill are functions for types whose values obey rules, as randfill takes them:
//
//	func(s *v1.Schedule, c randfill.Continue) { *s = "@daily" }
func FuzzRoundTrip[A, B informer.Object](f *testing.F, to func(A) (B, error), back func(B) (A, error), fill ...any) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		roundTrip(t, random[A](t, seed, fill), to, back)
		roundTrip(t, random[B](t, seed, fill), back, to)
	})
}

// roundTrip converts an object and back.
func roundTrip[A, B informer.Object](t testing.TB, a A, to func(A) (B, error), back func(B) (A, error)) {
	t.Helper()
	before := read(t, a)
	b, err := to(a)
	if err != nil {
		t.Fatalf("%T cannot be converted: %v", a, err)
	}
	after := read(t, a) // String of a Quantity changes a, and not what is read
	if !reflect.DeepEqual(before, after) {
		t.Fatalf("the conversion of %T has changed what it was given (-before +after):\n%s", a,
			diff.Diff(before, after))
	}
	again, err := back(b)
	if err != nil {
		t.Fatalf("%T cannot be converted back to %T: %v", b, a, err)
	}
	if got := read(t, again); !reflect.DeepEqual(before, got) {
		t.Fatalf("%T became %T and another %T (-before +after):\n%s", a, b, a, diff.Diff(before, got))
	}
}

// random returns an object as a server could have stored it.
func random[T informer.Object](t testing.TB, seed uint64, fill []any) T {
	own := append(fillRaw(reflect.TypeFor[T](), map[reflect.Type]bool{}),
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			m.Name = "a"
			c.Fill(&m.Labels)
			c.Fill(&m.Annotations)
		},
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(c.Int63n(1<<33), 0) },
		func(raw *json.RawMessage, c randfill.Continue) { *raw = document(c) },
		func(raw *runtime.RawExtension, c randfill.Continue) { raw.Raw = document(c) },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(1<<40), resource.DecimalSI)
		},
		func(v *any, c randfill.Continue) {
			values := []any{nil, c.Bool(), c.Int63n(1 << 40), 0.5, "text", []any{"a"}, map[string]any{"a": "b"}}
			*v = values[c.Intn(len(values))]
		},
	)
	filler := randfill.NewWithSeed(int64(seed)).NilChance(0.3).NumElements(0, 3).Funcs(append(own, fill...)...)
	o := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	filler.Fill(o)
	return read(t, o)
}

// document is a JSON object.
func document(c randfill.Continue) []byte { return fmt.Appendf(nil, `{"a":%d}`, c.Int31()) }

// fillRaw returns functions for the types within t that are written as the JSON in their only field, Raw. They cannot
// be named here: JSON of apiextensions.k8s.io is in a module that brings the whole API server in.
func fillRaw(t reflect.Type, seen map[reflect.Type]bool) (fill []any) {
	if seen[t] {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return fillRaw(t.Elem(), seen)
	case reflect.Struct:
		if t.NumField() == 1 && t.Field(0).Name == "Raw" && t.Field(0).Type == reflect.TypeFor[[]byte]() &&
			reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
			signature := []reflect.Type{reflect.PointerTo(t), reflect.TypeFor[randfill.Continue]()}
			one := func(in []reflect.Value) []reflect.Value {
				in[0].Elem().Field(0).SetBytes(document(in[1].Interface().(randfill.Continue)))
				return nil
			}
			return []any{reflect.MakeFunc(reflect.FuncOf(signature, nil, false), one).Interface()}
		}
		for i := range t.NumField() {
			fill = append(fill, fillRaw(t.Field(i).Type, seen)...)
		}
	}
	return fill
}

// read returns an object as it is read from its JSON.
func read[T informer.Object](t testing.TB, o T) T {
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatalf("%T: %v", o, err)
	}
	again := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, again); err != nil {
		t.Fatalf("%T: %v", o, err)
	}
	return again
}
