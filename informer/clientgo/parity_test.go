//go:build !client_go_0_35

package clientgo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"
)

// both are the two informers that are to do the same.
var both = map[string]constructor{
	"client-go": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
	},
	"ours": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
		return NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
	},
}

// withBoth plays a test before both of them, each in a bubble of its own.
func withBoth(t *testing.T, play func(t *testing.T, api *podAPI, inf cache.SharedIndexInformer)) {
	// client-go delays whoever reports errors, by a clock that does not know of bubbles.
	defer func(handlers []utilruntime.ErrorHandler) { utilruntime.ErrorHandlers = handlers }(utilruntime.ErrorHandlers)
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(context.Context, error, string, ...any) {}}
	for whose, construct := range both {
		t.Run(whose, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newPodAPI()
				play(t, api, construct(listWatch(api)))
			})
		})
	}
}

// relists returns a function that lets the watch break, and the server forget what happens meanwhile. It is to be
// called before the informer runs.
func relists(api *podAPI) func(happens func()) {
	var down atomic.Bool
	refuse := func(metav1.ListOptions) error {
		if down.Load() {
			return errPicky
		}
		return nil
	}
	api.BeforeList, api.BeforeWatch = refuse, refuse
	return func(happens func()) {
		down.Store(true)
		api.Cut()
		happens()
		api.Create(pod("meanwhile"))
		api.Delete("default", "meanwhile")
		api.Compact()
		down.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
	}
}

// Nothing is merged before the store, either, so code that lives in OnUpdate hears of an object that changes as soon as
// it exists.
func TestChangesAtOnceAreToldOneByOne(t *testing.T) {
	withBoth(t, func(t *testing.T, api *podAPI, inf cache.SharedIndexInformer) {
		early, late := &recorder{}, &recorder{}
		add(t, inf, early)
		run(t, inf)
		add(t, inf, late)
		var want []string
		for i := range 200 {
			name := string(rune('a'+i%26)) + string(rune('a'+i/26))
			api.Create(pod(name))
			move(api, name, "node-1")
			want = append(want, "add "+name, "update "+name)
			if i%2 == 0 {
				move(api, name, "node-2")
				api.Delete("default", name)
				want = append(want, "update "+name, "delete "+name)
			}
		}
		require.Equal(t, want, early.told())
		require.Equal(t, want, late.told())
	})
}

func TestWhatIsWrittenByHandIsUndoneByTheNextList(t *testing.T) {
	withBoth(t, func(t *testing.T, api *podAPI, inf cache.SharedIndexInformer) {
		node := func(name string) string {
			obj, ok, err := inf.GetStore().GetByKey("default/" + name)
			require.NoError(t, err)
			if !ok {
				return "none"
			}
			return obj.(*corev1.Pod).Spec.NodeName
		}
		relist := relists(api)
		api.Create(pod("a"))
		api.Create(pod("b"))
		store := inf.GetStore()
		wrong := pod("a")
		wrong.Spec.NodeName = "by hand"
		require.NoError(t, store.Add(pod("ghost")))
		require.NoError(t, store.Add(wrong))
		require.ElementsMatch(t, []string{"default/a", "default/ghost"}, store.ListKeys())
		run(t, inf)
		require.True(t, inf.HasSynced())
		require.ElementsMatch(t, []string{"default/a", "default/b"}, store.ListKeys())
		require.Empty(t, node("a"))

		require.NoError(t, store.Add(pod("ghost")))
		require.NoError(t, store.Update(wrong))
		require.NoError(t, store.Delete(pod("b")))
		api.Bookmark()
		synctest.Wait()
		require.Equal(t, []string{"by hand", "none", ""}, []string{node("a"), node("b"), node("ghost")}, "until then")
		relist(func() {})
		require.ElementsMatch(t, []string{"default/a", "default/b"}, store.ListKeys())
		require.Empty(t, node("a"))

		require.NoError(t, store.Replace([]any{pod("ghost"), wrong}, "7"))
		require.ElementsMatch(t, []string{"default/a", "default/ghost"}, store.ListKeys())
		relist(func() {})
		require.ElementsMatch(t, []string{"default/a", "default/b"}, store.ListKeys())
		require.Empty(t, node("a"))

		require.Nil(t, store.(cache.TransactionStore).Transaction(
			cache.Transaction{Type: cache.TransactionTypeAdd, Object: pod("ghost")},
			cache.Transaction{Type: cache.TransactionTypeDelete, Object: pod("a")},
		))
		move(api, "a", "node") // what the server tells meanwhile is right
		synctest.Wait()
		require.Equal(t, "node", node("a"))
		require.Empty(t, node("ghost"))
		relist(func() {})
		require.ElementsMatch(t, []string{"default/a", "default/b"}, store.ListKeys())
	})
}

