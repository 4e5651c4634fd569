//go:build !purego

package intern

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	goruntime "runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// ownWork reports whether the Interner decodes the bytes without the help of the type's own Unmarshal.
func ownWork(s *Interner, data []byte) bool {
	o := reflect.New(s.object.Elem())
	s.prepareProtobuf(o.Interface())
	d := s.decoder()
	return s.message.itself == nil && d.message(s.message, o.UnsafePointer(), data)
}

func hasMessage(of reflect.Type) bool {
	s := New(of, Never)
	s.prepareProtobuf(reflect.New(of).Interface())
	return s.message.itself == nil
}

// Nine of ten kinds, and all that are common, are decoded without the help of their own Unmarshal.
func TestMostKindsAreDecodedWithoutHelp(t *testing.T) {
	known := 0
	for _, of := range kinds() {
		if hasMessage(of) {
			known++
		}
		for _, change := range changes {
			s := New(of, change)
			for _, data := range generated(t, of, rand.Int64(), 10) {
				require.Equal(t, hasMessage(of), ownWork(s, data), "%v", of)
			}
		}
	}
	require.Greater(t, known, len(kinds())*9/10)
	for _, object := range []any{
		corev1.Pod{}, corev1.Node{}, corev1.Service{}, corev1.ConfigMap{}, corev1.Secret{}, corev1.Event{},
		corev1.Namespace{}, corev1.PersistentVolume{},
		appsv1.Deployment{}, appsv1.ReplicaSet{}, appsv1.StatefulSet{}, appsv1.DaemonSet{}, coordinationv1.Lease{},
		discoveryv1.EndpointSlice{},
	} {
		require.True(t, hasMessage(reflect.TypeOf(object)), "%T", object)
	}
}

// messageTypes are all messages that the kinds of client-go are made of.
func messageTypes() (types []reflect.Type) {
	seen := map[reflect.Type]bool{}
	var add func(reflect.Type)
	add = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			add(t.Elem())
		case reflect.Struct:
			if reflect.PointerTo(t).Implements(unmarshalerType) {
				types = append(types, t)
			}
			for i := range t.NumField() {
				if t.Field(i).IsExported() {
					add(t.Field(i).Type)
				}
			}
		}
	}
	for kind, of := range scheme.Scheme.AllKnownTypes() {
		if kind.Version != runtime.APIVersionInternal {
			add(of)
		}
	}
	return types
}

// author writes messages that are nearly right: fields in any order, more than once, with what no server sends here and
// there.
type author struct{ *rand.Rand }

func (a author) message(t reflect.Type, depth int) (message []byte) {
	var numbers []int
	fields := map[int]reflect.Type{}
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			if tag, tagged := t.Field(i).Tag.Lookup("protobuf"); tagged && numberOf(tag) > 0 {
				numbers = append(numbers, numberOf(tag))
				fields[numberOf(tag)] = t.Field(i).Type
			}
		}
	}
	if len(numbers) == 0 { // a Quantity, a Time, and what else there is
		return [][]byte{nil, delimited(1, []byte("100m")), delimited(1, []byte("much")),
			slices.Concat(tag(1, wireVarint), []byte{byte(a.IntN(128))})}[a.IntN(4)]
	}
	number := numbers[0]
	for range a.IntN(6) {
		if a.IntN(2) == 0 {
			number = numbers[a.IntN(len(numbers))]
		}
		message = append(message, a.field(number, fields[number], depth)...)
	}
	if len(message) > 0 {
		switch at := a.IntN(len(message)); a.IntN(100) {
		case 0:
			message[at] = byte(a.Uint32())
		case 1:
			message = message[:at]
		}
	}
	return message
}

