package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

func TestConditionsSayWhichUpdatesNameAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		first := configMap("a")
		first.Generation = 1
		api.Create(first)
		odd := false
		invalid := func(_ context.Context, key reconcile.Key, why *informer.InvalidError) (reconcile.Result, error) {
			log.note("%s invalid at %s: %s", key, why.Object.ResourceVersion, why)
			return reconcile.Result{}, nil
		}
		c := newController(t, noting(log), reconcile.Options{Invalid: invalid})
		inf := newMaps(t, api)
		reconcile.For(c, inf, reconcile.GenerationChanged, reconcile.LabelsChanged,
			func(_, now *corev1.ConfigMap) bool {
				if odd && now.Data["how"] == "panic" {
					panic("odd")
				}
				return now.Data["urgent"] != ""
			})
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.Equal(t, []string{"default/a"}, taken(log), "it is new")
		change := func(fn func(*corev1.ConfigMap)) []string {
			t.Helper()
			api.Update("default", "a", fn)
			return taken(log)
		}
		named := []string{"default/a"}
		require.Empty(t, change(func(m *corev1.ConfigMap) { m.Data = map[string]string{"status": "fine"} }))
		require.Empty(t, change(func(m *corev1.ConfigMap) { m.Annotations = map[string]string{"x": "y"} }))
		require.Equal(t, named, change(func(m *corev1.ConfigMap) { m.Generation = 2 }))
		require.Equal(t, named, change(func(m *corev1.ConfigMap) { m.Labels = map[string]string{"x": "y"} }))
		require.Equal(t, named, change(func(m *corev1.ConfigMap) { m.Labels = nil }))
		require.Equal(t, named, change(func(m *corev1.ConfigMap) { m.Data["urgent"] = "yes" }))
		require.Empty(t, change(func(m *corev1.ConfigMap) { delete(m.Data, "urgent") }))
		require.Equal(t, named, change(func(
			m *corev1.ConfigMap) {
			m.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}))
		require.Empty(t, change(func(m *corev1.ConfigMap) { m.Annotations = nil }))
		odd = true
		refused := change(func(m *corev1.ConfigMap) { m.Data["how"] = "panic" })
		version := api.Objects()[0].ResourceVersion
		require.Equal(t, []string{"default/a invalid at " + version + ": panic of type string"}, refused,
			"an object that cannot be judged is invalid")
		require.Equal(t, 1, c.Inspect().Panicking)
		require.Len(t, change(func(m *corev1.ConfigMap) { m.Data["x"] = "y" }), 1, "so is its next state")
		require.Equal(t, named, change(func(m *corev1.ConfigMap) { m.Data["how"] = "well" }), "it is valid again")
		require.Zero(t, c.Inspect().Panicking)
		require.Empty(t, change(func(m *corev1.ConfigMap) { m.Data["how"] = "fine" }))
		require.Equal(t, named, change(func(m *corev1.ConfigMap) { m.Generation = 0 }))
		require.Equal(t, named, change(func(m *corev1.ConfigMap) { m.Data["x"] = "z" }), "it has no generation")
		api.Delete("default", "a")
		require.Equal(t, named, taken(log))
	})
}

func TestAnnotationsChanged(t *testing.T) {
	one, two := configMap("a"), configMap("a")
	require.False(t, reconcile.AnnotationsChanged(one, two))
	two.Labels = map[string]string{"a": "b"}
	require.False(t, reconcile.AnnotationsChanged(one, two))
	two.Annotations = map[string]string{"a": "b"}
	require.True(t, reconcile.AnnotationsChanged(one, two))
}

// A write of one's own is waited for, and seen, although the condition keeps its event from naming the key.
func TestAConditionHidesNoWriteFromTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		api.Create(configMap("a"))
		inf := newMaps(t, api)
		write := true
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s", key)
			if !write {
				return reconcile.Result{}, nil
			}
			write = false
			return reconcile.Result{}, reconcile.Wrote(ctx, inf, api.Update("default", "a",
				func(m *corev1.ConfigMap) { m.Data = nil }))
		}, reconcile.Options{})
		reconcile.For(c, inf, func(*corev1.ConfigMap, *corev1.ConfigMap) bool { return false })
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.Equal(t, []string{"default/a"}, taken(log))
		c.Enqueue(reconcile.Key{Namespace: "default", Name: "a"})
		require.Equal(t, []string{"default/a"}, taken(log))
		require.Zero(t, c.Stats().Parked)
		require.False(t, c.Owes())
	})
}

func TestANilConditionIsAMistake(t *testing.T) {
	c := newController(t, noting(&journal{}), reconcile.Options{})
	reconcile.For(c, newMaps(t, newMapAPI()), nil)
	_, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.ErrorContains(t, err, `For: a condition is nil`)
}
