package packed_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/packed"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func newPacker[T informer.Object](t testing.TB, o packed.Options) *packed.Packer[T] {
	p, err := packed.New[T](o)
	require.NoError(t, err)
	return p
}

// pod has some variety.
func pod(i int) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprint(i)),
			Labels: map[string]string{"app": "web", "pod-template-hash": fmt.Sprint(i / 30)}},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%7)},
	}
	for j := range i % 4 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", j),
			Image: "registry.example.com/" + strings.Repeat("x", i%50)})
	}
	return p
}

// TestWhatGoesInComesOut packs objects of all kinds of types, before and after there is a dictionary.
func TestWhatGoesInComesOut(t *testing.T) {
	comesOut(t, pod)
	comesOut(t, func(i int) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: pod(i).ObjectMeta}
	})
	comesOut(t, func(i int) *unstructured.Unstructured {
		content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(pod(i))
		require.NoError(t, err)
		return &unstructured.Unstructured{Object: content}
	})
	comesOut(t, func(i int) *website {
		return &website{TypeMeta: metav1.TypeMeta{APIVersion: "web.example.com/v1", Kind: "Website"},
			ObjectMeta: pod(i).ObjectMeta, Spec: websiteSpec{Host: fmt.Sprint(i, ".example.com"), Replicas: i}}
	})
	comesOut(t, func(i int) *extended { // whose methods for protobuf know nothing of its own field
		return &extended{Pod: *pod(i), Extra: fmt.Sprint(i)}
	})
	comesOut(t, func(i int) *corev1.Pod { // of two kinds, of which protobuf tells nothing
		p := pod(i)
		if i%3 == 0 {
			p.TypeMeta = metav1.TypeMeta{}
		}
		return p
	})
}

func comesOut[T informer.Object](t *testing.T, object func(i int) T) {
	for _, hot := range []int{-1, 0, 3} {
		packer := newPacker[T](t, packed.Options{Hot: hot})
		var values []packed.Value[T]
		for i := range 100 {
			v, err := packer.Pack(object(i))
			require.NoError(t, err)
			values = append(values, v)
		}
		for range 500 {
			i := rand.IntN(len(values))
			got, err := values[i].Object()
			require.NoError(t, err)
			require.True(t, equality.Semantic.DeepEqual(object(i), got), "%T %d:\n%v\n%v", got, i, object(i), got)
		}
	}
}

// TestAHotObjectIsDecodedOnce shows that an address that is used again does not bring another object.
func TestAHotObjectIsDecodedOnce(t *testing.T) {
	packer := newPacker[*corev1.Pod](t, packed.Options{Hot: 1})
	v, err := packer.Pack(pod(1))
	require.NoError(t, err)
	first, err := v.Object()
	require.NoError(t, err)
	again, err := v.Object()
	require.NoError(t, err)
	require.Same(t, first, again)
	for i := range 3_000 { // bytes of the same size, whose memory is used again and again
		v, err := packer.Pack(pod(i))
		require.NoError(t, err)
		o, err := v.Object()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("web-%d", i), o.Name)
		if i%500 == 0 {
			runtime.GC()
		}
	}
}

func TestSeveralGoroutines(t *testing.T) {
	packer := newPacker[*corev1.Pod](t, packed.Options{Hot: 8})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 300 {
				v, err := packer.Pack(pod(i))
				if err != nil {
					t.Error(err)
				}
				if o, err := v.Object(); err != nil || o.Name != pod(i).Name {
					t.Error(err, o.Name)
				}
			}
		})
	}
	all.Wait()
}

func TestWhatCannotBePacked(t *testing.T) {
	_, err := packed.New[informer.Object](packed.Options{})
	require.ErrorContains(t, err, "packed: New: informer.Object is no pointer to a struct")

	channels := newPacker[*channel](t, packed.Options{})
	_, err = channels.Pack(&channel{})
	require.ErrorContains(t, err, "packed: encode a *packed_test.channel: json: unsupported type: chan int")

	oneWay := newPacker[*oneWay](t, packed.Options{})
	v, err := oneWay.Pack(nil)
	require.NoError(t, err)
	_, err = v.Object()
	require.ErrorContains(t, err, "packed: decode a *packed_test.oneWay: no way back")

	none, err := packed.Value[*corev1.Pod]{}.Object()
	require.NoError(t, err)
	require.Nil(t, none)
}

// TestInAnInformer follows objects through an informer, its index and a handler.
func TestInAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reconciletest.NewServer(t, reconciletest.Options{})
		resource, err := informer.NewResource[*corev1.Pod](s.Config(), corev1.SchemeGroupVersion.WithResource("pods"),
			informer.ResourceOptions{})
		require.NoError(t, err)
		packer := newPacker[*corev1.Pod](t, packed.Options{})
		inf, err := informer.Project(resource, packer.Pack, informer.Options[*corev1.Pod]{})
		require.NoError(t, err)
		byNode, err := informer.AddIndex(inf, packed.Index(func(p *corev1.Pod, add func(string)) {
			add(p.Spec.NodeName)
		}))
		require.NoError(t, err)
		go func() { _ = inf.Run(t.Context()) }()
		require.NoError(t, inf.WaitForSync(t.Context()))
		for i := range 50 {
			p := pod(i + 1)
			p.Namespace, p.UID = "default", ""
			p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
			_, err := resource.In("default").Create(t.Context(), p, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		synctest.Wait()
		found := 0
		for v := range byNode.Get("node-3") {
			o, err := v.Object()
			require.NoError(t, err)
			require.Equal(t, "node-3", o.Spec.NodeName)
			found++
		}
		require.Equal(t, 7, found)
		v, ok := inf.Get(informer.Key{Namespace: "default", Name: "web-17"})
		require.True(t, ok)
		o, err := v.Object()
		require.NoError(t, err)
		require.Equal(t, "web-17", o.Name)
	})
}

// FuzzPod packs whatever is a pod's JSON.
func FuzzPod(f *testing.F) {
	for i := range 3 {
		b, err := json.Marshal(pod(i))
		require.NoError(f, err)
		f.Add(b)
	}
	packer := newPacker[*corev1.Pod](f, packed.Options{Hot: -1})
	for i := range 20 {
		_, err := packer.Pack(pod(i))
		require.NoError(f, err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p corev1.Pod
		if json.Unmarshal(b, &p) != nil {
			return
		}
		v, err := packer.Pack(&p)
		require.NoError(t, err)
		got, err := v.Object()
		require.NoError(t, err)
		require.True(t, equality.Semantic.DeepEqual(&p, got), "%v\n%v", p, got)
	})
}

// website is a user's own type.
type website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              websiteSpec `json:"spec"`
}

type websiteSpec struct {
	Host     string `json:"host"`
	Replicas int    `json:"replicas"`
}

func (w *website) DeepCopyObject() k8sruntime.Object { c := *w; return &c }

// extended has the methods of what it embeds.
type extended struct {
	corev1.Pod
	Extra string
}

// channel cannot be encoded.
type channel struct {
	website
	Never chan int
}

// oneWay can be encoded, but not decoded.
type oneWay struct{ website }

func (*oneWay) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }
func (*oneWay) UnmarshalJSON([]byte) error   { return fmt.Errorf("no way back") }
