//go:build !client_go_0_35

package clientgo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/fakeapi"
)

type podAPI = fakeapi.Resource[*corev1.Pod, *corev1.PodList]

func newPodAPI() *podAPI {
	return fakeapi.New[*corev1.Pod](func() *corev1.PodList { return &corev1.PodList{} })
}

func listWatch(api *podAPI) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object,
			error) {
			return api.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := api.Watch(ctx, opts)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				if bookmark, ok := e.Object.(*metav1.PartialObjectMetadata); ok {
					e.Object = &corev1.Pod{ObjectMeta: bookmark.ObjectMeta} // client-go takes no others
				}
				return e, true
			}), nil
		},
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func move(api *podAPI, name, node string) {
	api.Update("default", name, func(p *corev1.Pod) { p.Spec.NodeName = node })
}

// recorder is a handler that writes down what it is told.
type recorder struct {
	delay time.Duration // of each call

	mu    sync.Mutex
	lines []string
}

func (r *recorder) OnAdd(obj any, initial bool) {
	line := "add " + obj.(*corev1.Pod).Name
	if initial {
		line += " initial"
	}
	r.write(line)
}

func (r *recorder) OnUpdate(before, after any) {
	line := "update " + after.(*corev1.Pod).Name
	if before.(*corev1.Pod).ResourceVersion == after.(*corev1.Pod).ResourceVersion {
		line += " again"
	}
	r.write(line)
}

func (r *recorder) OnDelete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		r.write(fmt.Sprintf("delete %s unknown, last %s", tombstone.Key, tombstone.Obj.(*corev1.Pod).Name))
		return
	}
	r.write("delete " + obj.(*corev1.Pod).Name)
}

func (r *recorder) write(line string) {
	time.Sleep(r.delay)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// told returns what was written and forgets it.
func (r *recorder) told() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

func TestLifeOfAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf := NewSharedIndexInformer(listWatch(api), &corev1.Pod{}, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		first := &recorder{}
		registration := add(t, inf, first)
		require.False(t, inf.HasSynced())
		require.False(t, registration.HasSynced())
		require.Empty(t, inf.LastSyncResourceVersion())
		require.Contains(t, inf.HasSyncedChecker().Name(), "*v1.Pod")
		require.Contains(t, registration.HasSyncedChecker().Name(), "recorder")

		stop := run(t, inf)
		require.True(t, inf.HasSynced())
		require.True(t, registration.HasSynced())
		require.True(t, cache.WaitFor(t.Context(), "", inf.HasSyncedChecker(), registration.HasSyncedChecker()))
		require.Equal(t, []string{"add a initial"}, first.told())
		require.Equal(t, "2", inf.LastSyncResourceVersion())
		require.False(t, inf.IsStopped())
		idle := inf.GetController()
		require.True(t, idle.HasSynced())
		require.Equal(t, "2", idle.LastSyncResourceVersion())
		idle.Run(nil) // returns
		idle.RunWithContext(t.Context())

		late := &recorder{}
		add(t, inf, late)
		api.Create(pod("b"))
		move(api, "a", "node-1")
		synctest.Wait() // or the cache never holds b
		api.Delete("default", "b")
		require.Equal(t, []string{"add b", "update a", "delete b"}, first.told())
		require.Equal(t, []string{"add a initial", "add b", "update a", "delete b"}, late.told())
		api.Bookmark()
		synctest.Wait()
		require.Equal(t, "6", inf.LastSyncResourceVersion())
		require.Equal(t, "6", inf.GetStore().LastStoreSyncResourceVersion())

		// The store, and an index that comes while it runs.
		item, ok, err := inf.GetStore().GetByKey("default/a")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "node-1", item.(*corev1.Pod).Spec.NodeName)
		require.NoError(t, inf.AddIndexers(
			cache.Indexers{"node": func(obj any) ([]string, error) {
				return []string{obj.(*corev1.Pod).Spec.NodeName},
					nil
			}}))
		require.Error(t, inf.AddIndexers(cache.Indexers{"node": nil}), "that name is taken")
		keys, err := inf.GetIndexer().IndexKeys("node", "node-1")
		require.NoError(t, err)
		require.Equal(t, []string{"default/a"}, keys)
		found, err := inf.GetIndexer().ByIndex(cache.NamespaceIndex, "default")
		require.NoError(t, err)
		require.Len(t, found, 1)

		inf.Run(nil) // a second time: warns and returns
		require.False(t, inf.IsStopped(), "the first one goes on")
		require.Error(t, inf.SetTransform(nil))
		require.Error(t, inf.SetWatchErrorHandler(nil))
		require.Error(t, inf.SetWatchErrorHandlerWithContext(nil))

		stop()
		require.True(t, inf.IsStopped())
		_, err = inf.AddEventHandler(first)
		require.ErrorContains(t, err, "stopped")
		require.ErrorContains(t, inf.AddIndexers(cache.Indexers{"late": nil}), "stopped")
		inf.Run(nil)
		require.Equal(t, []string{"default/a"}, inf.GetStore().ListKeys(), "it can still be read")
	})
}

func TestRunReturnsWhenEveryHandlerHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		add(t, inf, &recorder{delay: time.Hour})
		stop := run(t, inf)
		start := time.Now()
		stop()
		require.Equal(t, time.Hour, time.Since(start))
	})
}

func TestEveryUpdateIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		slow := &recorder{delay: time.Second}
		add(t, inf, slow)
		run(t, inf)
		const updates = 3000
		for i := range updates {
			move(api, "a", strconv.Itoa(i))
			synctest.Wait() // so that the store sees it, too
		}
		time.Sleep(2 * updates * time.Second)
		require.Len(t, slow.told(), 1+updates)
	})
}

func TestRelistsRepeatAndTellWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		for _, name := range []string{"gone", "recreated", "same"} {
			api.Create(pod(name))
		}
		var down atomic.Bool
		refuse := func(metav1.ListOptions) error {
			if down.Load() {
				return errPicky
			}
			return nil
		}
		api.BeforeList, api.BeforeWatch = refuse, refuse
		// relist lets something happen that no watch tells of.
		relist := func(happens func()) {
			down.Store(true)
			api.Cut()
			happens()
			api.Compact()
			down.Store(false)
			time.Sleep(time.Minute)
		}
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		h := &recorder{}
		add(t, inf, h)
		run(t, inf)
		h.told()
		relist(func() {})
		require.ElementsMatch(t, []string{"update gone again", "update recreated again", "update same again"}, h.told())
		relist(func() {
			api.Delete("default", "gone")
			api.Delete("default", "recreated")
			api.Create(pod("recreated"))
		})
		require.ElementsMatch(t, []string{
			"delete default/gone unknown, last gone", "delete default/recreated unknown, last recreated",
			"add recreated", "update same again",
		}, h.told())

		// In an informer that resyncs, only those handlers hear the same thing twice that want to.
		inf = NewSharedInformer(listWatch(api), &corev1.Pod{}, 10*time.Hour)
		resyncs, not := &recorder{}, &recorder{}
		add(t, inf, resyncs)
		add(t, inf, not, 0)
		run(t, inf)
		resyncs.told()
		not.told()
		relist(func() {})
		require.ElementsMatch(t, []string{"update recreated again", "update same again"}, resyncs.told())
		require.Empty(t, not.told())
	})
}

func TestResyncPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		type handler struct {
			*recorder
			period time.Duration // as it should be
		}
		never := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, time.Hour)
		handlers := []handler{
			{&recorder{}, time.Hour}, {&recorder{}, 0}, {&recorder{}, 20 * time.Minute}, {&recorder{}, 3 * time.Hour},
			{&recorder{}, 20 * time.Minute}, {&recorder{}, 0},
		}
		add(t, inf, handlers[0])
		add(t, inf, handlers[1], 0)
		add(t, inf, handlers[2], 20*time.Minute)
		add(t, inf, handlers[3], 3*time.Hour)
		run(t, inf)
		add(t, inf, handlers[4], time.Minute) // too late for less than the others wanted
		add(t, never, handlers[5], time.Minute)
		run(t, never)
		for _, h := range handlers {
			require.Equal(t, []string{"add a initial"}, h.told())
		}
		time.Sleep(12*time.Hour + time.Second)
		for i, h := range handlers {
			told := h.told()
			if h.period == 0 {
				require.Empty(t, told, "handler %d", i)
				continue
			}
			require.InDelta(t, 12*time.Hour/h.period, len(told), 1, "handler %d", i)
			require.Equal(t, "update a again", told[0])
		}

		// Nobody is told more often than once a second.
		quick := NewSharedInformer(listWatch(api), &corev1.Pod{}, time.Millisecond)
		h := &recorder{}
		add(t, quick, h)
		run(t, quick)
		time.Sleep(10*time.Second + time.Millisecond)
		require.InDelta(t, 1+10, len(h.told()), 1)
	})
}

func TestHandlersCanBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		inf := NewSharedIndexInformer(listWatch(api), &corev1.Pod{}, 0, nil)
		early, slow := &recorder{}, &recorder{delay: time.Hour}
		removed := add(t, inf, early)
		require.NoError(t, inf.RemoveEventHandler(removed))
		require.NoError(t, cache.ShutDownEventHandler(inf, removed), "and again, before it runs")
		slowly := add(t, inf, slow)
		var own cache.ResourceEventHandlerRegistration
		calls := 0
		own = add(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			calls++
			require.NoError(t, inf.RemoveEventHandler(own), "from inside: it does not wait")
		}})
		stop := run(t, inf)
		api.Create(pod("a"))
		api.Create(pod("b"))
		synctest.Wait()

		start := time.Now()
		require.NoError(t, inf.RemoveEventHandler(slowly))
		require.Zero(t, time.Since(start), "it does not wait")
		require.NoError(t, cache.ShutDownEventHandler(inf, slowly))
		require.Equal(t, time.Hour, time.Since(start), "this does")
		require.Equal(t, []string{"add a"}, slow.told())
		require.Empty(t, early.told())
		require.Equal(t, 1, calls)

		other := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		foreign := add(t, other, early)
		require.NoError(t, inf.RemoveEventHandler(foreign), "nothing happens")
		require.Error(t, inf.RemoveEventHandler(nil))
		last := add(t, inf, &recorder{})
		stop()
		require.NoError(t, cache.ShutDownEventHandler(inf, last), "after the end")
	})
}

func TestAHandlerIsAddedFromInsideOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		inner := &recorder{}
		add(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { add(t, inf, inner) }})
		run(t, inf)
		require.Equal(t, []string{"add a initial"}, inner.told())
	})
}

func TestTransform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		api.Create(pod("bad"))
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		var fails atomic.Bool
		fails.Store(true)
		require.NoError(t, inf.SetTransform(func(obj any) (any, error) {
			if p := obj.(*corev1.Pod); p.Name == "bad" && fails.Load() {
				return nil, errPicky
			}
			return obj.(*corev1.Pod).Name, nil // no object at all
		}))
		var told []any
		add(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { told = append(told, obj) }})
		run(t, inf)
		require.True(t, inf.HasSynced(), "one object that fails does not stop the rest")
		require.Equal(t, []any{"a"}, inf.GetStore().List())
		fails.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []any{"a", "bad"}, told)
		require.ElementsMatch(t, []string{"default/a", "default/bad"}, inf.GetStore().ListKeys())
	})
}

func TestObjectsOfAnotherTypeAreNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		run(t, inf)
		api.Inject(watch.Event{Type: watch.Added,
			Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "odd", ResourceVersion: "9"}}})
		synctest.Wait()
		require.Empty(t, inf.GetStore().List())

		anything := NewSharedInformer(listWatch(api), nil, 0)
		run(t, anything)
		api.Inject(watch.Event{Type: watch.Added,
			Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "odd", ResourceVersion: "10"}}})
		synctest.Wait()
		require.Len(t, anything.GetStore().List(), 1)
	})
}

