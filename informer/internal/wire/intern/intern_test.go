//go:build !purego

package intern

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fieldsV1 is NewFieldsV1 of client-go 0.36.
func fieldsV1(raw string) *metav1.FieldsV1 {
	f := &metav1.FieldsV1{}
	_ = f.UnmarshalJSON([]byte(raw)) // fails only for nil
	return f
}

// encoded returns a pod in protobuf. Those of the same owner have nearly all in common.
func encoded(t testing.TB, i, owner int) []byte {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("a-long-namespace-", owner), Name: fmt.Sprint("name-", i), UID: "uid-1234-and-so-on",
			Labels:      map[string]string{"app": fmt.Sprint("a-long-application-", owner), "tier": "backend"},
			Annotations: map[string]string{"example.com/number": fmt.Sprint("a-long-number-", i)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager",
				FieldsV1: fieldsV1(fmt.Sprintf(`{"f:owner":%d}`, owner))}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1234.example.com",
			Containers: []corev1.Container{{
				Name: fmt.Sprint("name-", i), Image: fmt.Sprint("example.com/image-", owner),
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(
					fmt.Sprint(owner+1, "m"))}},
			}},
			Tolerations: []corev1.Toleration{{Key: "a"}, {Key: "b"}}, TerminationGracePeriodSeconds: new(int64(30)),
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	data, err := p.Marshal()
	require.NoError(t, err)
	return data
}

// decoded returns a pod whose memory is all its own, as a decoder makes it.
func decoded(t testing.TB, i, owner int) *corev1.Pod {
	p := new(corev1.Pod)
	require.NoError(t, p.Unmarshal(encoded(t, i, owner)))
	return p
}

// ways are those in which an Interner lets a pod share: one that somebody else has decoded, and one that it decodes
// itself.
var ways = map[string]func(t testing.TB, s *Interner, i, owner int) *corev1.Pod{
	"Object": func(t testing.TB, s *Interner, i, owner int) *corev1.Pod {
		p := decoded(t, i, owner)
		s.Object(p)
		return p
	},
	"Unmarshal": func(t testing.TB, s *Interner, i, owner int) *corev1.Pod {
		p := new(corev1.Pod)
		twins, err := s.Unmarshal(encoded(t, i, owner), p)
		require.NoError(t, err)
		twins.Settle()
		return p
	},
}

func sameString[S ~string](a, b S) bool {
	return unsafe.StringData(string(a)) == unsafe.StringData(string(b))
}

func sameMap(a, b any) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// Two values may want one place of the table, which one of them then has, by a seed that is drawn: what is shared is
// shared by nearly every Interner.
func TestWhatObjectsHaveInCommonTheyShare(t *testing.T) {
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			mostly(t, func(r *recorder) { share(t, r, way) })
		})
	}
}

// mostly fails the test if a check fails five times in a row.
func mostly(t *testing.T, check func(*recorder)) {
	t.Helper()
	var r recorder
	for range 5 {
		if r = (recorder{}); r.passes(func() { check(&r) }) {
			return
		}
	}
	t.Fatal(r.failure)
}

// recorder takes what an assertion has to say.
type recorder struct{ failure string }

func (r *recorder) Errorf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }
func (r *recorder) FailNow()                          { panic(r) }

func (r *recorder) passes(check func()) (passed bool) {
	defer func() {
		if v := recover(); v != nil && v != any(r) {
			panic(v)
		}
	}()
	check()
	return true
}

func share(t *testing.T, r *recorder, way string) {
	pod := ways[way]
	s := New(reflect.TypeFor[corev1.Pod](), Never)
	a, b, other := pod(t, s, 1, 1), pod(t, s, 2, 1), pod(t, s, 3, 2)
	require.True(r, sameString(a.Namespace, b.Namespace))
	require.True(r, sameString(a.Spec.NodeName, other.Spec.NodeName))
	require.True(r, sameString(a.Spec.Containers[0].Image, b.Spec.Containers[0].Image))
	require.True(r, sameString(a.ManagedFields[0].Manager, other.ManagedFields[0].Manager))
	require.Same(r, a.ManagedFields[0].FieldsV1, b.ManagedFields[0].FieldsV1)
	require.NotSame(r, a.ManagedFields[0].FieldsV1, other.ManagedFields[0].FieldsV1)
	require.True(r, sameMap(a.Labels, b.Labels))
	require.False(r, sameMap(a.Labels, other.Labels))
	require.True(r, sameMap(a.Spec.Containers[0].Resources.Requests, b.Spec.Containers[0].Resources.Requests))
	keys := map[*byte]bool{}
	for _, p := range []*corev1.Pod{a, b, other} {
		for k := range p.Annotations {
			keys[unsafe.StringData(k)] = true
		}
	}
	require.Len(r, keys, 1, "keys of maps that differ are shared, too")
	require.False(r, sameString(a.UID, b.UID), "what differs in every object is not looked at")
	if way == "Unmarshal" {
		require.Same(r, &a.Spec.Tolerations[0], &b.Spec.Tolerations[0], "a list of which the bytes are the same")
		require.Same(r, a.Spec.TerminationGracePeriodSeconds, other.Spec.TerminationGracePeriodSeconds)
		require.True(r, sameString(a.Status.Phase, other.Status.Phase), "a text however short")
	}
}

