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
		api.Update("default", "owned", func(m *corev1.ConfigMap) {
			m.OwnerReferences = controlledBy("apps/v1",
				"ReplicaSet", "two")
		})
		require.Equal(t, []string{"default/one", "default/two"}, taken(log))
		api.Update("default", "owned", func(m *corev1.ConfigMap) { m.OwnerReferences = nil })
		require.Equal(t, []string{"default/two"}, taken(log))
		api.Update("default", "orphan", func(m *corev1.ConfigMap) {
			m.OwnerReferences = controlledBy("apps/v1",
				"ReplicaSet", "one")
		})
		api.Delete("default", "orphan")
		require.Equal(t, []string{"default/one"}, slices.Compact(taken(log)),
			"once or twice, as the two changes come together or not")
	})
}

func TestWatchesSurvivesAPanicOfItsFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		api.Create(configMap("bad"))
		api.Create(configMap("good"))
		c := newController(t, keys(log), Options{})
		Watches(c, newMaps(t, api), func(m *corev1.ConfigMap) []Key {
			if m.Name == "bad" || m.Data["bad"] != "" {
				panic("ouch")
			}
			return []Key{{Namespace: "mapped", Name: m.Name}}
		})
		start(t, ManagerOptions{Controllers: []*Controller{c}})
		require.Equal(t, []string{"mapped/good"}, taken(log))
		api.Update("default", "good", func(m *corev1.ConfigMap) { m.Data = map[string]string{"bad": "it is"} })
		require.Empty(t, taken(log), "no key is named, not even the one that the object had before")
	})
}

func TestClusterOwnsNamesAnOwnerWithoutANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		owned := configMap("owned")
		owned.OwnerReferences = controlledBy("v1", "Node", "n1")
		api.Create(owned)
		c := newController(t, keys(log), Options{})
		ClusterOwns(c, newMaps(t, api), corev1.SchemeGroupVersion.WithKind("Node"))
		start(t, ManagerOptions{Controllers: []*Controller{c}})
		require.Equal(t, []string{"/n1"}, taken(log))
	})
}

func TestWatchesChanNamesWhatComesOutOfAChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		names, plain := make(chan string), make(chan Key)
		c := newController(t, func(ctx context.Context, key Key) (Result, error) {
			causes, _ := Causes(ctx)
			log.note("%s: %v", key, causes)
			return Result{}, nil
		}, Options{})
		WatchesChan(c, "names", names, func(name string) []Key {
			if name == "bad" {
				panic("ouch")
			}
			return []Key{{Name: name + "-1"}, {Name: name + "-2"}}
		})
		WatchesChan(c, "keys", plain, func(k Key) []Key { return []Key{k} })
		stop := start(t, ManagerOptions{Controllers: []*Controller{c}})
		names <- "a"
		names <- "bad"
		plain <- parent
		require.Equal(t, []string{"/a-1: [WatchesChan names]", "/a-2: [WatchesChan names]",
			"default/parent: [WatchesChan keys]"}, taken(log))
		close(names)
		plain <- parent
		require.Equal(t, []string{"default/parent: [WatchesChan keys]"}, taken(log),
			"one that is closed bothers nobody")
		require.NoError(t, stop())
	})
}