func (a author) field(number int, t reflect.Type, depth int) []byte {
	if a.IntN(60) == 0 {
		number = a.IntN(40)
	}
	if a.IntN(200) == 0 {
		return slices.Concat(tag(uint64(number), uint64(a.IntN(6))), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	}
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64:
		return binary.AppendUvarint(tag(uint64(number), wireVarint), a.Uint64()>>[]int{0, 32, 62}[a.IntN(3)])
	case reflect.String, reflect.Slice:
		return delimited(uint64(number), []byte([]string{"", "a", "b", "application",
			"somewhat longer text"}[a.IntN(5)]))
	case reflect.Map:
		var entry []byte
		for range a.IntN(4) {
			if a.IntN(3) > 0 {
				entry = append(entry, a.field(1, t.Key(), depth+1)...)
			} else {
				entry = append(entry, a.field(2, t.Elem(), depth+1)...)
			}
		}
		return delimited(uint64(number), entry)
	}
	if depth > 6 {
		return delimited(uint64(number))
	}
	return delimited(uint64(number), a.message(t, depth+1))
}

// However odd it is: what a message is decoded to, and whether it can be, is what the type itself says.
func TestEveryMessageIsDecodedAsItDecodesItself(t *testing.T) {
	var inputs, refused, own int
	for _, of := range messageTypes() {
		interners := []*Interner{New(of, Always), New(of, AtFirst), New(of, Never)}
		for range 100 {
			seed := rand.Uint64()
			data := author{rand.New(rand.NewPCG(seed, 0))}.message(of, 0)
			want := bySelf(of, data)
			inputs++
			if want == nil {
				refused++
			}
			for _, s := range interners {
				if ownWork(s, data) {
					own++
				}
				first := byInterner(s, data)
				for _, got := range []any{first, byInterner(s, data), first} {
					if !reflect.DeepEqual(want, got) {
						require.Equal(t, want, got, "%s: %x", of, data)
					}
				}
			}
		}
	}
	require.Greater(t, inputs, 100_000)
	require.Greater(t, refused, inputs/50)
	require.Greater(t, own, inputs)
}

func tag(number, wire uint64) []byte { return binary.AppendUvarint(nil, number<<3|wire) }

func delimited(number uint64, contents ...[]byte) []byte {
	content := slices.Concat(contents...)
	return slices.Concat(tag(number, wireBytes), binary.AppendUvarint(nil, uint64(len(content))), content)
}

