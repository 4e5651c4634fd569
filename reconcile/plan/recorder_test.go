package plan

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
