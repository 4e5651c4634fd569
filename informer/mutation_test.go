package informer

import (
	"fmt"
	"math"
	"math/cmplx"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/thermostat-go/thermostat/internal/fakeapi"
)

// richPod has something of everything.
func richPod(name string) *corev1.Pod {
	p := pod(name, "app", "tier")
	yes, when := true, metav1.NewTime(time.Unix(1e9, 0))
	p.DeletionTimestamp = &when
	p.Annotations = map[string]string{"swordfish": "swordfish"}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	p.Spec = corev1.PodSpec{
		NodeName: "node-1", Tolerations: []corev1.Toleration{{Key: "a"}, {Key: "b"}}, ShareProcessNamespace: &yes,
		Containers: []corev1.Container{
			{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}}},
			{Name: "d", Image: "i", Env: []corev1.EnvVar{{Name: "swordfish", Value: "swordfish"}}},
		},
	}
	return p
}

// tamper changes a cached object while nobody compares it, so that the race detector, which finds such changes in its
// own way, has nothing to say.
func tamper[T any](inf *SharedIndexInformer[T], change func()) {
	inf.token <- struct{}{}
	defer func() { <-inf.token }()
	change()
}

func TestAMutatedObjectIsNamed(t *testing.T) {
	for field, mutate := range map[string]func(*corev1.Pod){
		"Spec.NodeName":                   func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"Spec.Containers[1].Image":        func(p *corev1.Pod) { p.Spec.Containers[1].Image = "swordfish" },
		"Spec.Containers[1].Env[0].Value": func(p *corev1.Pod) { p.Spec.Containers[1].Env[0].Value = "" },
		"Spec.Containers":                 func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] },
		"Spec.Tolerations": func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations,
				corev1.Toleration{})
		},
		"Spec.Tolerations[0].Key": func(p *corev1.Pod) {
			p.Spec.Tolerations = p.Spec.Tolerations[1:2:2]
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "b"})
		},
		"Spec.ShareProcessNamespace": func(p *corev1.Pod) { *p.Spec.ShareProcessNamespace = false },
		"Spec.HostUsers":             func(p *corev1.Pod) { p.Spec.HostUsers = new(bool) },
		"ObjectMeta.Labels":          func(p *corev1.Pod) { p.Labels["swordfish"] = "" },
		"ObjectMeta.Annotations":     func(p *corev1.Pod) { p.Annotations["swordfish"] = "other" },
		"ObjectMeta.DeletionTimestamp.Time": func(
			p *corev1.Pod) {
			p.DeletionTimestamp.Time = p.DeletionTimestamp.Add(time.Hour)
		},
		"ObjectMeta.ManagedFields[0].Manager": func(p *corev1.Pod) { p.ManagedFields[0].Manager = "n" },
		"Spec.Containers[0].Resources.Requests": func(p *corev1.Pod) {
			delete(p.Spec.Containers[0].Resources.Requests,
				"cpu")
		},
	} {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newPodAPI()
				api.Create(richPod("a"))
				api.Create(richPod("b"))
				inf := start(t, api, Options[*corev1.Pod]{DetectMutations: true})
				synctest.Wait()
				time.Sleep(10 * detectPeriod)
				synctest.Wait()
				require.Zero(t, inf.Health().Mutated, "%v", inf.Health().LastBadObject)
				a, _ := inf.Get(named("a"))
				tamper(inf, func() { mutate(a) })
				time.Sleep(2 * detectPeriod)
				synctest.Wait()
				h := inf.Health()
				require.Equal(t, 1, h.Mutated, "once")
				require.ErrorContains(t, h.LastBadObject, "default/a: ")
				require.True(t, strings.Contains(h.LastBadObject.Error(), "changed "+field+" of the *v1.Pod") ||
					strings.Contains(h.LastBadObject.Error(), "changed "+field+"."), "%s", h.LastBadObject)
				require.NotContains(t, h.LastBadObject.Error(), "swordfish")
			})
		})
	}
}

func TestAMutationIsFoundWhenTheObjectLeaves(t *testing.T) {
	for name, leave := range map[string]func(*podAPI){
		"updated": func(api *podAPI) { api.Update("default", "a", func(*corev1.Pod) {}) },
		"deleted": func(api *podAPI) { api.Delete("default", "a") },
		"swept":   func(api *podAPI) { api.Cut(); api.Delete("default", "a"); api.Compact() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newPodAPI()
				api.Create(pod("a"))
				inf := start(t, api, Options[*corev1.Pod]{DetectMutations: true})
				synctest.Wait()
				a, _ := inf.Get(named("a"))
				tamper(inf, func() { a.Spec.NodeName = "node-1" })
				leave(api)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(t, 1, inf.Health().Mutated)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, 1, inf.Health().Mutated)
			})
		})
	}
}

// A Quantity keeps the text of its first String: to read an object is no change of it, to change a Quantity is one.
func TestReadingAQuantityIsNoMutation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf := start(t, api, Options[*corev1.Pod]{DetectMutations: true,
			Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
				empty := &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<30, resource.BinarySI)}
				p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: empty}}}
				return p, nil
			}})
		synctest.Wait()
		a, _ := inf.Get(named("a"))
		tamper(inf, func() { _ = a.Spec.Volumes[0].EmptyDir.SizeLimit.String() })
		time.Sleep(2 * detectPeriod)
		synctest.Wait()
		require.Zero(t, inf.Health().Mutated, "%v", inf.Health().LastBadObject)
		tamper(inf, func() { a.Spec.Volumes[0].EmptyDir.SizeLimit.Add(resource.MustParse("1")) })
		time.Sleep(2 * detectPeriod)
		synctest.Wait()
		require.Equal(t, 1, inf.Health().Mutated)
	})
}

