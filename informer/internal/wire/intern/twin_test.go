//go:build !purego

package intern

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// bothForms decode a pod that may be changed at first.
var bothForms = map[string]func(t *testing.T, s *Interner, i, owner int) (*corev1.Pod, Twins){
	"protobuf": func(t *testing.T, s *Interner, i, owner int) (*corev1.Pod, Twins) {
		p := new(corev1.Pod)
		twins, err := s.Unmarshal(encoded(t, i, owner), p)
		require.NoError(t, err)
		return p, twins
	},
	"JSON": func(t *testing.T, s *Interner, i, owner int) (*corev1.Pod, Twins) {
		data, err := json.Marshal(decoded(t, i, owner))
		require.NoError(t, err)
		p := new(corev1.Pod)
		twins, err := s.FromJSON(data, p)
		require.NoError(t, err)
		return p, twins
	},
}

func TestWhatIsNotChangedAtFirstIsSharedThen(t *testing.T) {
	for form, pod := range bothForms {
		t.Run(form, func(t *testing.T) {
			mostly(t, func(r *recorder) {
				s := New(reflect.TypeFor[corev1.Pod](), AtFirst)
				a, ofA := pod(t, s, 1, 1)
				b, ofB := pod(t, s, 2, 1)
				c, ofC := pod(t, s, 3, 1)
				for _, other := range []*corev1.Pod{b, c} {
					require.False(t, sameMap(a.Labels, other.Labels))
					require.NotSame(t, &a.Spec.Tolerations[0], &other.Spec.Tolerations[0])
					require.NotSame(t, a.Spec.TerminationGracePeriodSeconds, other.Spec.TerminationGracePeriodSeconds)
				}
				b.Labels["app"] = "another"
				c.Spec.Tolerations = c.Spec.Tolerations[:1]
				c.Spec.Tolerations[0].Key = "another"
				*c.Spec.TerminationGracePeriodSeconds = 7
				for _, twins := range []Twins{ofA, ofB, ofC} {
					twins.Settle()
				}
				later, ofLater := pod(t, s, 4, 1)
				ofLater.Settle()
				require.Equal(t, decoded(t, 1, 1), a)
				require.Equal(t, decoded(t, 4, 1), later)
				require.True(r, sameMap(a.Labels, later.Labels))
				require.True(r, sameMap(a.Labels, c.Labels))
				require.Equal(t, "another", b.Labels["app"])
				require.Same(r, &a.Spec.Tolerations[0], &b.Spec.Tolerations[0])
				require.Len(t, c.Spec.Tolerations, 1)
				require.Equal(t, "another", c.Spec.Tolerations[0].Key)
				require.EqualValues(t, 7, *c.Spec.TerminationGracePeriodSeconds)
				require.Same(r, a.Spec.TerminationGracePeriodSeconds, b.Spec.TerminationGracePeriodSeconds)
			})
		})
	}
}

// Objects of some kinds are changed at random before they are settled. Each is then what it is without an Interner, and
// the change of one shows in no other.
func TestWhatIsChangedAtFirstChangesNothingElse(t *testing.T) {
	shared := 0
	all := slices.DeleteFunc(kinds(), func(of reflect.Type) bool { return !hasMessage(of) })
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, of := range append(all[:20], reflect.TypeFor[corev1.Pod]()) {
		for form, decode := range map[string]func(*Interner, []byte, any) (Twins, error){
			"protobuf": func(s *Interner, data []byte, o any) (Twins, error) {
				return s.Unmarshal(data, o.(unmarshaler))
			},
			"JSON": func(s *Interner, data []byte, o any) (Twins, error) { return s.FromJSON(data, o) },
		} {
			messages := generated(t, of, rand.Int64(), 3)
			model := bySelf
			if form == "JSON" {
				messages, model = encodedAs(t, of, rand.Int64(), 3, json.Marshal), byPackage
			}
			s := New(of, AtFirst)
			var got, want []any
			for i := range 12 {
				data, seed := messages[i%3], rand.Uint64()
				o, m := reflect.New(of).Interface(), model(of, data)
				twins, err := decode(s, data, o)
				require.NoError(t, err)
				for _, v := range []any{o, m} {
					disturb(rand.New(rand.NewPCG(seed, 0)), reflect.ValueOf(v).Elem())
				}
				twins.Settle()
				shared += len(twins)
				got, want = append(got, o), append(want, m)
			}
			for i := range got {
				if !reflect.DeepEqual(want[i], got[i]) {
					require.Equal(t, want[i], got[i], "%v in %s: %x", of, form, messages[i%3])
				}
			}
		}
	}
	require.NotZero(t, shared)
}

// disturb changes about one of ten values in v, in place.
func disturb(r *rand.Rand, v reflect.Value) {
	hit := r.IntN(10) == 0
	switch v.Kind() {
	case reflect.String:
		if hit && v.CanSet() {
			v.SetString("changed")
		}
	case reflect.Struct:
		if v.Type() == timeType || v.Type() == quantityType {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				disturb(r, v.Field(i))
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if disturb(r, v.Elem()); hit {
			v.SetZero()
		}
	case reflect.Slice:
		for i := range v.Len() {
			disturb(r, v.Index(i))
		}
		if hit && v.Len() > 0 {
			v.SetLen(v.Len() - 1)
		}
	case reflect.Map:
		if texts, ok := v.Interface().(map[string]string); ok && texts != nil && hit {
			for _, k := range slices.Sorted(maps.Keys(texts)) {
				texts[k] = "changed"
				break
			}
			texts["new"] = ""
			if r.IntN(2) == 0 {
				v.SetZero()
			}
		}
	}
}

// What a part holds that is too much to be shared is made twice, but not the parts inside of it twice at each level.
func TestPartsThatAreNotSharedAreNotMadeTwiceAtEachLevel(t *testing.T) {
	type node struct {
		Quantity resource.Quantity `json:"quantity"` // with it nothing around it is shared
		Next     *node             `json:"next,omitempty"`
	}
	made := func(change Change, depth int) int {
		s := New(reflect.TypeFor[node](), change)
		text := `{"quantity":"1"}`
		for range depth {
			text = `{"quantity":"1","next":` + text + `}`
		}
		s.prepareJSON(new(node))
		d := jsonReader{decoder: s.decoder()}
		d.data = []byte(text)
		require.True(t, d.read(&s.json, unsafe.Pointer(new(node))))
		return d.made
	}
	require.LessOrEqual(t, made(AtFirst, 60), 6*made(Never, 60))
}

// Nearly all objects have no twins, and each object that arrives is settled.
func TestSettlingNothingAllocatesNothing(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() { Twins(nil).Settle() }))
}
