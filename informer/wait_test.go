package informer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestWaitUntilTheCacheShowsIt(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Name: "pods"}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		there := func(name string) func() bool {
			return func() bool { _, ok := inf.Get(named(name)); return ok }
		}
		require.NoError(t, inf.WaitUntil(t.Context(), there("a")), "the first list shows it")
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		require.NoError(t, inf.WaitUntil(ended, there("a")), "what is there is there, whatever the context")
		err := inf.WaitUntil(ended, there("c"))
		require.EqualError(t, err, "informer pods: waiting for the cache: enough")

		p.Hold()
		waiting := make(chan error, 3)
		for range 2 {
			go func() { waiting <- inf.WaitUntil(t.Context(), there("c")) }()
		}
		go func() { waiting <- inf.WaitUntil(t.Context(), func() bool { return !there("b")() }) }()
		p.Create(pod("c"))
		p.Delete("default", "b")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, waiting)
		p.Release()
		for range 3 {
			require.NoError(t, <-waiting)
		}
		_, err = inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{})
		require.NoError(t, err)
		require.LessOrEqual(t, len(inf.writer.listeners), 2, "nobody else listens any more")
	})
}

// What has not been listed yet is not gone.
func TestWaitUntilWaitsForTheFirstList(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Name: "pods"}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		p.Hold()
		run(t, inf)
		waiting := make(chan error, 1)
		go func() {
			waiting <- inf.WaitUntil(t.Context(), func() bool { _, ok := inf.Get(named("b")); return !ok })
		}()
		synctest.Wait()
		require.Empty(t, waiting, "nothing has been listed")
		p.Release()
		synctest.Wait()
		require.Empty(t, waiting, "it has been listed")
		p.Delete("default", "b")
		require.NoError(t, <-waiting)
	})
}

func TestWaitUntilEndsWithTheInformer(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waiting := make(chan error, 1)
		go func() { waiting <- inf.WaitUntil(t.Context(), func() bool { return false }) }()
		require.NoError(t, inf.Run(ctx))
		require.ErrorIs(t, <-waiting, ErrStopped)
		require.ErrorIs(t, inf.WaitUntil(t.Context(), func() bool { return true }), ErrStopped)
	})
}

// An inline handler that does not return keeps the writer, but no caller of WaitUntil.
func TestWaitUntilDoesNotWaitForAStuckHandler(t *testing.T) {
	options := Options[*corev1.Pod]{StopGrace: time.Second}
	bubble(t, options, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		release := make(chan struct{})
		_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Key.Name == "c" {
				<-release
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- inf.Run(ctx) }()
		synced(t, inf)
		waiting := make(chan error, 1)
		go func() { waiting <- inf.WaitUntil(t.Context(), func() bool { return false }) }()
		synctest.Wait()
		p.Create(pod("c"))
		synctest.Wait()

		began := time.Now()
		short, cancelShort := context.WithTimeout(t.Context(), time.Minute)
		defer cancelShort()
		require.ErrorIs(t, inf.WaitUntil(short, func() bool { return false }), context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, inf.WaitUntil(short, func() bool { return inf.Len() == 3 }), "it is there all the same")

		cancel()
		require.ErrorIs(t, <-ended, ErrStuck)
		require.ErrorIs(t, <-waiting, ErrStopped)
		close(release)
	})
}

// Nothing tells the cache of them that the fakes of client-go cannot stream a list: they say so themselves, or are
// known by their package. What they write has no version, and is waited for all the same.
func TestTheFakesOfClientGoAreKnown(t *testing.T) {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	typed := fake.NewClientset(pod("a"))
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme.Scheme,
		map[schema.GroupVersionResource]string{pods: "PodList"}, pod("a"))
	metadataScheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(metadataScheme))
	metadata := metadatafake.NewSimpleMetadataClient(metadataScheme, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	t.Run("typed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fakeIsKnown[*corev1.Pod](t, typed.CoreV1().Pods("default"), typed)
		})
	})
	t.Run("dynamic", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fakeIsKnown[*unstructured.Unstructured](t, dynamic.Resource(pods).Namespace("default"), dynamic)
		})
	})
	t.Run("metadata", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fakeIsKnown[*metav1.PartialObjectMetadata](t, metadata.Resource(pods).Namespace("default"),
				metadata)
		})
	})
}

type fakeClientset interface {
	Tracker() clienttesting.ObjectTracker
	Actions() []clienttesting.Action
}

func fakeIsKnown[T Object, L runtime.Object](t *testing.T, client Client[L], clientset fakeClientset) {
	inf, err := New[T](client, Options[T]{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- inf.Run(ctx) }()
	require.NoError(t, inf.WaitForSync(t.Context()))
	synctest.Wait() // a fake tells its watches of nothing that was before them
	require.NoError(t, clientset.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", "a"))
	require.NoError(t, inf.WaitUntil(t.Context(), func() bool { return inf.Len() == 0 }))
	watches := 0
	for _, a := range clientset.Actions() {
		if w, ok := a.(clienttesting.WatchActionImpl); ok {
			watches++
			require.Nil(t, w.ListOptions.SendInitialEvents)
		}
	}
	require.Equal(t, 1, watches)
	require.Equal(t, 1, inf.Health().Lists)
	cancel()
	require.NoError(t, <-ended)
}
