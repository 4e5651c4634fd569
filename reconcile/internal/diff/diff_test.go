package diff

import (
	"hash/maphash"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// changedFields names the fields in which two states differ.
func changedFields(old, now any) []string { return Names(Of(maphash.MakeSeed(), old, now)) }

// ring is a type whose values run in a circle, and another one.
type ring struct {
	N          int
	Next, Prev *ring
}

func TestChangedFieldsAreNamedWithoutTheirValues(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: "Ready", LastProbeTime: metav1.Unix(1, 0)},
			{Type: "Other"}}},
	}
	changed := func(change func(*corev1.Pod)) *corev1.Pod {
		other := pod.DeepCopy()
		change(other)
		return other
	}
	untyped := func(o *corev1.Pod) any {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		require.NoError(t, err)
		return &unstructured.Unstructured{Object: content}
	}
	for name, test := range map[string]struct {
		change         func(*corev1.Pod)
		typed, untyped []string // the same as typed, if nil
	}{
		"nothing": {change: func(*corev1.Pod) {}},
		"what the server writes": {change: func(p *corev1.Pod) {
			p.ResourceVersion, p.Generation, p.ManagedFields = "2", 7, []metav1.ManagedFieldsEntry{{}}
		}},
		"a time in a list": {
			change: func(p *corev1.Pod) { p.Status.Conditions[1].LastProbeTime = metav1.Now() },
			typed:  []string{"status.conditions[1].lastProbeTime"},
		},
		"the same time elsewhere": {change: func(p *corev1.Pod) {
			p.Status.Conditions[0].LastProbeTime = metav1.NewTime(time.Unix(1, 0).In(time.FixedZone("there", 0)))
		}},
		"the length of a list": {
			change: func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[:1] },
			typed:  []string{"status.conditions"},
		},
		"a label, whose name is not told": {
			change: func(p *corev1.Pod) { p.Labels["secret"] = "b" },
			typed:  []string{"metadata.labels"},
		},
		"a map that only the type knows to be one": {
			change:  func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("2") },
			typed:   []string{"spec.containers[0].resources.limits"},
			untyped: []string{"spec.containers[0].resources.limits.cpu"},
		},
		"a pointer that was nil": {
			change: func(p *corev1.Pod) { p.Spec.Priority = new(int32) },
			typed:  []string{"spec.priority"},
		},
		"more than anybody wants to read": {
			change: func(p *corev1.Pod) {
				p.Labels = nil
				p.Spec.NodeName, p.Spec.HostNetwork, p.Spec.Hostname, p.Spec.Subdomain = "n", true, "h", "s"
			},
			typed:   []string{"metadata.labels", "spec.nodeName", "spec.hostNetwork", "spec.hostname"},
			untyped: []string{"metadata.labels", "spec.hostNetwork", "spec.hostname", "spec.nodeName"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := changed(test.change)
			require.Equal(t, test.typed, changedFields(pod, other))
			if test.untyped == nil {
				test.untyped = test.typed
			}
			require.Equal(t, test.untyped, changedFields(untyped(pod), untyped(other)))
		})
	}

	a, b := &ring{N: 1}, &ring{N: 1}
	a.Next, a.Prev, b.Next, b.Prev = a, a, b, b
	require.Empty(t, changedFields(a, b))
	b.N = 2
	require.Contains(t, changedFields(a, b), "N")

	within := func(n int) map[string]any { // a slice in itself, and a map
		items, m := []any{nil, nil, n}, map[string]any{}
		items[0], items[1] = items, m
		m["items"], m["self"] = items, m
		return m
	}
	require.Empty(t, changedFields(within(1), within(1)))
	require.Equal(t, []string{"items[2]"}, changedFields(within(1), within(2)))
	require.Empty(t, changedFields(1, 1))
	require.Equal(t, []string{"all of it"}, changedFields([]int{1}, []int{2}))
}

func TestChangesTellFieldsApartWithoutTheirValues(t *testing.T) {
	seed := maphash.MakeSeed()
	a, b := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	a.Data = map[string]string{"same": "x", "one": "x", "two": "x"}
	b.Data = map[string]string{"same": "x", "one": "y", "three": "x"}
	there, back := Of(seed, a, b), Of(seed, b, a)
	require.Len(t, there, 3)
	paths := map[uint64]Change{}
	for _, c := range there {
		require.Equal(t, "data", c.Name)
		require.Zero(t, c.Step)
		paths[c.Path] = c
	}
	require.Len(t, paths, 3)
	for _, c := range back {
		require.Equal(t, paths[c.Path].Old, c.Now)
		require.Equal(t, paths[c.Path].Now, c.Old)
	}

	type counter struct {
		N *int32 `json:"n,omitempty"`
	}
	steps := func(from, to *int32) int8 {
		changes := Of(seed, counter{from}, counter{to})
		require.Len(t, changes, 1)
		require.Equal(t, to != nil && *to < 0, changes[0].Below)
		return changes[0].Step
	}
	require.EqualValues(t, 1, steps(nil, new(int32(3))))
	require.EqualValues(t, -1, steps(new(int32(3)), nil))
	require.EqualValues(t, -1, steps(new(int32(3)), new(int32(-2))))
}

// BenchmarkChangesOf compares two states of a pod that differ in an annotation.
func BenchmarkChangesOf(b *testing.B) {
	old := &corev1.Pod{}
	old.Name, old.Namespace, old.UID, old.ResourceVersion = "web-1", "default", "a5d3", "1"
	old.Labels, old.Annotations = map[string]string{"app": "web"}, map[string]string{"step": "1"}
	for _, name := range []string{"serve", "log"} {
		old.Spec.Containers = append(old.Spec.Containers, corev1.Container{
			Name: name, Image: "registry/" + name, Args: []string{"--a", "--b"},
			Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
		})
	}
	now := old.DeepCopy()
	now.ResourceVersion, now.Annotations["step"] = "2", "2"
	untyped := func(p *corev1.Pod) *unstructured.Unstructured {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			b.Fatal(err)
		}
		return &unstructured.Unstructured{Object: content}
	}
	seed := maphash.MakeSeed()
	for name, states := range map[string][2]any{
		"typed": {old, now}, "unstructured": {untyped(old), untyped(now)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c := Of(seed, states[0], states[1]); len(c) != 1 {
					b.Fatal(c)
				}
			}
		})
	}
}
