package plan

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
