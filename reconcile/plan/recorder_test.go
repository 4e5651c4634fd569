package plan

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// write is a request that changes a ConfigMap, and what it makes of it.
func write(t *testing.T, r *recorder, name string, old, now map[string]string) {
	req := reconciletest.Request{Verb: "update", Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Namespace: "default", Name: name}
	object := func(data map[string]string) reconciletest.Object {
		if data == nil {
			return nil
		}
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}
	}
	_, err := r.observe(req)(t.Context(), func() (*http.Response, error) {
		r.Wrote(reconciletest.BaseWrite{Request: req, Old: object(old), New: object(now)})
		return httptest.NewRecorder().Result(), nil
	})
	require.NoError(t, err)
}

// TestWavesEndWhereTheProgramWaits also has a watch, which is no request that a program waits with.
func TestWavesEndWhereTheProgramWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		state := func(v string) map[string]string { return map[string]string{"v": v} }
		watching := reconciletest.Request{Verb: "watch", Resource: corev1.SchemeGroupVersion.WithResource("pods")}
		end := make(chan struct{})
		go r.observe(watching)(context.Background(), func() (*http.Response, error) {
			<-end
			return httptest.NewRecorder().Result(), nil
		})
		synctest.Wait()
		write(t, r, "a", nil, state("1"))
		write(t, r, "b", state("1"), state("2"))
		time.Sleep(between / 2)
		write(t, r, "a", state("1"), state("2"))
		write(t, r, "b", state("2"), state("1"))
		time.Sleep(between)
		write(t, r, "a", state("2"), state("3"))
		close(end)
		report, err := r.report()
		require.NoError(t, err)
		require.Len(t, report.Changes, 3)
		a, b, later := report.Changes[0], report.Changes[1], report.Changes[2]
		require.Equal(t, "create", a.Verb)
		require.Equal(t, 2, a.Writes)
		require.Equal(t, Field{Path: "data[v]", New: "2"}, a.Fields[0])
		require.Equal(t, 1, b.Wave)
		require.Empty(t, b.Fields, "in the end it is as it was")
		require.Equal(t, 2, later.Wave)
		require.Equal(t, []Field{{Path: "data[v]", Old: "2", New: "3"}}, later.Fields)
		require.Equal(t, 2, report.Waves())
		require.Empty(t, report.HotLoops)
	})
}

// TestRightsThatAreGrantedAreNotJudged has a program with the rights of an account that makes a Role.
func TestRightsThatAreGrantedAreNotJudged(t *testing.T) {
	for _, judged := range []bool{true, false} {
		r := newRecorder()
		r.judged = judged
		for _, verb := range []string{"get", "create"} {
			req := reconciletest.Request{Verb: verb, Resource: rbacv1.SchemeGroupVersion.WithResource("roles")}
			_, err := r.observe(req)(t.Context(), func() (*http.Response, error) {
				return httptest.NewRecorder().Result(), nil
			})
			require.NoError(t, err)
		}
		report, err := r.report()
		require.NoError(t, err)
		require.Equal(t, judged, len(report.Approximate) == 1 && report.Approximate[0].Times == 1)
	}
}

// TestAStatefulSetRestartsPods has what restarts pods beside a change of the template.
func TestAStatefulSetRestartsPods(t *testing.T) {
	set := func(kind appsv1.StatefulSetUpdateStrategyType, partition int32) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: kind}}}
		if kind == appsv1.RollingUpdateStatefulSetStrategyType {
			s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition}
		}
		s.Status = appsv1.StatefulSetStatus{Replicas: 3, CurrentRevision: "db-1", UpdateRevision: "db-2"}
		return s
	}
	const rolling, onDelete = appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType
	settled := set(rolling, 3)
	settled.Status.UpdateRevision = settled.Status.CurrentRevision
	for _, test := range []struct {
		was, now *appsv1.StatefulSet
		why      []string
		want     *Restarts
	}{
		{set(rolling, 3), set(rolling, 1), nil,
			&Restarts{Pods: 2, Why: []string{"spec.updateStrategy.rollingUpdate.partition"}}},
		{settled, set(rolling, 1), nil, nil},
		{set(rolling, 0), set(rolling, 1), nil, nil},
		{set(onDelete, 0), set(rolling, 0), nil, &Restarts{Pods: 3, Why: []string{"spec.updateStrategy.type"}}},
		{set(rolling, 0), set(onDelete, 0), []string{"spec.template.spec"},
			&Restarts{Pods: 3, Why: []string{"spec.template.spec"}, When: "when they are deleted (OnDelete)"}},
		{set(rolling, 1), set(rolling, 1), []string{"spec.template.spec"},
			&Restarts{Pods: 2, Why: []string{"spec.template.spec"}}},
		{set(rolling, 3), set(rolling, 3), []string{"spec.template.spec"},
			&Restarts{Why: []string{"spec.template.spec"}, When: "when the partition is less than 3"}},
	} {
		require.Equal(t, test.want, ofStatefulSet(test.was, test.now, test.why))
	}
}

