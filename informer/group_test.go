package informer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

var secretsResource = corev1.SchemeGroupVersion.WithResource("secrets")

func dataKeys(m *corev1.ConfigMap, add func(string)) {
	for key := range m.Data {
		add(key)
	}
}

// TestGroup makes a cache of each kind, and runs what the group says that there is.
func TestGroup(t *testing.T) { synctest.Test(t, testGroup) }

func testGroup(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	group := informer.NewGroup(server.Config())
	maps := informer.CachedIn(group, configMaps, informer.Options[*corev1.ConfigMap]{Name: "maps"})
	byKey := informer.IndexIn(group, maps.Cache, dataKeys)
	secrets := informer.ReferencedIn(group, secretsResource, informer.Options[*corev1.Secret]{Name: "named"})
	require.NoError(t, group.Err())
	named := informer.Key{Namespace: "default", Name: "s"}
	secrets.NamedBy(func(key informer.Key) bool { return key == named })

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- maps.Cache.Run(ctx) }()
	go func() { ended <- secrets.Run(ctx) }()
	require.Equal(t, []informer.AnyInformer{maps.Cache, secrets.SharedIndexInformer}, group.Informers())
	_, err := maps.In("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Data: map[string]string{"x": "y"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	secrets.Recheck(named)
	synctest.Wait()
	require.Equal(t, []informer.Key{{Namespace: "default", Name: "a"}}, byKey.Keys("x"))
	_, exists, err := secrets.Get(named)
	require.NoError(t, err)
	require.False(t, exists)
	stop()
	for range 2 {
		require.NoError(t, <-ended)
	}
}

// TestAGroupNamesAllThatIsWrong, once each: what could not be made is used until the error is asked for.
func TestAGroupNamesAllThatIsWrong(t *testing.T) {
	group := informer.NewGroup(&rest.Config{Host: "127.0.0.1"})
	wrong := informer.CachedIn(group, pods, informer.Options[*corev1.ConfigMap]{})
	require.Nil(t, informer.IndexIn(group, wrong.Cache, dataKeys))
	require.Equal(t, "/v1, Kind=", wrong.GroupVersionKind().String())
	require.Nil(t, wrong.Cache)
	require.Nil(t, informer.ReferencedIn(group, corev1.SchemeGroupVersion.WithResource("Secrets"),
		informer.Options[*corev1.Secret]{}))
	require.Nil(t, informer.ReferencedIn(group, secretsResource, informer.Options[*corev1.Secret]{StopGrace: -1}))
	right := informer.CachedIn(group, configMaps, informer.Options[*corev1.ConfigMap]{})
	informer.IndexIn[string](group, right.Cache, nil)
	require.Len(t, group.Informers(), 1)
	err := group.Err()
	for _, want := range []string{"NewResource of pods: objects of type *v1.ConfigMap are configmaps, not pods",
		"NewResource of Secrets: ", "informer *v1.Secret: Options.StopGrace is -1ns",
		"index of *v1.ConfigMap: informer: AddIndex: the function is nil"} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 4)

	none := informer.NewGroup(nil)
	informer.CachedIn(none, configMaps, informer.Options[*corev1.ConfigMap]{})
	require.ErrorContains(t, none.Err(), "NewResource of configmaps: ")
	empty := informer.NewGroup(&rest.Config{Host: "127.0.0.1"})
	informer.IndexIn(empty, nil, dataKeys)
	require.ErrorContains(t, empty.Err(), "index of *v1.ConfigMap: ")
}