// An unstructured example says by its kind which objects are taken.
func TestObjectsOfAnotherKindAreNotTaken(t *testing.T) {
	of := func(kind, name, version string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": kind,
			"metadata": map[string]any{"name": name, "resourceVersion": version}}}
	}
	synctest.Test(t, func(t *testing.T) {
		events := watch.NewFake()
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &unstructured.UnstructuredList{
					Object: map[string]any{"metadata": map[string]any{"resourceVersion": "1"}},
					Items:  []unstructured.Unstructured{*of("Website", "listed", "1"), *of("Backup", "odd", "1")}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				if opts.SendInitialEvents != nil {
					return nil, errNotStreamed
				}
				return events, nil
			},
		}
		inf := NewSharedInformer(lw, &unstructured.Unstructured{Object: of("Website", "", "").Object}, 0)
		require.Contains(t, add(t, inf, cache.ResourceEventHandlerFuncs{}).HasSyncedChecker().Name(),
			"example.com/v1, Kind=Website")
		run(t, inf)
		events.Add(of("Website", "watched", "2"))
		events.Add(of("Backup", "odd-too", "3"))
		synctest.Wait()
		require.ElementsMatch(t, []string{"listed", "watched"}, inf.GetStore().ListKeys())
	})
}

// A handler of another informer goes on.
func TestAnInformerRemovesItsOwnHandlersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		other := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		h := &recorder{}
		registration := add(t, inf, h)
		run(t, inf)
		require.NoError(t, other.RemoveEventHandler(registration))
		api.Create(pod("a"))
		require.Equal(t, []string{"add a"}, h.told())
		require.NoError(t, inf.RemoveEventHandler(registration))
		api.Create(pod("b"))
		require.Empty(t, h.told())
	})
}

// While the store waits, changes come in. Their versions are published in order: nothing is merged.
func TestTheStoreVersionNeverGoesBack(t *testing.T) {
	name, err := cache.NewInformerName("in order")
	require.NoError(t, err)
	defer name.Release()
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		for _, name := range []string{"a", "b", "c"} {
			api.Create(pod(name))
		}
		m := &metrics{}
		inf := NewSharedIndexInformerWithOptions(listWatch(api), &corev1.Pod{}, cache.SharedIndexInformerOptions{
			Identifier: name.WithResource(corev1.SchemeGroupVersion.WithResource("pods")), InformerMetricsProvider: m})
		run(t, inf)
		require.NoError(t, inf.AddIndexers(cache.Indexers{"slow": func(any) ([]string, error) {
			time.Sleep(time.Second)
			return nil, nil
		}}))
		for _, name := range []string{"c", "a", "b", "a"} { // the store is busy with the first one for a second
			move(api, name, "node-"+api.Objects()[0].ResourceVersion)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []float64{4, 5, 6, 7, 8}, m.version.moves)
	})
}

func TestWatchErrorHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.NoStreaming = true
		var lists, watches atomic.Bool
		unless := func(allowed *atomic.Bool) func(metav1.ListOptions) error {
			return func(metav1.ListOptions) error {
				if allowed.Load() {
					return nil
				}
				return errPicky
			}
		}
		api.BeforeList, api.BeforeWatch = unless(&lists), unless(&watches)
		watches.Store(true)
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		told := make(chan error, 1000)
		require.NoError(t, inf.SetWatchErrorHandler(func(r *cache.Reflector, err error) {
			if r.TypeDescription() == "*v1.Pod" {
				told <- err
			}
		}))
		stop := run(t, inf)
		err := <-told
		require.ErrorIs(t, err, errPicky)
		require.ErrorContains(t, err, "failed to list *v1.Pod")
		lists.Store(true)
		time.Sleep(time.Hour)
		require.True(t, inf.HasSynced())
		for len(told) > 0 {
			<-told
		}
		watches.Store(false)
		api.Cut()
		require.Equal(t, errPicky, <-told)
		stop()

		// A request that the end of the informer cuts off is no error.
		inf = NewSharedInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "pods"}, "watch")
			},
		}, &corev1.Pod{}, 0)
		cutOff := 0
		require.NoError(t, inf.SetWatchErrorHandler(func(*cache.Reflector, error) { cutOff++ }))
		run(t, inf)()
		require.Zero(t, cutOff)
	})
}

