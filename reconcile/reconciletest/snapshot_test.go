package reconciletest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

// TestASnapshotKeepsWhatHasOneNameOutside is about entries that are named by objects with generated names.
func TestASnapshotKeepsWhatHasOneNameOutside(t *testing.T) {
	s := NewServer(t, Options{})
	core := kubernetes.NewForConfigOrDie(s.Config())
	outside := map[string]map[string]any{}
	for _, address := range []string{"10.0.0.3", "10.0.0.1", "10.0.0.2"} {
		m, err := core.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		outside[aboutAPI("dns.example.com")+m.Name] = map[string]any{"value": address}
	}
	got := map[string]string{}
	for name, lines := range takeSnapshot(s, outside, func(*unstructured.Unstructured) {}) {
		if strings.HasPrefix(name, "dns.example.com") {
			got[name] = strings.Join(lines, "\n")
		}
	}
	require.Equal(t, map[string]string{"dns.example.com /web-(1)": ".value = 10.0.0.1",
		"dns.example.com /web-(2)": ".value = 10.0.0.2", "dns.example.com /web-(3)": ".value = 10.0.0.3"}, got)
}

// TestASnapshotSaysWhoseAnAddressIs and a port of the nodes, and not which one was drawn. One that was chosen stays.
func TestASnapshotSaysWhoseAnAddressIs(t *testing.T) {
	end := func(chosen int32, names ...string) snapshot {
		s := NewServer(t, Options{})
		core := kubernetes.NewForConfigOrDie(s.Config()).CoreV1()
		told := map[string]string{}
		for _, name := range names {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
				Ports: []corev1.ServicePort{{Port: 80}}}}
			if name == "chooses" {
				service.Spec.Ports[0].NodePort = chosen
			}
			made, err := core.Services("default").Create(t.Context(), service, metav1.CreateOptions{})
			require.NoError(t, err)
			told[name] = fmt.Sprintf("http://%s:80, port %d", made.Spec.ClusterIP, made.Spec.Ports[0].NodePort)
		}
		_, err := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "told"}, Data: told}, metav1.CreateOptions{})
		require.NoError(t, err)
		return takeSnapshot(s, nil, func(*unstructured.Unstructured) {})
	}
	require.Empty(t, end(30001, "a", "b", "chooses").differences(end(30001, "chooses", "b", "a")))
	require.Equal(t, []string{"configmaps .data.chooses", "services .spec.ports[#].nodePort"},
		kindsOfDifferences(end(30001, "a", "chooses").differences(end(30002, "a", "chooses"))))
}

func kindsOfDifferences(all []difference) (kinds []string) {
	for _, d := range all {
		kinds = append(kinds, d.kind())
	}
	return kinds
}

// TestNamesOfRevisions in a snapshot stand for their order, not for what there has been before.
func TestNamesOfRevisions(t *testing.T) {
	server := NewServer(t, Options{})
	made := func(resource schema.GroupResource, kind, name string, fields map[string]any) kept {
		o := &unstructured.Unstructured{Object: fields}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: resource.Group, Version: "v1", Kind: kind})
		o.SetNamespace("default")
		o.SetName(name)
		o.SetLabels(map[string]string{appsv1.StatefulSetPodNameLabel: name})
		return kept{resource, o}
	}
	pods := []string{"web-1", "web-2", "web-3", "web-10"} // of a StatefulSet web
	end := func(current string, numbers ...int64) snapshot {
		all := []kept{made(schema.GroupResource{Group: "apps", Resource: "statefulsets"}, "StatefulSet", "web",
			map[string]any{"status": map[string]any{"current": current, "message": "it is " + current + "."}})}
		for _, number := range numbers {
			all = append(all, made(schema.GroupResource{Group: "apps", Resource: "controllerrevisions"},
				"ControllerRevision", fmt.Sprintf("web-%d", number), map[string]any{"revision": number}))
		}
		for _, name := range pods {
			all = append(all, made(schema.GroupResource{Resource: "pods"}, "Pod", name,
				map[string]any{"status": map[string]any{"current": current}}))
		}
		return snapshotFrom(server, all, nil, func(*unstructured.Unstructured) {})
	}
	done := end("web-2", 1, 2)
	for _, name := range pods {
		require.Contains(t, done, "pods default/"+name)
	}
	require.Contains(t, done, "controllerrevisions.apps default/web-<revision 2 of 2>")
	require.Empty(t, end("web-3", 1, 3).differences(done), "a number is left out")
	require.Empty(t, end("web-10", 9, 10).differences(done), "the numbers are others")
	require.NotEmpty(t, end("web-1", 1, 3).differences(done), "the roll-out is not done")
	require.NotEmpty(t, end("web-2", 2).differences(done), "the first one is missing")
}

