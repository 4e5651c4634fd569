//go:build !purego

package intern

//lint:file-ignore U1000 what encoding/json does with fields that nothing reads is what is compared
//lint:file-ignore SA5008 so are tags that are not as they should be

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
)

// lazily keeps what it finds out.
type lazily struct {
	Text  string `json:"text"`
	found string
}

// inText decodes itself.
type inText struct{ Says string }

func (o *inText) UnmarshalText(text []byte) error {
	o.Says = "it said " + string(text)
	return nil
}

type inner struct {
	Deep string `json:"deep"`
}

type (
	Inner inner
	Left  struct{ Twin string }
	Right struct{ Twin string }
)

// own is a type of a user's, with whatever package json has a rule for.
type own struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	inner
	Untagged       string
	Hidden         string `json:"-"`
	hidden         string
	Int            int                 `json:"int"`
	Int8           int8                `json:"int8"`
	Uint16         *uint16             `json:"uint16"`
	Float          float32             `json:"float"`
	Bytes          []byte              `json:"bytes"`
	Number         json.Number         `json:"number"`
	Raw            json.RawMessage     `json:"raw"`
	Any            any                 `json:"any"`
	Anys           []any               `json:"anys"`
	AnyMap         map[string]any      `json:"anyMap"`
	Text           inText              `json:"text"`
	Texts          map[inText]int      `json:"texts"`
	Labels         map[string]string   `json:"labels"`
	Named          map[string]inner    `json:"named"`
	Limits         corev1.ResourceList `json:"limits"`
	Quantity       *resource.Quantity  `json:"quantity"`
	Port           intstr.IntOrString  `json:"port"`
	Time           metav1.Time         `json:"time"`
	Later          *metav1.Time        `json:"later"`
	Precise        metav1.MicroTime    `json:"precise"`
	Array          [2]int              `json:"array"`
	Pointers       []*inner            `json:"pointers"`
	Lists          [][]string          `json:"lists"`
	Structs        []inner             `json:"structs"`
	Itself         *own                `json:"itself"`
	PointerPointer **string            `json:"pointerPointer"`
	Lazy           *lazily             `json:"lazy"`
	Set            sets.Set[string]    `json:"set"`
	Quoted         *struct {
		N int `json:"n,string"`
	} `json:"quoted"`
	Ambiguous struct {
		Left
		Right
	} `json:"ambiguous"`
	Embedded struct{ *Inner } `json:"embedded"`
	Odd      struct {
		A string `json:"a'b"`
	} `json:"odd"`
}

// values are put into each field of an own.
var values = append([]string{`["a",null,"b"]`, `{"a":"b","c":null}`, `{"deep":"water"}`, `[{"deep":"a"},null,{}]`,
	`[{"deep":"a"},{"deep":"b"}]`, "[{}]", `{"Twin":"a"}`, `{"a":{"deep":"b"}}`, `{"b":{}}`,
	`{"text":"a","found":"b"}`, `{"Untagged":"a","untagged":"b","UNTAGGED":1}`, `{"cpu":"1","memory":"10Mi"}`, `"1e3"`,
	`"MTIz"`, `[1,2]`, `[[],["a"],null]`, `{"n":"1"}`, `{"n":1}`, `{"A":"c"}`, `{"a'b":"c"}`, "127", "128", "-129",
	"70000",
	`{"k:{\"type\":\"Ready\"}":{"f:status":{}}}`, `"käse"`, `"2026-11-23T08:00:00.123456+01:00"`,
	`{"name":"n","uid":"u"}`,
	`{"fieldsType":"FieldsV1"}`, strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	strings.Repeat(`{"itself":`, maxDepth) + "{}" + strings.Repeat("}", maxDepth)}, fragments...)