// odd is what no API server sends, but what a type's own Unmarshal has an opinion about.
func odd() map[string][]byte {
	env := func(name string) []byte { return delimited(7, delimited(1, []byte(name))) }
	container := func(contents ...[]byte) []byte { return delimited(2, delimited(2, contents...)) }
	volume := delimited(1, delimited(1, []byte("volume")))
	return map[string][]byte{
		"nothing":              {},
		"a list in two places": container(env("a"), delimited(1, []byte("name")), env("b")),
		"a map in two places": delimited(1, delimited(11, delimited(1, []byte("a"))),
			delimited(1, []byte("name")), delimited(11, delimited(1, []byte("b")))),
		"a pointer in two places": delimited(2, delimited(14, tag(3, wireVarint), []byte{1}),
			delimited(14, tag(1, wireVarint), []byte{9})),
		"a message in two places": slices.Concat(delimited(1, delimited(1, []byte("name"))),
			delimited(2, volume), delimited(1, delimited(3, []byte("ns")))),
		"lists in both": slices.Concat(delimited(2, volume),
			delimited(1, delimited(1, []byte("name"))), delimited(2, volume)),
		"lists whose tags begin alike": delimited(2, delimited(22, delimited(1, []byte("a"))),
			delimited(38, delimited(1, []byte("b")))),
		"packed numbers": delimited(2, delimited(14, delimited(4, []byte{1, 2, 3}))),
		"numbers one by one": delimited(2,
			delimited(14, tag(4, wireVarint), []byte{1}, tag(4, wireVarint), []byte{0xff, 1})),
		"a text as a number": delimited(1, tag(1, wireVarint), []byte{1}),
		"a number as a text": delimited(2, delimited(4, []byte("soon"))),
		"a field that is not known": delimited(1, delimited(999, []byte("?")), tag(998, wireFixed32),
			[]byte("1234"), tag(997, wireFixed64), []byte("12345678"), tag(996, wireVarint), []byte{0x80, 1}),
		"a group":            slices.Concat(tag(99, 3), delimited(1, []byte("?")), tag(99, 4)),
		"the end of a group": tag(99, 4),
		"field zero":         delimited(0, []byte("?")),
		"a field whose number is long": slices.Concat(binary.AppendUvarint(nil, 1<<35|1<<3|wireBytes), []byte{3},
			delimited(1, []byte("a"))),
		"a tag in more bytes than need": {0x8a, 0x00, 0x02, 0x0a, 0x00},
		"a number that is negative": delimited(2, tag(4, wireVarint),
			[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}),
		"a number of too many bits": delimited(2, tag(4, wireVarint),
			[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}),
		"a number without an end":        delimited(2, tag(4, wireVarint), []byte{0xff}),
		"a length past the end":          {0x0a, 0x05, 0x0a},
		"a length that is negative":      {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"an entry without key and value": delimited(1, delimited(11)),
		"an entry with its key twice": delimited(1,
			delimited(11, delimited(1, []byte("a")), delimited(2, []byte("v")), delimited(1, []byte("b")))),
		"an entry with its value twice": container(delimited(8,
			delimited(1, delimited(1, []byte("cpu")), delimited(2, delimited(1, []byte("much"))),
				delimited(2, delimited(1, []byte("1")))))),
		"an entry with something else": delimited(1,
			delimited(11, delimited(1, []byte("a")), delimited(3, []byte("?")))),
		"an entry cut short": delimited(1, delimited(11, delimited(1, []byte("a")), []byte{0x12})),
		"a quantity that is none": container(delimited(8,
			delimited(1, delimited(1, []byte("cpu")), delimited(2, delimited(1, []byte("much")))))),
		"a time that is none": delimited(1, delimited(8, tag(1, wireVarint))),
	}
}

func TestWhatIsOddIsDecodedAsByItself(t *testing.T) {
	pod := reflect.TypeFor[corev1.Pod]()
	for _, change := range changes {
		s := New(pod, change)
		for name, data := range odd() {
			for range 3 { // there may be something to share the next time
				require.Equal(t, bySelf(pod, data), byInterner(s, data), name)
			}
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, data := range odd() {
		f.Add(data)
	}
	for i := range 3 {
		f.Add(encoded(f, i, i))
	}
	quantities, err := (&corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"cpu": {}}}}).Marshal()
	require.NoError(f, err)
	f.Add(quantities)
	var interners []*Interner
	for _, of := range []reflect.Type{reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.Node](),
		reflect.TypeFor[corev1.Secret](), reflect.TypeFor[appsv1.Deployment]()} {
		for _, change := range changes {
			interners = append(interners, New(of, change))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range interners {
			want := bySelf(s.object.Elem(), data)
			first := byInterner(s, data)
			require.Equal(t, want, first)
			require.Equal(t, want, byInterner(s, data))
			require.Equal(t, want, first)
		}
	})
}

// The tags of a type that is not Kubernetes' own may say anything.
type ofOthers struct {
	Name string `protobuf:"bytes,1,opt,name=name"`
}

func (o *ofOthers) Unmarshal(data []byte) error {
	o.Name = fmt.Sprintf("%d bytes in its own way", len(data))
	return nil
}

func TestATypeOfOthersDecodesItself(t *testing.T) {
	s := New(reflect.TypeFor[ofOthers](), Never)
	data := delimited(1, []byte("what?"))
	first, second := byInterner(s, data).(*ofOthers), byInterner(s, data).(*ofOthers)
	require.Equal(t, &ofOthers{"7 bytes in its own way"}, first)
	require.True(t, sameString(first.Name, second.Name), "what it has decoded is shared nevertheless")
}

