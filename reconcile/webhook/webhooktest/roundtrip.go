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
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"

	"github.com/thermostat-go/thermostat/informer"
)

// FuzzRoundTrip is the body of a fuzz target: an object of either version is the same after it was converted to the
// other version and back. go test tries 200 random objects of each, go test -fuzz many more. Objects are compared as
// their JSON is read, so that nil and empty are the same where both are left out. Spec and status are random, and so
// are labels and annotations; the rest of the metadata is no business of a conversion.
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
func roundTrip[A, B informer.Object](t *testing.T, a A, to func(A) (B, error), back func(B) (A, error)) {
	t.Helper()
	before := a.DeepCopyObject()
	b, err := to(a)
	if err != nil {
		t.Fatalf("%T cannot be converted: %v", a, err)
	}
	if !reflect.DeepEqual(before, a) {
		t.Fatalf("the conversion of %T has changed what it was given (-before +after):\n%s", a, diff.Diff(before, a))
	}
	again, err := back(b)
	if err != nil {
		t.Fatalf("%T cannot be converted back to %T: %v", b, a, err)
	}
	if got := read(t, again); !reflect.DeepEqual(read(t, a), got) {
		t.Fatalf("%T became %T and another %T (-before +after):\n%s", a, b, a, diff.Diff(read(t, a), got))
	}
}

// random returns an object as a server could have stored it.
func random[T informer.Object](t *testing.T, seed uint64, fill []any) T {
	filler := randfill.NewWithSeed(int64(seed)).NilChance(0.3).NumElements(0, 3).Funcs(append([]any{
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			m.Name = "a"
			c.Fill(&m.Labels)
			c.Fill(&m.Annotations)
		},
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(c.Int63n(1<<33), 0) },
		func(raw *json.RawMessage, c randfill.Continue) { *raw = json.RawMessage(`{"a":1}`) },
	}, fill...)...)
	o := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	filler.Fill(o)
	return read(t, o)
}

// read returns an object as it is read from its JSON.
func read[T informer.Object](t *testing.T, o T) T {
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