// TestSecretsInOtherObjectsAreHidden has an object that brings a manifest to a cluster.
func TestSecretsInOtherObjectsAreHidden(t *testing.T) {
	work := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Work", "spec": map[string]any{
			"manifests": []any{map[string]any{"kind": "Secret", "data": map[string]any{"password": value}}}}}}
	}
	fields, err := changed(nil, work("hunter2"))
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(fields), "hunter2")
	fields, err = changed(work("hunter2"), work("hunter3"))
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(fields), "hunter")
}

func TestWhatOthersHaveNamedDoesNotDriveATerminal(t *testing.T) {
	report := &Report{Changes: []Change{{Wave: 1, Verb: "update", Fields: []Field{
		{Path: "spec.list[x\n\n# y\x1b[31m]", New: "\x1b]0;\a"}}}}}
	for _, write := range []func(io.Writer) error{report.WriteText, report.WriteMarkdown} {
		var b strings.Builder
		require.NoError(t, write(&b))
		require.NotContains(t, b.String(), "\x1b")
		require.NotContains(t, b.String(), "\n# y")
	}
}

func TestChangedNamesElementsByTheirKeys(t *testing.T) {
	containers := func(images ...string) *corev1.Pod {
		p := &corev1.Pod{}
		for i, image := range images {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: string(rune('a' + i)), Image: image,
				Args: []string{"--x"}})
		}
		return p
	}
	reversed := containers("1", "2")
	reversed.Spec.Containers[0], reversed.Spec.Containers[1] = reversed.Spec.Containers[1], reversed.Spec.Containers[0]
	args := containers("1", "2")
	args.Spec.Containers[1].Args = []string{"--y"}
	annotated := containers("1", "2")
	annotated.Annotations = map[string]string{"example.com/a.b": "x"}
	annotated.ResourceVersion, annotated.Generation = "7", 8
	for name, test := range map[string]struct {
		now  *corev1.Pod
		want []string
	}{
		"same":  {containers("1", "2"), nil},
		"value": {containers("1", "3"), []string{"spec.containers[b].image"}},
		"element": {containers("1"), []string{"spec.containers[b].args", "spec.containers[b].image",
			"spec.containers[b].name"}},
		"order":          {reversed, []string{"spec.containers"}},
		"list of values": {args, []string{"spec.containers[b].args[0]"}},
		"annotation":     {annotated, []string{"metadata.annotations[example.com/a.b]"}},
	} {
		fields, err := changed(containers("1", "2"), test.now)
		require.NoError(t, err)
		var got []string
		for _, f := range fields {
			got = append(got, f.Path)
		}
		require.Equal(t, test.want, got, name)
	}
}

func TestATemplateIsFoundAnywhere(t *testing.T) {
	pods := func(image string) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": image}}}}
	}
	for name, test := range map[string]struct {
		was, is map[string]any
		want    bool
	}{
		"same":     {map[string]any{"a": pods("1")}, map[string]any{"a": pods("1"), "b": "c"}, false},
		"image":    {map[string]any{"a": pods("1")}, map[string]any{"a": pods("2")}, true},
		"below":    {map[string]any{"a": map[string]any{"b": pods("1")}}, map[string]any{"a": map[string]any{}}, true},
		"added":    {nil, map[string]any{"a": pods("1")}, true},
		"list":     {map[string]any{"a": []any{pods("1")}}, map[string]any{"a": []any{pods("1"), pods("2")}}, true},
		"no pods":  {map[string]any{"a": map[string]any{"spec": "b"}}, map[string]any{}, false},
		"the spec": {pods("1")["spec"].(map[string]any), pods("2")["spec"].(map[string]any), false},
	} {
		require.Equal(t, test.want, changesPods(test.was, test.is), name)
	}
}