func TestUnmarshalOfAnotherType(t *testing.T) {
	require.PanicsWithValue(t, "intern: a *v1.PodSpec, not a *v1.Pod",
		func() { _, _ = New(reflect.TypeFor[corev1.Pod](), Never).Unmarshal(nil, new(corev1.PodSpec)) })
}

// Who appends to a slice of his copy of a struct, which is allowed, does not write into what others see.
func TestASharedSliceHasNoRoom(t *testing.T) {
	s := New(reflect.TypeFor[corev1.Pod](), Never)
	p := byInterner(s, encoded(t, 1, 1)).(*corev1.Pod)
	require.Len(t, p.Spec.Containers, cap(p.Spec.Containers))
	require.Len(t, p.ManagedFields, cap(p.ManagedFields))
	fields := fieldsOf(p.ManagedFields[0].FieldsV1)
	require.Len(t, fields, cap(fields))
}

// Of a Quantity, methods that are said to change nothing keep what they find out. Nobody else may have it, but for the
// values of a map, which are copied.
func TestQuantitiesAreNotShared(t *testing.T) {
	pod := corev1.Pod{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "scratch",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(
				resource.MustParse("512Mi"))}}}},
		Containers: []corev1.Container{{
			Env: []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{
				ResourceFieldRef: &corev1.ResourceFieldSelector{Divisor: resource.MustParse("64Mi")}}}},
			Ports:     []corev1.ContainerPort{{ContainerPort: 80}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("512Mi")}},
		}},
	}}
	data, err := pod.Marshal()
	require.NoError(t, err)
	mostly(t, func(r *recorder) {
		s := New(reflect.TypeFor[corev1.Pod](), Never)
		first, second := byInterner(s, data).(*corev1.Pod), byInterner(s, data).(*corev1.Pod)
		untouched := byInterner(s, data)
		_ = first.Spec.Volumes[0].EmptyDir.SizeLimit.String()
		_ = first.Spec.Containers[0].Env[0].ValueFrom.ResourceFieldRef.Divisor.String()
		require.NotEqual(t, untouched, first)
		require.Equal(t, untouched, second)
		require.True(r, sameMap(first.Spec.Containers[0].Resources.Limits, second.Spec.Containers[0].Resources.Limits))
		require.Same(r, &first.Spec.Containers[0].Ports[0], &second.Spec.Containers[0].Ports[0])
	})
}

// What a Secret holds is not kept for the next one.
func TestSecretsAreNotKept(t *testing.T) {
	s := New(reflect.TypeFor[corev1.Secret](), Never)
	data, err := (&corev1.Secret{Data: map[string][]byte{"password": []byte("correct horse")}}).Marshal()
	require.NoError(t, err)
	byInterner(s, data)
	for i := range s.parts {
		require.Nil(t, s.parts[i].Load())
	}
}

// Two bytes of a list may be a container, of 400. What is made of few bytes is not kept if it is much; and what it has
// of others counts.
func TestWhatBecomesLargeIsNotKept(t *testing.T) {
	env := bytes.Repeat(delimited(7), 60)
	for name, containers := range map[string][]byte{
		"by itself":   bytes.Repeat(delimited(2), 60),
		"with others": bytes.Repeat(delimited(2, env), 20),
	} {
		s := New(reflect.TypeFor[corev1.Pod](), Never)
		data := delimited(2, containers)
		for range 2 {
			p := byInterner(s, data).(*corev1.Pod)
			require.Greater(t, len(p.Spec.Containers)*(int(unsafe.Sizeof(corev1.Container{}))+
				len(p.Spec.Containers[0].Env)*int(unsafe.Sizeof(corev1.EnvVar{}))), maxMade)
		}
		for i := range s.parts {
			if p := s.parts[i].Load(); p != nil {
				require.NotEqual(t, reflect.TypeFor[[]corev1.Container](), p.field.typ, name)
			}
		}
	}
}

