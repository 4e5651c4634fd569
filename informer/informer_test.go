package informer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/fakeapi"
)

// theLane is the only one of an informer of one client.
func theListWatch[T any](inf *SharedIndexInformer[T]) *listWatch[T] {
	return inf.followed.Load().listWatches[0]
}

type podAPI = fakeapi.Resource[*corev1.Pod, *corev1.PodList]

func newPodAPI() *podAPI {
	return fakeapi.New[*corev1.Pod](func() *corev1.PodList { return &corev1.PodList{} })
}

func pod(name string, labels ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for _, l := range labels {
		metav1.SetMetaDataLabel(&p.ObjectMeta, l, "")
	}
	return p
}

// start runs an informer for the rest of the test.
func start(t *testing.T, api *podAPI, opts Options[*corev1.Pod]) *SharedIndexInformer[*corev1.Pod] {
	t.Helper()
	inf, err := New[*corev1.Pod](api, opts)
	require.NoError(t, err)
	run(t, inf)
	return inf
}

func run[T any](t *testing.T, inf *SharedIndexInformer[T]) {
	runOn(t, inf, klog.Logger{}) // a silent one
}

func runOn[T any](t *testing.T, inf *SharedIndexInformer[T], log klog.Logger) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), log))
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	t.Cleanup(func() {
		virtual.record(t)
		cancel()
		require.NoError(t, <-done)
	})
}

// names returns the sorted names of what the informer holds.
func names(inf *SharedIndexInformer[*corev1.Pod]) []string {
	var ns []string
	for p := range inf.All() {
		ns = append(ns, p.Name)
	}
	slices.Sort(ns)
	return ns
}

func TestFollowsTheServer(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming=%t", streaming), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newPodAPI()
				api.Create(pod("a"))
				api.Create(pod("b"))
				inf := start(t, api, Options[*corev1.Pod]{DisableWatchList: !streaming, PageSize: 1})
				synced(t, inf)
				require.Equal(t, []string{"a", "b"}, names(inf))

				api.Create(pod("c"))
				api.Delete("default", "a")
				api.Update("default", "b", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
				synctest.Wait()
				require.Equal(t, []string{"b", "c"}, names(inf))
				b, ok := inf.Get(Key{Namespace: "default", Name: "b"})
				require.True(t, ok)
				require.Equal(t, corev1.PodRunning, b.Status.Phase)
				require.Equal(t, b.ResourceVersion, inf.ResourceVersion(metav1.NamespaceAll))
				require.Equal(t, Live, inf.Health().State)
			})
		})
	}
}

func TestExpiredWatchIsFollowedByARelistThatFindsWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("stays"))
		api.Create(pod("goes"))
		inf := start(t, api, Options[*corev1.Pod]{})
		var seen []string
		_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			seen = append(seen, fmt.Sprintf("%s %s initial=%t unknown=%t", e.Type, e.Key.Name, e.Initial,
				e.FinalStateUnknown))
		}, HandlerOptions{})
		require.NoError(t, err)
		synctest.Wait()
		slices.Sort(seen)
		require.Equal(t, []string{"Added goes initial=true unknown=false", "Added stays initial=true unknown=false"},
			seen)

		seen = nil
		api.Cut()
		api.Delete("default", "goes")
		api.Compact()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"Deleted goes initial=false unknown=true"}, seen,
			"what has not changed is not told again")
		require.Equal(t, 2, inf.Health().Lists)
	})
}

// synced waits for the first list, but not for ever: in virtual time that would be an endless loop of tries.
func synced[T any](t *testing.T, inf *SharedIndexInformer[T]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, inf.WaitForSync(ctx))
}