func TestAStoreCanBeFilledByHand(t *testing.T) {
	inf := NewSharedIndexInformer(nil, &corev1.Pod{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	require.NoError(t, inf.GetIndexer().Add(pod("a")))
	found, err := inf.GetIndexer().ByIndex(cache.NamespaceIndex, "default")
	require.NoError(t, err)
	require.Len(t, found, 1)
}

func TestAnInformerWithoutAListerWatcherNeverSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := NewSharedInformer(nil, &corev1.Pod{}, 0)
		var told []error
		require.NoError(t, inf.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector,
			err error) {
			told = append(told, err)
		}))
		run(t, inf)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.False(t, inf.HasSynced())
		require.NotEmpty(t, told)
		require.ErrorIs(t, told[0], errNoListerWatcher)
	})
}

func TestControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		names := func(obj any) (any, error) { return obj.(*corev1.Pod).Name, nil }
		var count atomic.Int64
		counts := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { count.Add(1) },
			UpdateFunc: func(_, _ any) { count.Add(1) }}
		byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		byName := cache.Indexers{"name": func(obj any) ([]string, error) { return []string{obj.(string)}, nil }}

		h := &recorder{delay: time.Second}
		store, controller := NewInformer(listWatch(api), &corev1.Pod{}, 0, h)
		run(t, controller)
		require.False(t, controller.HasSynced(), "the handler has not seen everything")
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, controller.HasSynced())
		<-controller.HasSyncedChecker().Done()
		require.Equal(t, []string{"add a initial"}, h.told())
		require.Equal(t, []string{"default/a"}, store.ListKeys())
		require.Equal(t, "2", controller.LastSyncResourceVersion())

		indexer, controller := NewIndexerInformer(listWatch(api), &corev1.Pod{}, 0, counts, byNamespace)
		run(t, controller)
		require.Equal(t, []string{"default"}, indexer.ListIndexFuncValues(cache.NamespaceIndex))
		store, controller = NewTransformingInformer(listWatch(api), &corev1.Pod{}, 0, counts, names)
		run(t, controller)
		require.Equal(t, []any{"a"}, store.List())
		indexer, controller = NewTransformingIndexerInformer(listWatch(api), &corev1.Pod{}, time.Minute, counts, byName,
			names)
		run(t, controller)
		found, err := indexer.ByIndex("name", "a")
		require.NoError(t, err)
		require.Equal(t, []any{"a"}, found)
		require.EqualValues(t, 3, count.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 4, count.Load(), "one of them resyncs")

		api = newPodAPI()
		var asked []int64
		api.BeforeWatch = func(opts metav1.ListOptions) error {
			asked = append(asked, *opts.TimeoutSeconds)
			return nil
		}
		_, controller = NewInformerWithOptions(cache.InformerOptions{ListerWatcher: listWatch(api),
			ObjectType: &corev1.Pod{}, Handler: h, MinWatchTimeout: time.Hour})
		run(t, controller)
		require.Len(t, asked, 1)
		require.GreaterOrEqual(t, asked[0], int64(3600))
	})
}