// TestARequestThatTheForkFailsToAnswerEnds has a panic, which net/http hides.
func TestARequestThatTheForkFailsToAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		req := reconciletest.Request{Verb: "get", Resource: corev1.SchemeGroupVersion.WithResource("pods")}
		require.Panics(t, func() {
			_, _ = r.observe(req)(t.Context(), func() (*http.Response, error) { panic("no") })
		})
		time.Sleep(time.Hour)
		quiet, _ := r.settled()
		require.Equal(t, time.Hour, quiet, "it is not served for ever")
		report, err := r.report()
		require.NoError(t, err)
		require.Equal(t, []Approximation{{Resource: "pods", Why: "the fork has failed to answer", Times: 1}},
			report.Approximate)
	})
}

// TestAWatchThatPanicsIsInTheReport, and so is a request about what is no change.
func TestAWatchThatPanicsIsInTheReport(t *testing.T) {
	r := newRecorder()
	of := func(group, resource string) reconciletest.Request {
		return reconciletest.Request{Verb: "get", Resource: schema.GroupVersionResource{Group: group, Version: "v1",
			Resource: resource}}
	}
	watching := of("", "pods")
	watching.Verb = "watch"
	resp, err := r.observe(watching)(t.Context(), func() (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: broken{}}, nil
	})
	require.NoError(t, err)
	require.PanicsWithValue(t, "no", func() { _, _ = resp.Body.Read(nil) })
	for _, req := range []reconciletest.Request{of("coordination.k8s.io", "leases"), of("", "events"),
		{Verb: "get", Path: "/apis"}} {
		require.PanicsWithValue(t, "never", func() {
			_, _ = r.observe(req)(t.Context(), func() (*http.Response, error) { panic("never") })
		})
	}
	report, err := r.report()
	require.NoError(t, err)
	var resources []string
	for _, a := range report.Approximate {
		require.Equal(t, "the fork has failed to answer", a.Why)
		resources = append(resources, a.resource())
	}
	require.Equal(t, []string{"/apis", "events", "pods", "leases.coordination.k8s.io"}, resources)
}

// broken is the answer to a watch that the server fails to go on with.
type broken struct{}

func (broken) Read([]byte) (int, error) { panic("no") }
func (broken) Close() error             { return nil }

// TestChangesComeInOneOrder has the same writes in two orders, as a program with several workers makes them.
func TestChangesComeInOneOrder(t *testing.T) {
	var writes []reconciletest.BaseWrite
	object := func(uid types.UID, namespace, name, generateName string, version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: namespace, Name: name,
			GenerateName: generateName, ResourceVersion: version}, Data: map[string]string{"v": version}}
	}
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	add := func(old, now *corev1.ConfigMap, subresource string) {
		w := reconciletest.BaseWrite{Request: reconciletest.Request{Resource: resource, Subresource: subresource}}
		for to, o := range map[*reconciletest.Object]*corev1.ConfigMap{&w.Old: old, &w.New: now} {
			if o != nil {
				o.Kind = "ConfigMap"
				*to, w.Name, w.Namespace = o, o.Name, o.Namespace
			}
		}
		writes = append(writes, w)
	}
	add(object("1", "b", "a", "", "1"), object("1", "b", "a", "", "2"), "")
	add(object("1", "b", "a", "", "2"), object("1", "b", "a", "", "3"), "status")
	add(object("2", "a", "z", "", "1"), object("2", "a", "z", "", "2"), "")
	add(nil, object("3", "a", "y-abcde", "y-", "2"), "")
	add(nil, object("4", "a", "y-fghij", "y-", "1"), "")
	say := func(all []reconciletest.BaseWrite) (lines []string) {
		r := newRecorder()
		for _, w := range all {
			r.Wrote(w)
		}
		report, err := r.report()
		require.NoError(t, err)
		for _, c := range report.Changes {
			lines = append(lines, fmt.Sprintf("%s %s %s/%s %v", c.Verb, c.Subresource, c.Object.Namespace,
				c.withoutInvented().Object.Name, c.Fields[0].New))
		}
		return lines
	}
	want := []string{"create  a/y-* 1", "create  a/y-* 2", "update  a/z 2", "update  b/a 2", "update status b/a 3"}
	require.Equal(t, want, say(writes))
	slices.Reverse(writes)
	require.Equal(t, want, say(writes))

	writes = nil // what happens to one name comes in its own order
	add(object("1", "a", "a", "", "1"), nil, "")
	add(nil, object("2", "a", "a", "", "1"), "")
	add(object("2", "a", "a", "", "1"), nil, "")
	r := newRecorder()
	for _, w := range writes {
		r.Wrote(w)
	}
	report, err := r.report()
	require.NoError(t, err)
	var verbs []string
	for _, c := range report.Changes {
		verbs = append(verbs, c.Verb)
	}
	require.Equal(t, []string{"delete", "create", "delete"}, verbs)
}