// Whatever stands in whatever field: what it is decoded to, and whether it can be, is what package json says.
func TestEveryRuleOfJSON(t *testing.T) {
	of := reflect.TypeFor[own]()
	require.Nil(t, namer{}.message(of).itself, "it would be left to package json as a whole")
	names := []string{"hidden", "Hidden", "deep", "metadata", "kind", "INT", ""}
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	for _, name := range names {
		texts := [][]byte{[]byte(`{"kind":"Own"}`)}
		for i, value := range values {
			texts = append(texts, fmt.Appendf(nil, ` {"int":7,%q : %s , "Untagged":"after"} `, name, value),
				fmt.Appendf(nil, `{%q:%s,%[1]q:%[3]s}`, name, value, values[(i+1)%len(values)]))
		}
		sameAsPackage(t, of, texts...)
	}
	for _, text := range append(fragments, strings.Repeat("[", 4<<20), `{"any":`+strings.Repeat("[", 4<<20),
		`{"int":1}x`, `{"int":1} {}`, `{"int":1`, ``) {
		sameAsPackage(t, of, []byte(text))
	}
	sameAsPackage(t, reflect.TypeFor[inner](), []byte(`{"deep":"a"}`), []byte(`{"Deep":"a"}`))
}

func FuzzJSON(f *testing.F) {
	for _, value := range values {
		f.Add([]byte(`{"anyMap":` + value + `}`))
		f.Add([]byte(`{"pointers":` + value + `,"labels":` + value + `,"any":` + value + `}`))
	}
	of := reflect.TypeFor[own]()
	f.Fuzz(func(t *testing.T, text []byte) { sameAsPackage(t, of, text) })
}

const untypedText = `{"metadata":{"name":"a","labels":{"app.kubernetes.io/name":"shop"}},"spec":{"list":["one",` +
	`{"two":` +
	`null}],"n":1,"yes":true},"data":{"password":"correct horse"}}`

func TestUntyped(t *testing.T) {
	mostly(t, func(r *recorder) {
		s := New(reflect.TypeFor[map[string]any](), Never)
		decode := func(name string) map[string]any {
			return *fromJSON(s, []byte(strings.Replace(untypedText, `"a"`, name, 1))).(*map[string]any)
		}
		a, b := decode(`"a"`), decode(`"b"`)
		inside := func(o map[string]any, name string) any { return o["metadata"].(map[string]any)[name] }
		require.Equal(r, "a", inside(a, "name"))
		require.Equal(r, "b", inside(b, "name"))
		require.False(r, sameMap(a["metadata"], b["metadata"]))
		require.True(r, sameMap(inside(a, "labels"), inside(b, "labels")))
		require.True(r, sameMap(a["spec"], b["spec"]))
		require.False(r, sameMap(a["data"], b["data"]), "it may be a Secret")
	})
}

func TestUntypedObjectsThatMayBeChangedShareOnlyTexts(t *testing.T) {
	mostly(t, func(r *recorder) {
		s := New(reflect.TypeFor[map[string]any](), Always)
		a, b := *fromJSON(s, []byte(untypedText)).(*map[string]any), *fromJSON(s, []byte(untypedText)).(*map[string]any)
		require.False(t, sameMap(a["spec"], b["spec"]))
		item := func(o map[string]any) string { return o["spec"].(map[string]any)["list"].([]any)[0].(string) }
		require.True(r, sameString(item(a), item(b)))
	})
}

// However many objects come, from several goroutines, in whatever order: each is what it was.
func TestObjectsInJSONStayWhatTheyAre(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[corev1.Pod](), reflect.TypeFor[map[string]any]()} {
		s := New(of, Never)
		var sharers sync.WaitGroup
		for range 4 {
			sharers.Go(func() {
				for range 500 {
					data, err := json.Marshal(decoded(t, rand.IntN(10_000), rand.IntN(2000)))
					if want := byPackage(of, data); err != nil || !reflect.DeepEqual(want, fromJSON(s, data)) {
						t.Errorf("%v is another object", want)
						return
					}
				}
			})
		}
		sharers.Wait()
	}
}