func TestAPanicIsSkippedWhereClientGoWouldSkipIt(t *testing.T) {
	defer func(really bool, handlers []func(context.Context, any)) {
		utilruntime.ReallyCrash, utilruntime.PanicHandlers = really, handlers
	}(utilruntime.ReallyCrash, utilruntime.PanicHandlers)
	var panics []any
	utilruntime.ReallyCrash = false
	utilruntime.PanicHandlers = []func(context.Context,
		any){func(_ context.Context, v any) { panics = append(panics, v) }}
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		api.Create(pod("b"))
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		var told []string
		r := add(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			if obj.(*corev1.Pod).Name == "a" {
				panic(errPicky)
			}
			told = append(told, obj.(*corev1.Pod).Name)
		}})
		run(t, inf)
		require.Equal(t, []any{errPicky}, panics)
		require.Equal(t, []string{"b"}, told)
		require.True(t, r.HasSynced())
	})
}

// By default it ends the process, so this test starts one.
func TestAPanicOfAHandlerCrashes(t *testing.T) {
	const variable = "THERMOSTAT_TEST_CRASH"
	if os.Getenv(variable) != "" {
		api := newPodAPI()
		api.Create(pod("a"))
		inf := NewSharedInformer(listWatch(api), &corev1.Pod{}, 0)
		add(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { panic("the handler is broken") }})
		inf.RunWithContext(t.Context())
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestAPanicOfAHandlerCrashes$")
	again.Env = append(slices.Clone(os.Environ()), variable+"=1")
	output, err := again.CombinedOutput()
	require.Error(t, err)
	require.NoError(t, ctx.Err())
	require.Contains(t, string(output), "panic: the handler is broken")
}

func TestAClientOfAListerWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf, err := informer.New[*corev1.Pod](NewClient(listWatch(api)), informer.Options[*corev1.Pod]{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- inf.Run(ctx) }()
		require.NoError(t, inf.WaitForSync(t.Context()))
		_, ok := inf.Get(informer.Key{Namespace: "default", Name: "a"})
		require.True(t, ok)
		cancel()
		require.NoError(t, <-done)
	})
}

// gauge is a metric of client-go's.
type gauge struct {
	value float64
	moves []float64 // each value, but for repetitions
}

func (g *gauge) Set(v float64) {
	if len(g.moves) == 0 || v != g.value {
		g.moves = append(g.moves, v)
	}
	g.value = v
}

func (*gauge) Inc()              {}
func (*gauge) Dec()              {}
func (*gauge) Observe(v float64) {}

type metrics struct{ version gauge }

func (m *metrics) NewQueuedItemMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return &gauge{}
}
func (m *metrics) NewProcessingLatencyMetric(cache.InformerNameAndResource) cache.HistogramMetric {
	return &gauge{}
}
func (m *metrics) NewStoreResourceVersionMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return &m.version
}

func TestTheStoreVersionIsPublished(t *testing.T) {
	name, err := cache.NewInformerName("published")
	require.NoError(t, err)
	defer name.Release()
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		m := &metrics{}
		inf := NewSharedIndexInformerWithOptions(listWatch(api), &corev1.Pod{}, cache.SharedIndexInformerOptions{
			Identifier: name.WithResource(corev1.SchemeGroupVersion.WithResource("pods")), InformerMetricsProvider: m,
			ObjectDescription: "some pods",
		})
		require.Contains(t, add(t, inf, &recorder{}).HasSyncedChecker().Name(), "some pods")
		stop := make(chan struct{})
		go inf.Run(stop)
		synctest.Wait()
		require.Equal(t, 2.0, m.version.value)
		move(api, "a", "node")
		synctest.Wait()
		require.Equal(t, 3.0, m.version.value)
		close(stop)
		synctest.Wait()
		require.True(t, inf.IsStopped())
	})
	synctest.Test(t, func(t *testing.T) {
		m := &metrics{}
		api := newPodAPI()
		api.Create(pod("a"))
		run(t, NewSharedIndexInformerWithOptions(listWatch(api), &corev1.Pod{},
			cache.SharedIndexInformerOptions{InformerMetricsProvider: m}))
		require.Zero(t, m.version.value, "it has no name under which that could be published")
	})
	require.Equal(t, 123456789012345.0, gauged("9123456789012345"))
	require.Zero(t, gauged("abc"))
}
