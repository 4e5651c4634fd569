package reconcile

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keys is a Reconciler that notes which keys it was called with.
func keys(log *journal) Func {
	return func(_ context.Context, key Key) (Result, error) { log.note("%s", key); return Result{}, nil }
}

func taken(log *journal) []string {
	synctest.Wait()
	lines := log.take()
	slices.Sort(lines)
	return lines
}

func controlledBy(apiVersion, kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{
		{APIVersion: apiVersion, Kind: kind, Name: "not-the-controller"},
		{APIVersion: apiVersion, Kind: kind, Name: name, Controller: &yes},
	}
}

func TestForNamesTheObjectItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		api.Create(configMap("a"))
		c := newController(t, keys(log), Options{})
		For(c, newMaps(t, api))
		start(t, ManagerOptions{Controllers: []*Controller{c}})
		require.Equal(t, []string{"default/a"}, taken(log))
		api.Update("default", "a", func(m *corev1.ConfigMap) { m.Data = map[string]string{"k": "v"} })
		require.Equal(t, []string{"default/a"}, taken(log))
		api.Delete("default", "a")
		require.Equal(t, []string{"default/a"}, taken(log), "a deletion is a change, too")
		c.Enqueue(Key{Namespace: "x", Name: "y"})
		require.Equal(t, []string{"x/y"}, taken(log))
	})
}

func TestOwnsNamesTheOldOwnerAndTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		owned, foreign := configMap("owned"), configMap("foreign")
		owned.OwnerReferences = controlledBy("apps/v1beta9", "ReplicaSet", "one")
		foreign.OwnerReferences = controlledBy("example.com/v1", "ReplicaSet", "not-ours")
		api.Create(owned)
		api.Create(foreign)
		api.Create(configMap("orphan"))
		c := newController(t, keys(log), Options{})
		Owns(c, newMaps(t, api), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		start(t, ManagerOptions{Controllers: []*Controller{c}})
		require.Equal(t, []string{"default/one"}, taken(log))
		api.Update("default", "owned", func(m *corev1.ConfigMap) { m.OwnerReferences = controlledBy("apps/v1", "ReplicaSet", "two") })
		require.Equal(t, []string{"default/one", "default/two"}, taken(log))
		api.Update("default", "owned", func(m *corev1.ConfigMap) { m.OwnerReferences = nil })
		require.Equal(t, []string{"default/two"}, taken(log))
		api.Update("default", "orphan", func(m *corev1.ConfigMap) { m.OwnerReferences = controlledBy("apps/v1", "ReplicaSet", "one") })
		api.Delete("default", "orphan")
		require.Equal(t, []string{"default/one"}, taken(log))
	})
}

func TestWatchesSurvivesAPanicOfItsFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		api.Create(configMap("bad"))
		api.Create(configMap("good"))
		c := newController(t, keys(log), Options{})
		Watches(c, newMaps(t, api), func(m *corev1.ConfigMap) []Key {
			if m.Name == "bad" {
				panic("ouch")
			}
			return []Key{{Namespace: "mapped", Name: m.Name}}
		})
		start(t, ManagerOptions{Controllers: []*Controller{c}})
		require.Equal(t, []string{"mapped/good"}, taken(log))
	})
}