func TestWhatMayBeChangedIsNotShared(t *testing.T) {
	for way, pod := range ways {
		t.Run(way, func(t *testing.T) {
			mostly(t, func(r *recorder) {
				s := New(reflect.TypeFor[corev1.Pod](), Always)
				a, b := pod(t, s, 1, 1), pod(t, s, 2, 1)
				require.False(t, sameMap(a.Labels, b.Labels))
				before, after := a.Spec.Containers[0].Resources, b.Spec.Containers[0].Resources
				require.False(t, sameMap(before.Requests, after.Requests))
				require.NotSame(t, a.ManagedFields[0].FieldsV1, b.ManagedFields[0].FieldsV1)
				require.NotSame(t, &a.Spec.Tolerations[0], &b.Spec.Tolerations[0])
				require.NotSame(t, a.Spec.TerminationGracePeriodSeconds, b.Spec.TerminationGracePeriodSeconds)
				require.True(r, sameString(a.Namespace, b.Namespace))
				require.True(r, sameString(a.Labels["app"], b.Labels["app"]))
			})
		})
	}
}

// However many objects come, from several goroutines, in whatever order: each is what it was.
func TestObjectsStayWhatTheyAre(t *testing.T) {
	for way, pod := range ways {
		for _, change := range changes {
			t.Run(fmt.Sprintf("%s, change %d", way, change), func(t *testing.T) {
				s := New(reflect.TypeFor[corev1.Pod](), change)
				var sharers sync.WaitGroup
				for range 4 {
					sharers.Go(func() {
						for range 1000 {
							i, owner := rand.IntN(10_000), rand.IntN(2000) // more than the tables hold
							if want, p := decoded(t, i, owner), pod(t, s, i, owner); !reflect.DeepEqual(want, p) {
								t.Errorf("was %v, is %v", want, p)
								return
							}
						}
					})
				}
				sharers.Wait()
			})
		}
	}
}

// decodesItself takes the same value from somewhere else for each object that it decodes.
type decodesItself struct{ Elsewhere *string }

func (*decodesItself) UnmarshalJSON([]byte) error { return nil }

func TestWhatDecodesItselfIsLeftAlone(t *testing.T) {
	type object struct{ Field decodesItself }
	s := New(reflect.TypeFor[object](), Never)
	first, second := strings.Clone("some text or other"), strings.Clone("some text or other")
	s.Object(&object{decodesItself{&first}})
	s.Object(&object{decodesItself{&second}})
	require.False(t, sameString(first, second))
}

func TestATypeThatContainsItself(t *testing.T) {
	type tree struct {
		Text     string
		Children []tree
		Next     *tree
	}
	s := New(reflect.TypeFor[tree](), Never)
	grow := func() *tree {
		leaf := func() tree { return tree{Text: strings.Clone("one of the leaves")} }
		next := leaf()
		return &tree{Text: strings.Clone("one of the leaves"), Children: []tree{leaf(), leaf()}, Next: &next}
	}
	a, b := grow(), grow()
	s.Object(a)
	s.Object(b)
	require.Equal(t, grow(), b)
	for _, text := range []string{a.Children[0].Text, a.Next.Text, b.Text, b.Children[1].Text, b.Next.Text} {
		require.True(t, sameString(a.Text, text))
	}
}

func TestWhatIsLargeIsNotRemembered(t *testing.T) {
	large := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{"large": strings.Repeat("a", max(maxTexts, maxPart))},
				ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: fieldsV1(strings.Repeat("f",
					max(maxFields, maxPart)+1))}},
			},
			Spec: corev1.PodSpec{Hostname: strings.Repeat("h", maxString+1)},
		}
	}
	data, err := large().Marshal()
	require.NoError(t, err)
	for way, share := range map[string]func(s *Interner) *corev1.Pod{
		"Object": func(s *Interner) *corev1.Pod {
			p := large()
			s.Object(p)
			return p
		},
		"Unmarshal": func(s *Interner) *corev1.Pod { return byInterner(s, data).(*corev1.Pod) },
	} {
		s := New(reflect.TypeFor[corev1.Pod](), Never)
		a, b := share(s), share(s)
		require.Equal(t, large(), b, way)
		require.False(t, sameString(a.Spec.Hostname, b.Spec.Hostname), way)
		require.False(t, sameMap(a.Annotations, b.Annotations), way)
		require.NotSame(t, a.ManagedFields[0].FieldsV1, b.ManagedFields[0].FieldsV1, way)
	}
}