// TestNamesThatStandForOthers in a snapshot.
func TestNamesThatStandForOthers(t *testing.T) {
	s := NewServer(t, Options{})
	generated := s.generateName("configmaps", "default", "web-")
	for name, test := range map[string]struct {
		object string
		want   string
	}{
		"generated":                   {`{"metadata": {"generateName": "web-", "name": "web-x2bcd"}}`, "web-*"},
		"chosen, after its beginning": {`{"metadata": {"generateName": "web-", "name": "web-0"}}`, "web-0"},
		"generated, used again":       {`{"metadata": {"namespace": "default", "name": "` + generated + `"}}`, "web-*"},
		"chosen":                      {`{"metadata": {"name": "web-x"}}`, "web-x"},
		"a number":                    {`{"metadata": {"name": "web-24567"}}`, "web-24567"},
		"generated, in another namespace": {`{"metadata": {"namespace": "other", "name": "` + generated + `"}}`,
			generated},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			require.NoError(t, json.Unmarshal([]byte(test.object), &o.Object))
			require.Equal(t, test.want, alikeName(s, "configmaps", o))
		})
	}
	replace := replacer(map[string]string{"a-x": "a-*", "a-xy": "a-*"})
	require.Equal(t, "a-*, a-*", replace.Replace("a-xy, a-x"), "the longer one first")
}

// TestTheTimeOfTheLastTrigger is not compared, whether it is there or not; of another annotation that is a time it is
// compared whether it is there.
func TestTheTimeOfTheLastTrigger(t *testing.T) {
	server := NewServer(t, Options{})
	of := func(own, template string) snapshot {
		annotated := func(text string) map[string]any {
			return map[string]any{"name": "a", "annotations": map[string]any{"at": "2026-11-27T05:00:00Z",
				corev1.EndpointsLastChangeTriggerTime: text}}
		}
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": annotated(own),
			"spec": map[string]any{"template": map[string]any{"metadata": annotated(template)}}}}
		return snapshotFrom(server, []kept{{schema.GroupResource{Resource: "configmaps"}, o}}, nil,
			func(*unstructured.Unstructured) {})
	}
	const at = "2026-11-27T05:00:00.5Z"
	none := snapshot{"configmaps /a": {".metadata.annotations.at = <time>",
		".spec.template.metadata.annotations.at = <time>",
		".spec.template.metadata.annotations." + corev1.EndpointsLastChangeTriggerTime + " = <time>",
		".spec.template.metadata.name = a"}}
	require.Empty(t, of(at, at).differences(none))
	require.NotEmpty(t, of(at, "now").differences(none))
	none["configmaps /a"] = none["configmaps /a"][1:]
	require.NotEmpty(t, of(at, at).differences(none))
}

// TestTheOrderOfAList is compared in a spec, and not in a status, nor that of owners and finalizers. What they hold is,
// and how often.
func TestTheOrderOfAList(t *testing.T) {
	server := NewServer(t, Options{})
	of := func(all ...any) snapshot {
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a",
			"finalizers": all}, "status": map[string]any{"in": map[string]any{"all": all}}}}
		return snapshotFrom(server, []kept{{schema.GroupResource{Resource: "configmaps"}, o}}, nil,
			func(*unstructured.Unstructured) {})
	}
	first := of("a", "b", map[string]any{"x": "y", "a": int64(1)})
	require.Empty(t, first.differences(of(map[string]any{"x": "y", "a": int64(1)}, "b", "a")))
	require.NotEmpty(t, first.differences(of("a", "b", "b", map[string]any{"x": "y", "a": int64(1)})))
	require.NotEmpty(t, first.differences(of("a", "b", map[string]any{"x": "z", "a": int64(1)})))

	spec := func(all ...any) snapshot {
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"all": all}}}
		return snapshotFrom(server, []kept{{schema.GroupResource{Resource: "configmaps"}, o}}, nil,
			func(*unstructured.Unstructured) {})
	}
	require.NotEmpty(t, spec("a", "b").differences(spec("b", "a")))
}