// No message of Kubernetes has a map of numbers, whose values are encoded otherwise.
func TestAMapOfNumbersIsNotKnown(t *testing.T) {
	m := messenger{planner{plans: map[reflect.Type]*plan{}}, map[reflect.Type]*message{}}
	require.Nil(t, m.field(reflect.TypeFor[map[string]int32]()))
	require.NotNil(t, m.field(reflect.TypeFor[map[string]string]()))
}

// Two bytes may be an entry of a map, too, and the next two the same entry.
func TestAMapHasRoomForWhatIsInIt(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[corev1.ConfigMap](), reflect.TypeFor[corev1.Secret]()} {
		s := New(of, Always)
		data := bytes.Repeat(delimited(2), 100_000)
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		byInterner(s, data)
		goruntime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(500_000), of)
	}
}

// A true is the same byte everywhere. Each place remembers it for itself.
func TestFieldsWithTheSameBytes(t *testing.T) {
	data, err := (&corev1.Pod{Spec: corev1.PodSpec{EnableServiceLinks: new(true),
		ShareProcessNamespace: new(true)}}).Marshal()
	require.NoError(t, err)
	mostly(t, func(r *recorder) {
		s := New(reflect.TypeFor[corev1.Pod](), Never)
		first, second := byInterner(s, data).(*corev1.Pod), byInterner(s, data).(*corev1.Pod)
		require.Same(r, first.Spec.EnableServiceLinks, second.Spec.EnableServiceLinks)
		require.Same(r, first.Spec.ShareProcessNamespace, second.Spec.ShareProcessNamespace)
	})
}

// A part of a message decodes itself, and is shared like the rest.
func TestAPartThatDecodesItself(t *testing.T) {
	s := New(reflect.TypeFor[certificatesv1.CertificateSigningRequest](), Never)
	data, err := (&certificatesv1.CertificateSigningRequest{
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "kubernetes.io/kubelet-serving"}}).Marshal()
	require.NoError(t, err)
	first, second := byInterner(s, data).(*certificatesv1.CertificateSigningRequest),
		byInterner(s, data).(*certificatesv1.CertificateSigningRequest)
	require.True(t, sameString(first.Spec.SignerName, second.Spec.SignerName))
}

// Nothing that is decoded points into the bytes, which are used again.
func TestNothingIsKeptOfTheBytes(t *testing.T) {
	s := New(reflect.TypeFor[corev1.Secret](), Never)
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "name", Labels: map[string]string{"key": "value"}},
		Data: map[string][]byte{"password": []byte("guess")}}
	for range 3 {
		data, err := secret.Marshal()
		require.NoError(t, err)
		got := byInterner(s, data)
		for i := range data {
			data[i] = '!'
		}
		require.Equal(t, &secret, got)
	}
}

// BenchmarkUnmarshal is what it takes to decode and share a pod that is as most are: by the Interner, and by the pod
// itself with the Interner after it.
func BenchmarkUnmarshal(b *testing.B) {
	data := make([][]byte, 1000)
	for i := range data {
		data[i] = encoded(b, i, i/30)
	}
	for _, bench := range []struct {
		name   string
		change Change
		decode func(*Interner, []byte, *corev1.Pod) error
	}{
		{"interner", Never, func(s *Interner, data []byte, p *corev1.Pod) error {
			_, err := s.Unmarshal(data, p)
			return err
		}},
		{"settled", AtFirst, func(s *Interner, data []byte, p *corev1.Pod) error {
			twins, err := s.Unmarshal(data, p)
			twins.Settle()
			return err
		}},
		{"itself", Never, func(s *Interner, data []byte, p *corev1.Pod) error {
			err := p.Unmarshal(data)
			s.Object(p)
			return err
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := New(reflect.TypeFor[corev1.Pod](), bench.change)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := bench.decode(s, data[i%len(data)], new(corev1.Pod)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