func TestMutationsOfUnstructuredObjects(t *testing.T) {
	object := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"kind": "Secret", "metadata": map[string]any{"name": "a", "namespace": "default",
				"labels": map[string]any{"swordfish": "x"}},
			"spec": map[string]any{"replicas": int64(3), "ports": []any{map[string]any{"port": 1.5}}},
			"data": map[string]any{"swordfish": "x", "y": nil},
		}}
	}
	for field, mutate := range map[string]func(o map[string]any){
		"Object.spec.replicas": func(o map[string]any) { o["spec"].(map[string]any)["replicas"] = int64(4) },
		"Object.spec.ports[0].port": func(o map[string]any) {
			o["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"] = 2.5
		},
		"Object.spec.ports": func(o map[string]any) { o["spec"].(map[string]any)["ports"] = "swordfish" },
		"Object.data":       func(o map[string]any) { o["data"].(map[string]any)["swordfish"] = "z" },
		"Object.metadata.labels": func(o map[string]any) {
			o["metadata"].(map[string]any)["labels"].(map[string]any)["swordfish"] = "y"
		},
		"Object": func(o map[string]any) { delete(o, "kind") },
	} {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fakeapi.New[*unstructured.Unstructured](
					func() *unstructured.UnstructuredList { return &unstructured.UnstructuredList{} })
				api.Create(object())
				inf, err := New[*unstructured.Unstructured](api,
					Options[*unstructured.Unstructured]{DetectMutations: true})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				a, _ := inf.Get(named("a"))
				tamper(inf, func() { mutate(a.Object) })
				time.Sleep(2 * detectPeriod)
				synctest.Wait()
				require.Equal(t, 1, inf.Health().Mutated)
				require.ErrorContains(t, inf.Health().LastBadObject, "changed "+field+" of")
				require.NotContains(t, inf.Health().LastBadObject.Error(), "swordfish")
			})
		})
	}
}

// A projection may be anything.
func TestMutationsOfAnyValue(t *testing.T) {
	type facts struct {
		labels map[struct{ a, b string }]*[2]float32
		next   *facts
		self   any
		when   time.Time
		run    func()
		odd    complex64
		small  uint8
		raw    []byte
	}
	f := &facts{labels: map[struct{ a, b string }]*[2]float32{{"a", "b"}: {1, 2}, {"a", "c"}: nil}, when: time.Now(),
		raw: []byte{1}, run: func() {}}
	f.next, f.self = &facts{next: f}, f
	d := newDetector[*facts]()
	h := &health{}
	d.saw(Event[*facts]{Type: Added, Key: named("a"), New: f}, h)
	d.saw(Event[*facts]{}, h)
	for field, mutate := range map[string]func(){
		"labels":     func() { f.labels[struct{ a, b string }{"a", "b"}][1] = 3 },
		"next.small": func() { f.next.small++ },
		"next.next":  func() { f.next.next = nil },
		"raw":        func() { f.raw[0] = 2 },
		"self":       func() { f.self = nil },
		"odd":        func() { f.odd = 2i },
		"run":        func() { f.run = nil },
		"when":       func() { f.when = f.when.Add(time.Hour) },
	} {
		d.check(named("a"), h)
		before := counted(h).Mutated
		mutate()
		d.check(named("a"), h)
		d.check(named("a"), h)
		require.Equal(t, before+1, counted(h).Mutated, field)
		require.ErrorContains(t, counted(h).LastBadObject, "changed "+field, field)
	}
	f.when = f.when.In(time.FixedZone("x", 3600))
	n := 1
	numbers := newDetector[int]()
	numbers.saw(Event[int]{Type: Added, Key: named("n"), New: n}, h)
	numbers.saw(Event[int]{Type: Deleted, Key: named("n")}, h)
	numbers.check(named("n"), h)
	require.Empty(t, numbers.prints)
}

// What is not a number does not equal itself; that is no change.
func TestWhatIsNotANumberStaysWhatItIs(t *testing.T) {
	type load struct {
		average float64
		small   float32
		phase   complex128
	}
	values := &load{math.NaN(), float32(math.NaN()), cmplx.NaN()}
	d, h := newDetector[*load](), &health{}
	d.saw(Event[*load]{Type: Added, Key: named("a"), New: values}, h)
	for range 10 {
		d.check(named("a"), h)
	}
	require.Zero(t, counted(h).Mutated, "%v", counted(h).LastBadObject)
	for field, mutate := range map[string]func(){
		"average": func() { values.average = 1 },
		"small":   func() { values.small = -1 },
		"phase":   func() { values.phase = complex(0, math.NaN()) },
	} {
		mutate()
		d.check(named("a"), h)
		require.ErrorContains(t, counted(h).LastBadObject, "changed "+field)
	}
	require.Equal(t, 3, counted(h).Mutated)
}

// What Options.DetectMutations says that it costs.
func BenchmarkDetectMutations(b *testing.B) {
	d := newDetector[*corev1.Pod]()
	p := richPod("a")
	d.saw(Event[*corev1.Pod]{Type: Added, Key: KeyOf(p), New: p}, &health{})
	h := &health{}
	for b.Loop() {
		d.check(KeyOf(p), h)
	}
	b.ReportMetric(float64(8*cap(d.prints[KeyOf(p)].leaves)), "fingerprint-bytes")
	b.ReportMetric(float64(len(fmt.Sprint(p))), "text-bytes")
}

func counted(h *health) (now Health) {
	h.count(&now)
	return now
}