// An object is found under the name that the transform function has given it.
func TestATransformThatRenames(t *testing.T) {
	withBoth(t, func(t *testing.T, api *podAPI, inf cache.SharedIndexInformer) {
		require.NoError(t, inf.SetTransform(func(obj any) (any, error) {
			p := obj.(*corev1.Pod).DeepCopy()
			p.Name = "my-" + strings.TrimPrefix(p.Name, "my-") // client-go calls it twice
			return p, nil
		}))
		relist := relists(api)
		api.Create(pod("a"))
		api.Create(pod("b"))
		h := &recorder{}
		add(t, inf, h)
		run(t, inf)
		h.told()
		keys := inf.GetStore().ListKeys
		require.ElementsMatch(t, []string{"default/my-a", "default/my-b"}, keys())
		api.Delete("default", "a")
		move(api, "b", "node")
		require.ElementsMatch(t, []string{"delete my-a", "update my-b"}, h.told())
		require.Equal(t, []string{"default/my-b"}, keys())
		require.NoError(t, inf.GetStore().Delete(
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "my-b"}}))
		require.NoError(t, inf.GetStore().Add(pod("b")))
		relist(func() {})
		require.Equal(t, []string{"default/my-b"}, keys())
	})
}

// Two objects may change their names.
func TestATransformThatSwapsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		require.NoError(t, inf.SetTransform(func(obj any) (any, error) {
			p := obj.(*corev1.Pod).DeepCopy()
			p.Name = map[string]string{"a": "b", "b": "a"}[p.Name]
			return p, nil
		}))
		run(t, inf)
		api.Create(pod("a"))
		synctest.Wait()
		api.Create(pod("b"))
		synctest.Wait()
		require.ElementsMatch(t, []string{"default/a", "default/b"}, inf.GetStore().ListKeys())
	})
}

// Errors after which something else is tried, or the same in a while, are not reported.
func TestWhatIsTriedAgainIsNotReported(t *testing.T) {
	tooLarge := apierrors.NewTimeoutError("too large", 1)
	tooLarge.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge}}}
	other := errors.New("other")
	var fails error
	var reported int
	newReporting := func() *reporting {
		reported = 0
		s := newSharedInformer(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (kruntime.Object, error) {
				return nil, fails
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, fails
			},
		}, &corev1.Pod{}, cache.SharedIndexInformerOptions{})
		s.watchErrors = func(context.Context, *cache.Reflector, error) { reported++ }
		return &reporting{Client: NewClient(s.lw), informer: s}
	}
	for name, test := range map[string]struct {
		err    error
		page   string
		counts []int // after each of two lists
	}{
		"expired":                  {apierrors.NewResourceExpired("old"), "", []int{0, 1}},
		"expired, at a later page": {apierrors.NewResourceExpired("old"), "next", []int{0, 0}},
		"gone": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusGone,
			Reason: metav1.StatusReasonGone}}, "", []int{0, 1}},
		"too large": {tooLarge, "", []int{0, 1}},
		"any other": {other, "", []int{1, 2}},
	} {
		c := newReporting()
		fails = test.err
		for _, want := range test.counts {
			_, _ = c.List(t.Context(), metav1.ListOptions{Continue: test.page})
			require.Equal(t, want, reported, name)
		}
	}
	for err, want := range map[error]int{syscall.ECONNREFUSED: 0, apierrors.NewTooManyRequests("later", 1): 0,
		other: 1} {
		c := newReporting()
		fails = err
		_, _ = c.Watch(t.Context(), metav1.ListOptions{})
		require.Equal(t, want, reported, "%v", err)
	}
}

