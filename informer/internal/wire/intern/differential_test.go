package intern

import (
	"cmp"
	"encoding/json"
	classic "math/rand"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// These tests hold for the Interner and for its twin, with the build tag purego.

var changes = []Change{Always, AtFirst, Never}

// bySelf is the model: what the type's own Unmarshal makes of the bytes, or nil if it refuses them.
func bySelf(t reflect.Type, data []byte) any {
	o := reflect.New(t).Interface()
	if o.(unmarshaler).Unmarshal(data) != nil {
		return nil
	}
	return o
}

func byInterner(s *Interner, data []byte) any {
	o := reflect.New(s.object.Elem()).Interface()
	twins, err := s.Unmarshal(data, o.(unmarshaler))
	if err != nil {
		return nil
	}
	twins.Settle()
	return o
}

// kinds are the types of k8s.io/api that decode protobuf, in a fixed order.
func kinds() (types []reflect.Type) {
	unmarshalerType := reflect.TypeFor[unmarshaler]()
	for kind, of := range scheme.Scheme.AllKnownTypes() {
		if reflect.PointerTo(of).Implements(unmarshalerType) && kind.Version != runtime.APIVersionInternal {
			types = append(types, of)
		}
	}
	slices.SortFunc(types, func(a, b reflect.Type) int {
		return cmp.Or(cmp.Compare(a.PkgPath(), b.PkgPath()), cmp.Compare(a.Name(), b.Name()))
	})
	return slices.Compact(types)
}

// generated returns some objects of a type in protobuf, each filled at random.
func generated(t *testing.T, of reflect.Type, seed int64, count int) (encoded [][]byte) {
	return encodedAs(t, of, seed, count, func(o any) ([]byte, error) {
		return o.(interface{ Marshal() ([]byte, error) }).Marshal()
	})
}

func encodedAs(t *testing.T, of reflect.Type, seed int64, count int,
	encode func(any) ([]byte, error)) (encoded [][]byte) {
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, classic.NewSource(seed), serializer.NewCodecFactory(scheme.Scheme))
	for range count {
		o := reflect.New(of).Interface()
		fill.Fill(o)
		data, err := encode(o)
		require.NoError(t, err)
		encoded = append(encoded, data)
	}
	return encoded
}

// sameByBoth decodes messages several times, so that they share, and compares each with what its own Unmarshal makes.
func sameByBoth(t *testing.T, of reflect.Type, encoded [][]byte) {
	for _, change := range changes {
		s := New(of, change)
		var decoded []any
		for range 5 {
			for _, data := range encoded {
				decoded = append(decoded, byInterner(s, data))
			}
		}
		for i, o := range decoded { // after all are decoded: sharing must not change the earlier ones
			if want := bySelf(of, encoded[i%len(encoded)]); !reflect.DeepEqual(want, o) {
				require.Equal(t, want, o, "%v: %x", of, encoded[i%len(encoded)])
			}
		}
	}
}

func TestEveryKindIsDecodedAsItDecodesItself(t *testing.T) {
	types := kinds()
	require.Greater(t, len(types), 300)
	for _, of := range types {
		sameByBoth(t, of, generated(t, of, rand.Int64(), 10))
	}
}

func FuzzEveryKind(f *testing.F) {
	types := kinds()
	for i := range types {
		f.Add(uint(i), int64(i), uint(0), byte(0))
	}
	f.Fuzz(func(t *testing.T, kind uint, seed int64, at uint, damage byte) {
		of := types[kind%uint(len(types))]
		encoded := generated(t, of, seed, 3)
		if first := encoded[0]; damage != 0 && len(first) > 0 {
			damaged := slices.Clone(first)
			damaged[at%uint(len(damaged))] ^= damage
			encoded = append(encoded, damaged)
		}
		sameByBoth(t, of, encoded)
	})
}

// The twin of the tests above for JSON, of which the model is package json of k8s.io/apimachinery.

func byPackage(of reflect.Type, data []byte) any {
	o := reflect.New(of)
	if kjson.Unmarshal(data, o.Interface()) != nil {
		return nil
	}
	return o.Interface()
}

func fromJSON(s *Interner, data []byte) any {
	o := reflect.New(s.object.Elem()).Interface()
	twins, err := s.FromJSON(data, o)
	if err != nil {
		return nil
	}
	twins.Settle()
	return o
}

// sameAsPackage decodes texts several times, so that they share, and compares each with what the package makes of it:
// of a type, and as an object without one.
func sameAsPackage(t *testing.T, of reflect.Type, texts ...[]byte) {
	for _, of := range []reflect.Type{of, reflect.TypeFor[map[string]any]()} {
		for _, change := range changes {
			s := New(of, change)
			var decoded []any
			for range 2 {
				for _, data := range texts {
					decoded = append(decoded, fromJSON(s, data))
				}
			}
			for i, o := range decoded {
				if want := byPackage(of, texts[i%len(texts)]); !reflect.DeepEqual(want, o) {
					require.Equal(t, want, o, "%v: %s", of, texts[i%len(texts)])
				}
			}
		}
	}
}

// fragments are put into the JSON of objects.
var fragments = []string{"null", "true", "false", "0", "-0", "1e3", "1.5", "9223372036854775808",
	"-9223372036854775808",
	"01", "1.", "+1", `"text"`, `"\u00e9\n"`, `"\ud800"`, `"\x"`, `"\uzzzz"`, "\"\xff\"", "\"\x01\"", `"`, "[]", "{}",
	"[[]]",
	`[null,1,"a",{}]`, `{"a":1,"a":{"b":2}}`, "nul", "nulll", ",", ":", "]", "}", "[", "{", " \t\r\n", "\x00", "",
	`"2026-11-23T08:00:00Z"`, `"10Mi"`, "[1,]", `{"a":1,}`, `"name":"a",`, `"metadata":{},`, `"spec":null,`}

func TestEveryKindInJSON(t *testing.T) {
	for _, of := range kinds() {
		texts := encodedAs(t, of, rand.Int64(), 3, json.Marshal)
		for range 5 {
			sound := texts[rand.IntN(3)]
			from := rand.IntN(len(sound))
			to := min(len(sound), from+rand.IntN(3))
			if next := slices.IndexFunc(sound[from:], func(c byte) bool { return c == ':' || c == ',' }); next > 0 {
				from = from + next + 1 // a value or name begins here
				if to = from; rand.IntN(2) == 0 {
					to += max(0, slices.Index(sound[from:], ','))
				}
			}
			odd := slices.Concat(sound[:from], []byte(fragments[rand.IntN(len(fragments))]), sound[to:])
			texts = append(texts, odd)
		}
		sameAsPackage(t, of, texts...)
	}
}