// TestWhatTheForkDrawsIsMarked has a Service and a pod whose address, name and UID the program writes elsewhere too,
// and a Service for which it has chosen an address.
func TestWhatTheForkDrawsIsMarked(t *testing.T) {
	r := newRecorder()
	write := func(by, resource string, old, now reconciletest.Object) {
		w := reconciletest.BaseWrite{By: by, Old: old, New: now,
			Request: reconciletest.Request{Resource: corev1.SchemeGroupVersion.WithResource(resource)}}
		w.Name = now.GetName()
		r.Wrote(w)
	}
	service := func(uid types.UID, ip string, port int32) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: "s" + string(uid)}}
		s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.Selector = ip, []string{ip}, map[string]string{"a": "b"}
		s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80, NodePort: port}}
		return s
	}
	r.asked(reconciletest.BaseWrite{New: service("1", "", 0)})
	write("", "services", nil, service("1", "10.96.0.1", 30001))
	r.asked(reconciletest.BaseWrite{New: service("2", "10.96.0.2", 30002)})
	write("", "services", nil, service("2", "10.96.0.2", 30002))
	// The program reads what was drawn, and sends it.
	r.asked(reconciletest.BaseWrite{New: service("1", "10.96.0.1", 30001)})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "7d3c", Name: "web-x7x8k", GenerateName: "web-"}}
	write(worldManager, "pods", nil, pod)
	running := pod.DeepCopy()
	running.Status.PodIP = "192.0.2.7"
	write(worldManager, "pods", pod, running)
	labelled := running.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	write("", "pods", running, labelled)
	write("", "configmaps", nil, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "3", Name: "c"},
		Data: map[string]string{"ip": "https://10.96.0.1:443", "other": "10.96.0.11", "pod": "192.0.2.7", "uid": "7d3c",
			"host": "web-x7x8k.web.svc", "chosen": "10.96.0.2", "named": "web-x7x8"}})
	report, err := r.report()
	require.NoError(t, err)
	var drawn []string
	for _, c := range report.Changes {
		require.Equal(t, c.Object.Name == "web-x7x8k", c.NameInvented)
		for _, f := range c.Fields {
			if f.Invented {
				drawn = append(drawn, c.Object.Name+" "+f.Path)
			}
		}
	}
	require.Equal(t, []string{"c data[host]", "c data[ip]", "c data[pod]", "c data[uid]", "s1 spec.clusterIP",
		"s1 spec.clusterIPs", "s1 spec.ports[a].nodePort"}, drawn)
	var b strings.Builder
	require.NoError(t, report.WriteText(&b))
	require.Contains(t, b.String(), "spec.clusterIP: \"10.96.0.1\" (invented)\n")
	require.Contains(t, b.String(), "web-x7x8k (name invented)\n")
	require.Contains(t, b.String(), inventedNote)
	require.Equal(t, []string{"EndpointSlices of new services (2)"}, report.Unlisted)
	require.Contains(t, b.String(), "what the controllers of the cluster make\n  EndpointSlices of new services (2)")
}