// Nothing that is decoded points into the bytes, which are used again.
func TestNothingIsKeptOfTheText(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[own](), reflect.TypeFor[map[string]any]()} {
		s := New(of, Never)
		for range 3 {
			data := []byte(`{"Untagged":"text","labels":{"key":"value"},"bytes":"MTIz","raw":{"a":"b"},"any":["c"]}`)
			want := byPackage(of, bytes.Clone(data))
			got := fromJSON(s, data)
			for i := range data {
				data[i] = '!'
			}
			require.Equal(t, want, got)
		}
	}
}

// What a method may change when an object is read has no second owner.
func TestWhatIsLazyIsNotShared(t *testing.T) {
	data := []byte(`{"lazy":{"text":"a"},"quantity":"512Mi","limits":{"cpu":"1"},"structs":[{"deep":"a"}],"later":` +
		`"2026-11-23T08:00:00Z","uint16":80}`)
	mostly(t, func(r *recorder) {
		s := New(reflect.TypeFor[own](), Never)
		a, b := fromJSON(s, data).(*own), fromJSON(s, data).(*own)
		require.NotSame(t, a.Lazy, b.Lazy)
		require.NotSame(t, a.Quantity, b.Quantity)
		require.True(r, sameMap(a.Limits, b.Limits), "the values of a map are copies")
		require.Same(r, &a.Structs[0], &b.Structs[0])
		require.Same(r, a.Later, b.Later)
		require.Same(r, a.Uint16, b.Uint16)
	})
}

// Of a Secret nothing is kept for the next one.
func TestSecretsInJSONAreNotKept(t *testing.T) {
	data, err := json.Marshal(corev1.Secret{Data: map[string][]byte{"password": []byte("correct horse")}})
	require.NoError(t, err)
	for _, of := range []reflect.Type{reflect.TypeFor[corev1.Secret](), reflect.TypeFor[map[string]any]()} {
		s := New(of, Never)
		fromJSON(s, data)
		secret := strings.Split(string(data), `"`)
		for i := range s.parts {
			require.Nil(t, s.parts[i].Load())
		}
		for i := range s.boxes {
			if v := s.boxes[i].Load(); v != nil {
				require.NotEqual(t, secret[5], *v)
			}
		}
		for i := range s.wholes {
			if v := s.wholes[i].Load(); v != nil {
				require.NotContains(t, v.bytes, "password")
			}
		}
	}
}

// What is made of few bytes is not kept if it is much.
func TestWhatBecomesLargeInJSONIsNotKept(t *testing.T) {
	many := `[` + strings.TrimSuffix(strings.Repeat("{},", 600), ",") + `]`
	typed, untyped := New(reflect.TypeFor[corev1.Pod](), Never), New(reflect.TypeFor[map[string]any](), Never)
	for range 2 {
		fromJSON(typed, []byte(`{"spec":{"containers":`+many+`}}`))
		fromJSON(untyped, []byte(`{"spec":{"containers":`+many+`}}`))
	}
	for i := range typed.parts {
		if p := typed.parts[i].Load(); p != nil {
			require.NotEqual(t, reflect.TypeFor[[]corev1.Container](), p.field.typ)
		}
	}
	for i := range untyped.wholes {
		if w := untyped.wholes[i].Load(); w != nil {
			require.Equal(t, "{}", w.bytes)
		}
	}
}

func BenchmarkJSON(b *testing.B) {
	data := make([][]byte, 1000)
	for i := range data {
		data[i], _ = json.Marshal(decoded(b, i, i/30))
	}
	for _, of := range []reflect.Type{reflect.TypeFor[corev1.Pod](), reflect.TypeFor[map[string]any]()} {
		for name, decode := range map[string]func(*Interner, []byte) any{
			"interner": fromJSON,
			"package":  func(_ *Interner, data []byte) any { return byPackage(of, data) },
		} {
			b.Run(fmt.Sprintf("%v/%s", of, name), func(b *testing.B) {
				s := New(of, Never)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if decode(s, data[i%len(data)]) == nil {
						b.Fatal("it cannot be decoded")
					}
				}
			})
		}
	}
}
