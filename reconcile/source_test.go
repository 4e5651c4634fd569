package reconcile_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile"
)

// noting is a Reconciler that notes which keys it was called with.
func noting(log *journal) reconcile.Func {
	return func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
		log.note("%s", key)
		return reconcile.Result{}, nil
	}
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
		c := newController(t, noting(log), reconcile.Options{})
		reconcile.For(c, newMaps(t, api))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.Equal(t, []string{"default/a"}, taken(log))
		api.Update("default", "a", func(m *corev1.ConfigMap) { m.Data = map[string]string{"k": "v"} })
		require.Equal(t, []string{"default/a"}, taken(log))
		api.Delete("default", "a")
		require.Equal(t, []string{"default/a"}, taken(log), "a deletion is a change, too")
		c.Enqueue(reconcile.Key{Namespace: "x", Name: "y"})
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
		c := newController(t, noting(log), reconcile.Options{})
		reconcile.Owns(c, newMaps(t, api), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
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

// TestAnObjectThatMakesWatchesPanicLosesNoKey: as long as the function panics on an object, each change of that names
// the keys that it had before, and the function is asked again.
func TestAnObjectThatMakesWatchesPanicLosesNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		api.Create(configMap("bad"))
		api.Create(configMap("good"))
		healed := false
		c := newController(t, noting(log), reconcile.Options{})
		reconcile.Watches(c, newMaps(t, api), func(m *corev1.ConfigMap) []reconcile.Key {
			if !healed && (m.Name == "bad" || m.Data["bad"] != "") {
				panic("ouch")
			}
			return []reconcile.Key{{Namespace: "mapped", Name: m.Name + m.Data["to"]}}
		})
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		change := func(name string, data map[string]string) []string {
			t.Helper()
			api.Update("default", name, func(m *corev1.ConfigMap) { m.Data = data })
			return taken(log)
		}
		had := []string{"mapped/good"}
		require.Equal(t, had, taken(log))
		require.Equal(t, had, change("good", map[string]string{"bad": "it is"}), "it named that before")
		require.Equal(t, had, change("good", map[string]string{"bad": "still"}))
		require.Equal(t, 2, c.Inspect().Panicking)
		require.Contains(t, c.Why(reconcile.Key{Namespace: "mapped", Name: "good"}),
			" But a function of Watches configmaps "+
				"panics on 2 objects, such as default/bad, so changes may be missed.")
		require.Equal(t, []string{"mapped/good", "mapped/good2"}, change("good", map[string]string{"to": "2"}),
			"it is valid again")
		require.Equal(t, 1, c.Inspect().Panicking)
		require.Equal(t, []string{"mapped/good2"}, change("good", map[string]string{"bad": "again"}))
		api.Delete("default", "good")
		require.Equal(t, []string{"mapped/good2"}, taken(log), "it is gone")

		require.Empty(t, change("bad", map[string]string{"x": "y"}), "it has never named a key")
		time.Sleep(time.Hour)
		healed = true
		api.Bookmark()
		require.Equal(t, []string{"mapped/bad"}, taken(log), "the function is asked again")
		require.Zero(t, c.Inspect().Panicking)
		require.NotContains(t, c.Why(reconcile.Key{Namespace: "mapped", Name: "good"}), "panics")
	})
}

// TestADeletionThatMakesWatchesPanicIsToldLater: the function reads another cache, say, which lacks what it needs.
func TestADeletionThatMakesWatchesPanicIsToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		api.Create(configMap("a"))
		api.Create(configMap("b"))
		panics := false
		c := newController(t, noting(log), reconcile.Options{})
		reconcile.Watches(c, newMaps(t, api), func(m *corev1.ConfigMap) []reconcile.Key {
			if panics {
				panic("ouch")
			}
			return []reconcile.Key{{Name: m.Name + m.Data["to"]}}
		})
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.Len(t, taken(log), 2)
		panics = true
		api.Delete("default", "a")
		require.Empty(t, taken(log))
		panics = false
		time.Sleep(time.Minute)
		api.Bookmark()
		require.Equal(t, []string{"/a"}, taken(log))

		panics = true
		api.Create(configMap("a"))
		require.Empty(t, taken(log))
		api.Delete("default", "a")
		synctest.Wait()
		panics = false
		api.Create(configMap("a"))
		// It may come twice, for the deletion and for the creation.
		require.Equal(t, []string{"/a"}, slices.Compact(taken(log)), "it is there again")
		panics = true
		api.Delete("default", "a")
		require.Empty(t, taken(log))
		panics = false
		made := configMap("a")
		made.Data = map[string]string{"to": "2"}
		api.Create(made)
		require.Equal(t, []string{"/a", "/a2"}, taken(log), "it is gone, and another one is there")

		panics = true
		api.Delete("default", "b")
		for range 20 {
			time.Sleep(10 * time.Minute)
			api.Bookmark()
		}
		require.Zero(t, c.Inspect().Panicking, "what is gone is not kept for ever")
	})
}

func TestClusterOwnsNamesAnOwnerWithoutANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		owned := configMap("owned")
		owned.OwnerReferences = controlledBy("v1", "Node", "n1")
		api.Create(owned)
		c := newController(t, noting(log), reconcile.Options{})
		reconcile.ClusterOwns(c, newMaps(t, api), corev1.SchemeGroupVersion.WithKind("Node"))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.Equal(t, []string{"/n1"}, taken(log))
	})
}

func TestWatchesChanNamesWhatComesOutOfAChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		names, plain := make(chan string), make(chan reconcile.Key)
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			causes, _ := reconcile.Causes(ctx)
			log.note("%s: %v", key, causes)
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.WatchesChan(c, "names", names, func(name string) []reconcile.Key {
			if name == "bad" {
				panic("ouch")
			}
			return []reconcile.Key{{Name: name + "-1"}, {Name: name + "-2"}}
		})
		reconcile.WatchesChan(c, "keys", plain, func(k reconcile.Key) []reconcile.Key { return []reconcile.Key{k} })
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
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