// The name may depend on the state. client-go would keep the object under both.
func TestATransformThatRenamesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		relist := relists(api)
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		require.NoError(t, inf.SetTransform(func(obj any) (any, error) {
			p := obj.(*corev1.Pod).DeepCopy()
			p.Name += p.Spec.NodeName
			return p, nil
		}))
		h := &recorder{}
		add(t, inf, h)
		run(t, inf)
		api.Create(pod("a"))
		move(api, "a", "-1")
		move(api, "a", "-2")
		synctest.Wait()
		require.Equal(t, []string{"default/a-2"}, inf.GetStore().ListKeys())
		relist(func() { api.Delete("default", "a") })
		require.Equal(t, []string{"add a", "update a-1", "update a-2", "delete default/a-2 unknown, last a-2"},
			h.told())
		require.Empty(t, inf.GetStore().ListKeys())
	})
}

// What a WatchErrorHandler is told of, request by request.
func TestWhatIsReported(t *testing.T) {
	expired := apierrors.NewResourceExpired("gone")
	streams, fails := true, errors.New("it fails")
	streamed := metav1.ListOptions{SendInitialEvents: &streams}
	for name, script := range map[string]struct {
		play func(list, watch func(metav1.ListOptions, error))
		want []error
	}{
		"a list": {func(list, _ func(metav1.ListOptions, error)) { list(metav1.ListOptions{}, fails) }, []error{fails}},
		"a streamed list, for which a plain one stands in": {func(list, watch func(metav1.ListOptions, error)) {
			watch(streamed, fails)
			list(metav1.ListOptions{}, nil)
			watch(metav1.ListOptions{}, nil)
		}, nil},
		"a streamed list, and the plain one fails, too": {func(list, watch func(metav1.ListOptions, error)) {
			watch(streamed, io.EOF)
			list(metav1.ListOptions{}, fails)
			watch(streamed, nil)
		}, []error{fails}},
		"a streamed list, for which nothing stands in": {func(_, watch func(metav1.ListOptions, error)) {
			watch(streamed, fails)
			watch(streamed, nil)
			watch(streamed, nil)
		}, []error{fails}},
		"an expired list, which is tried again": {func(list, _ func(metav1.ListOptions, error)) {
			list(metav1.ListOptions{}, expired)
			list(metav1.ListOptions{}, nil)
			list(metav1.ListOptions{}, expired)
			list(metav1.ListOptions{}, fails)
			list(metav1.ListOptions{}, expired)
			list(metav1.ListOptions{}, nil)
		}, []error{fails}},
		"a list that stays expired": {func(list, _ func(metav1.ListOptions, error)) {
			for range 4 {
				list(metav1.ListOptions{}, expired)
			}
		}, []error{expired, expired}},
		"a page that has expired": {func(list, _ func(metav1.ListOptions, error)) {
			list(metav1.ListOptions{}, nil)
			list(metav1.ListOptions{Continue: "on"}, expired)
			list(metav1.ListOptions{}, nil)
		}, nil},
		"a watch": {func(_, watch func(metav1.ListOptions, error)) {
			watch(metav1.ListOptions{}, fails)
			watch(metav1.ListOptions{}, apierrors.NewTooManyRequests("later", 1))
		}, []error{fails}},
	} {
		t.Run(name, func(t *testing.T) {
			var answer error
			lw := &cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (kruntime.Object, error) {
					return &corev1.PodList{}, answer
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					return watch.NewFake(), answer
				},
			}
			var told []error
			s := newSharedInformer(lw, &corev1.Pod{}, cache.SharedIndexInformerOptions{})
			require.NoError(t, s.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector,
				err error) {
				if inner := errors.Unwrap(err); inner != nil {
					err = inner
				}
				told = append(told, err)
			}))
			require.True(t, s.start())
			c := &reporting{Client: NewClient(lw), informer: s}
			script.play(func(opts metav1.ListOptions, err error) {
				answer = err
				_, got := c.List(t.Context(), opts)
				require.Equal(t, err, got)
			}, func(opts metav1.ListOptions, err error) {
				answer = err
				_, got := c.Watch(t.Context(), opts)
				require.Equal(t, err, got)
			})
			require.Equal(t, script.want, told)
		})
	}
}

func TestATransformThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		api.Create(pod("bad"))
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		var well atomic.Bool
		require.NoError(t, inf.SetTransform(func(obj any) (any, error) {
			if obj.(*corev1.Pod).Name == "bad" && !well.Load() {
				panic(errPicky)
			}
			return obj, nil
		}))
		run(t, inf)
		require.True(t, inf.HasSynced())
		require.Equal(t, []string{"default/a"}, inf.GetStore().ListKeys())
		api.Create(pod("b"))
		synctest.Wait()
		require.ElementsMatch(t, []string{"default/a", "default/b"}, inf.GetStore().ListKeys())
		well.Store(true)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Len(t, inf.GetStore().ListKeys(), 3)
	})
}

// What a handler exits on is lost on it, as a panic would be if it did not end the process, and the rest is not.
func TestAHandlerThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		h := &recorder{}
		registration := add(t, inf, cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { runtime.Goexit() },
			UpdateFunc: h.OnUpdate,
			DeleteFunc: func(obj any) { h.OnDelete(obj); runtime.Goexit() },
		})
		stop := run(t, inf)
		require.True(t, registration.HasSynced())
		move(api, "a", "1")
		api.Create(pod("b"))
		move(api, "b", "1")
		api.Delete("default", "b")
		move(api, "a", "2")
		require.Equal(t, []string{"update a", "update b", "delete b", "update a"}, h.told())
		stop()
	})
}

func TestWhoComesTooLateIsToldTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		add(t, inf, &recorder{delay: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			inf.RunWithContext(ctx)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		_, ending := inf.AddEventHandler(&recorder{})
		require.ErrorContains(t, ending, "stopped")
		<-ended
		_, after := inf.AddEventHandler(&recorder{})
		require.EqualError(t, after, ending.Error())
	})
}

// A list that has only begun undoes nothing: what was received before it may still be on its way into the store then.
func TestWhatIsWrittenByHandStaysUntilTheListIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.NoStreaming = true
		api.Create(pod("a"))
		indexed, listed := make(chan struct{}), make(chan struct{})
		inf := NewSharedIndexInformer(listWatch(api), &corev1.Pod{}, 0, cache.Indexers{
			"slow": func(obj any) ([]string, error) {
				if obj.(*corev1.Pod).Spec.NodeName == "slow" {
					<-indexed
				}
				return nil, nil
			},
		})
		run(t, inf)
		require.NoError(t, inf.GetStore().Add(pod("by hand")))
		move(api, "a", "slow")
		synctest.Wait()
		api.Bookmark()
		synctest.Wait()
		api.BeforeList = func(metav1.ListOptions) error { <-listed; return nil }
		api.Cut()
		api.Compact()
		time.Sleep(time.Minute)
		close(indexed)
		synctest.Wait()
		require.Contains(t, inf.GetStore().ListKeys(), "default/by hand")
		close(listed)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"default/a"}, inf.GetStore().ListKeys())
	})
}