// TestTheOrderOfAListIsThatOfTheOther where its elements are not alike, whatever their values are: a version that may
// differ does not tell them apart. Nor does the order of lists in them.
func TestTheOrderOfAListIsThatOfTheOther(t *testing.T) {
	server := NewServer(t, Options{})
	of := func(all ...any) snapshot {
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"},
			"status": map[string]any{"parts": all}}}
		return snapshotFrom(server, []kept{{schema.GroupResource{Resource: "configmaps"}, o}}, nil,
			func(*unstructured.Unstructured) {})
	}
	part := func(at, name string, of ...any) any { return map[string]any{"at": at, "name": name, "of": of} }
	paths := func(all []difference) (paths []string) {
		for _, d := range all {
			paths = append(paths, d.path)
		}
		return paths
	}
	a := of(part("9", "a"), part("12", "b"))
	require.Equal(t, []string{".status.parts[0].at", ".status.parts[1].at"},
		paths(of(part("83", "a"), part("86", "b")).differences(a)))
	require.Equal(t, []string{".status.parts[0].at"}, paths(of(part("12", "b"), part("83", "a")).differences(a)))
	require.Equal(t, []string{".status.parts[2].at", ".status.parts[2].name", ".status.parts[2].of"},
		paths(of(part("7", "c"), part("12", "b"), part("9", "a")).differences(a)))

	a = of(part("1", "a", "x", "y"), part("2", "b", "y", "z"))
	require.Empty(t, of(part("2", "b", "z", "y"), part("1", "a", "y", "x")).differences(a))
	require.Equal(t, []string{".status.parts[0].of[1]"},
		paths(of(part("2", "b", "z", "y"), part("1", "a", "z", "x")).differences(a)))
}

// TestCountsOfTries are not compared, in a status, where there were more of them: other numbers are.
func TestCountsOfTries(t *testing.T) {
	server := NewServer(t, Options{})
	of := func(field, name string, n any) snapshot {
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"},
			field: map[string]any{"of": map[string]any{name: n, "x": "y"}}}}
		if n == nil {
			unstructured.RemoveNestedField(o.Object, field, "of", name)
		}
		return snapshotFrom(server, []kept{{schema.GroupResource{Resource: "configmaps"}, o}}, nil,
			func(*unstructured.Unstructured) {})
	}
	for _, name := range []string{"failures", "installFailures", "retryCount", "numRetries", "attempts", "errorCount"} {
		require.Empty(t, of("status", name, int64(10)).differences(of("status", name, int64(9))), name)
		require.Empty(t, of("status", name, int64(1)).differences(of("status", name, nil)), name)
		require.NotEmpty(t, of("status", name, int64(1)).differences(of("status", name, int64(2))), name)
		require.NotEmpty(t, of("status", name, nil).differences(of("status", name, int64(2))), name)
		require.NotEmpty(t, of("spec", name, int64(2)).differences(of("spec", name, int64(1))), name)
	}
	for _, name := range []string{"failed", "restarts", "ready", "failuresAllowed", "maxRetries"} {
		require.NotEmpty(t, of("status", name, int64(2)).differences(of("status", name, int64(1))), name)
	}
	require.NotEmpty(t, of("status", "failures", "some").differences(of("status", "failures", "none")))
}

// TestWhatIsOfOneSort has the same resource, namespace and owners, and a name that begins alike.
func TestWhatIsOfOneSort(t *testing.T) {
	const owner = ".metadata.ownerReferences[0].name = "
	s := snapshot{"jobs.batch default/a-x": {owner + "a", ".spec.x = 1"}, "jobs.batch default/a-y": {owner + "a"},
		"jobs.batch default/a-z": {owner + "b"}, "jobs.batch default/b-x": {owner + "a"},
		"jobs.batch team-a/a-x": {owner + "a"}, "jobs.batch default/a-27-x": {owner + "a"},
		"jobs.batch default/a-28-y": {owner + "a"}, "pods default/a-x": {owner + "a"}}
	require.Equal(t, s.sort("jobs.batch default/a-x"), s.sort("jobs.batch default/a-y"))
	require.Equal(t, s.sort("jobs.batch default/a-27-x"), s.sort("jobs.batch default/a-28-y"), "numbers say nothing")
	for _, other := range []string{"jobs.batch default/a-z", "jobs.batch default/b-x", "jobs.batch team-a/a-x",
		"jobs.batch default/a-27-x", "pods default/a-x"} {
		require.NotEqual(t, s.sort("jobs.batch default/a-x"), s.sort(other), other)
	}
}