// An address is soon taken for what it is, and leaves its places in the tables to others. Should it begin to repeat,
// that is noticed.
func TestWhatNeverRepeatsIsSeldomLookedAt(t *testing.T) {
	type object struct{ Address, Image string }
	mostly(t, func(r *recorder) {
		s := New(reflect.TypeFor[object](), Never)
		s.prepare(new(object))
		address, image := &s.plan.places[0].habit, &s.plan.places[1].habit
		show := func(address string) string {
			o := &object{Address: strings.Clone(address), Image: strings.Clone("example.com/image-1")}
			s.Object(o)
			return o.Address
		}
		for i := range 10 * seldom * maxMisses {
			show(fmt.Sprintf("the address of number %d", i))
		}
		require.False(r, address.worth(false))
		require.True(r, address.worth(true))
		require.True(r, image.worth(false))

		for range 10 * seldom * maxMisses {
			show("the address of all")
		}
		require.True(r, address.worth(false))
		require.True(r, sameString(show("the address of all"), show("the address of all")))
	})
}

func TestAnObjectOfAnotherType(t *testing.T) {
	require.PanicsWithValue(t, "intern: a *v1.PodSpec, not a *v1.Pod",
		func() { New(reflect.TypeFor[corev1.Pod](), Never).Object(new(corev1.PodSpec)) })
}

// A program may have Interners for a hundred kinds, of each of which there are few objects, and all in one encoding.
func TestNothingIsMadeForTheOtherEncoding(t *testing.T) {
	s := New(reflect.TypeFor[corev1.Pod](), Never)
	_, err := s.Unmarshal(encoded(t, 1, 1), new(corev1.Pod))
	require.NoError(t, err)
	require.NotNil(t, s.message)
	require.Zero(t, len(s.boxes))
	require.Zero(t, len(s.wholes))
	require.Zero(t, len(s.habits))
	require.Nil(t, s.json.message)

	s = New(reflect.TypeFor[corev1.Pod](), Never)
	_, err = s.FromJSON([]byte(`{"metadata":{"name":"name-1"}}`), new(corev1.Pod))
	require.NoError(t, err)
	require.NotNil(t, s.json.message)
	require.Nil(t, s.message)
}

// Of a custom resource a quantity is what its author wrote. A zero that takes the package of quantities seconds or
// minutes to scale is not scaled.
func TestZeroOfAnyScale(t *testing.T) {
	s := New(reflect.TypeFor[corev1.ResourceRequirements](), Never)
	for _, zero := range []string{"0e2000000000", "0.00000000000000000000e2000000000"} {
		limits := corev1.ResourceList{}
		for i := range maxResources {
			limits[corev1.ResourceName(fmt.Sprint(i))] = resource.MustParse(zero)
		}
		began := time.Now()
		s.Object(&corev1.ResourceRequirements{Limits: limits})
		require.Less(t, time.Since(began), 10*time.Second)
	}
}

// What holds nothing to share has no place in a plan, however often it comes: a field of bytes may be a megabyte long.
func TestOnlyWhatCanBeSharedIsPlanned(t *testing.T) {
	type object struct {
		First, Second []byte
		Yes, No       *bool
		Text          string
		Itself        *object
		Selves        []object
	}
	var offsets []uintptr
	s := New(reflect.TypeFor[object](), Never)
	s.prepare(new(object))
	places := s.plan.places
	for i := range places {
		offsets = append(offsets, places[i].offset)
	}
	require.Equal(t, []uintptr{unsafe.Offsetof(object{}.Text), unsafe.Offsetof(object{}.Itself),
		unsafe.Offsetof(object{}.Selves)}, offsets)
}

// BenchmarkObject is what it takes to share the parts of a pod that is as most are.
func BenchmarkObject(b *testing.B) {
	s, pods := New(reflect.TypeFor[corev1.Pod](), Never), make([]*corev1.Pod, 1000)
	for i := range pods {
		pods[i] = decoded(b, i, i/30)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Object(pods[i%len(pods)])
	}
}