// streams reports whether an informer, ours or client-go's, asks for its list as a stream.
func streams(t *testing.T, api *podAPI, inf cache.SharedIndexInformer) bool {
	var streamed atomic.Bool
	api.BeforeWatch = func(opts metav1.ListOptions) error {
		if opts.SendInitialEvents != nil {
			streamed.Store(true)
		}
		return nil
	}
	api.Create(pod("a"))
	run(t, inf)
	require.True(t, inf.HasSynced())
	return streamed.Load()
}

// To give up a list that an overloaded server is slow to begin, and to ask again, makes it later still.
func TestASlowServerIsNotAskedAgain(t *testing.T) {
	withBoth(t, func(t *testing.T, api *podAPI, inf cache.SharedIndexInformer) {
		var requests atomic.Int64
		count := func(metav1.ListOptions) error { requests.Add(1); return nil }
		api.BeforeWatch, api.BeforeList = count, count
		api.Create(pod("a"))
		api.Hold()
		run(t, inf)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.False(t, inf.HasSynced())
		api.Release()
		synctest.Wait()
		require.True(t, inf.HasSynced())
		require.Equal(t, int64(1), requests.Load())
	})
}

func TestTheFeatureGateIsAskedWhenTheInformerStarts(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		withBoth(t, func(t *testing.T, api *podAPI, inf cache.SharedIndexInformer) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, enabled)
			require.Equal(t, enabled, streams(t, api, inf))
		})
	}
}

// The variable is read once, so this test starts a process for each of its values.
func TestTheFeatureGateIsAVariable(t *testing.T) {
	const variable, want = "KUBE_FEATURE_WatchListClient", "THERMOSTAT_TEST_STREAMS"
	if value := os.Getenv(want); value != "" {
		withBoth(t, func(t *testing.T, api *podAPI, inf cache.SharedIndexInformer) {
			require.Equal(t, value == "true", streams(t, api, inf))
		})
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, value := range []string{"true", "false"} {
		again := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestTheFeatureGateIsAVariable$")
		again.Env = append(slices.Clone(os.Environ()), variable+"="+value, want+"="+value)
		output, err := again.CombinedOutput()
		require.NoError(t, err, string(output))
	}
}

// If an index function panics, the object is in the store, and found in the other indexes.
func TestAnIndexFunctionThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		node := func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil }
		bad := func(obj any) ([]string, error) {
			if obj.(*corev1.Pod).Spec.NodeName == "bad" {
				panic(errPicky)
			}
			return node(obj)
		}
		indexers := cache.Indexers{"node": node, "bad": bad, "bad, too": bad, "node again": node}
		inf := NewSharedIndexInformer(listWatch(api), &corev1.Pod{}, 0, indexers)
		h := &recorder{}
		add(t, inf, h)
		found := func(index, value string) []string {
			keys, err := inf.GetIndexer().IndexKeys(index, value)
			require.NoError(t, err)
			return keys
		}
		api.Create(pod("a"))
		api.Create(pod("b"))
		move(api, "a", "bad")
		run(t, inf)
		move(api, "b", "1")
		require.ElementsMatch(t, []string{"add a initial", "add b initial", "update b"}, h.told())
		require.Equal(t, []string{"default/a"}, found("node", "bad"))
		require.Equal(t, []string{"default/a"}, found("node again", "bad"))
		require.Empty(t, found("bad", "bad"))
		require.Empty(t, found("bad, too", "bad"))
		for index := range indexers {
			require.Equal(t, []string{"default/b"}, found(index, "1"), index)
			require.Empty(t, found(index, ""), index)
		}
		byHand := pod("c")
		byHand.Spec.NodeName = "bad"
		require.Error(t, inf.GetStore().Add(byHand))
		move(api, "a", "1")
		synctest.Wait()
		require.Equal(t, []string{"default/c"}, found("node", "bad"))
		require.Equal(t, []string{"default/a", "default/b"}, found("bad", "1"))
		require.Error(t, inf.GetStore().Replace([]any{byHand}, "9"))
		require.Equal(t, []string{"default/c"}, found("node again", "bad"))
		require.Equal(t, []string{"default/c"}, inf.GetStore().ListKeys())
	})
}
