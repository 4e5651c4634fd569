package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// learning is a fake API that does for an informer what the transport does: it lets the Manager learn what the informer
// asks for.
type learning struct{ *mapAPI }

func (l learning) List(ctx context.Context, opts metav1.ListOptions) (*corev1.ConfigMapList, error) {
	l.learn(ctx)
	return l.mapAPI.List(ctx, opts)
}

func (l learning) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	l.learn(ctx)
	return l.mapAPI.Watch(ctx, opts)
}

func (learning) learn(ctx context.Context) { ask(ctx, "/api/v1/configmaps") }

// ask makes a request for a path that passes TrackWrites and nothing else.
func ask(ctx context.Context, path string) {
	req := (&http.Request{URL: &url.URL{Scheme: "https", Host: "server", Path: path}}).WithContext(ctx)
	_, err := reconcile.TrackWrites(tripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})).RoundTrip(req)
	if err != nil {
		panic(err)
	}
}

// household is a controller that wants one child and believes its cache, and the API that its watch can be held back
// from.
type household struct {
	api        learning
	controller *reconcile.Controller
	runs       atomic.Int32 // of the parent's key
	created    atomic.Int32 // children, ever
	tracked    bool         // whether writes are reported
	unwanted   atomic.Bool  // the parent wants no child now
	always     atomic.Bool  // it wants one more, whatever it has
	noLists    atomic.Bool  // whole lists fail; the server still answers when it is asked for one object
	noWatches  atomic.Bool
	children   *informer.SharedIndexInformer[*corev1.ConfigMap]

	// The next creation is not answered; and it does not happen, either.
	answerLost, neverHappens atomic.Bool

	mu     sync.Mutex
	waited []time.Duration // guarded by mu
}

// The household listens to its controller.
func (f *household) Controller(string, func() status.Stats) reconcile.Recorder { return f }
func (*household) Waited(workqueue.Priority, time.Duration)                    {}
func (*household) Worked(workqueue.Priority, time.Duration)                    {}
func (*household) Reconciled(string, time.Duration)                            {}
func (f *household) Parked(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waited = append(f.waited, d)
}

func (f *household) parked() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waited
}

var parent = reconcile.Key{Namespace: "default", Name: "parent"}

func newHousehold(t *testing.T, tracked bool) *household {
	f := &household{api: learning{newMapAPI()}, tracked: tracked}
	f.api.BeforeList = func(opts metav1.ListOptions) error {
		if f.noLists.Load() && opts.Limit > 0 {
			return errors.New("no lists today")
		}
		return nil
	}
	f.api.BeforeWatch = func(metav1.ListOptions) error {
		if f.noWatches.Load() {
			return errors.New("no watches today")
		}
		return nil
	}
	children, err := informer.New[*corev1.ConfigMap](f.api, informer.Options[*corev1.ConfigMap]{Name: "children"})
	require.NoError(t, err)
	f.children = children
	f.controller = newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		if key != parent {
			return reconcile.Result{}, nil
		}
		f.runs.Add(1)
		has := children.Len() > 0
		switch {
		case f.neverHappens.Load():
			ctx.Value(writes.WriterKey{}).(*writes.Writer).Debtor.LostAnswer(klog.FromContext(ctx),
				writes.Target{Host: "server", Resource: "configmaps", Namespace: "default"})
		case !has && !f.unwanted.Load() || f.always.Load():
			child := f.api.Create(configMap(fmt.Sprintf("child-%d", f.created.Add(1))))
			if f.answerLost.Load() {
				ctx.Value(writes.WriterKey{}).(*writes.Writer).Debtor.LostAnswer(klog.FromContext(ctx),
					writes.Target{Host: "server", Resource: "configmaps", Namespace: "default"})
				break
			}
			f.wrote(ctx, child, false)
		case has && f.unwanted.Load():
			for child := range children.All() {
				f.api.Delete(child.Namespace, child.Name)
				f.wrote(ctx, child, true)
			}
		}
		return reconcile.Result{}, nil
	}, reconcile.Options{Metrics: f})
	reconcile.For(f.controller, children)
	start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{f.controller}})
	synctest.Wait()
	return f
}

// wrote reports a write to the run of ctx, as TrackWrites does.
func (f *household) wrote(ctx context.Context, m *corev1.ConfigMap, deleted bool) {
	if f.tracked {
		method, status := http.MethodPost, 201
		to := writes.Target{Host: "server", Resource: "configmaps"}
		if deleted {
			method, status, to.Name = http.MethodDelete, 200, m.Name
		}
		reportIn(ctx, writes.NewWrite(to, method, status, writes.Metadata{ObjectMeta: m.ObjectMeta}))
	}
}

// look brings the parent's key up and lets everybody do what they can.
func (f *household) look() {
	f.controller.Enqueue(parent)
	synctest.Wait()
}

// TestAKeyWaitsForTheCreationThatItMade is the classic bug: a controller creates a child, is called again before its
// cache has it, and creates another.
func TestAKeyWaitsForTheCreationThatItMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHousehold(t, true)
		f.api.Hold()
		f.look()
		require.EqualValues(t, 1, f.created.Load())
		f.look()
		f.look()
		require.EqualValues(t, 1, f.runs.Load(), "called on a cache that is older than its own write")

		f.api.Release()
		synctest.Wait()
		require.EqualValues(t, 2, f.runs.Load(), "woken by the event, without being added again")
		require.EqualValues(t, 1, f.created.Load())
		require.False(t, f.controller.Owes())
	})
	synctest.Test(t, func(t *testing.T) {
		f := newHousehold(t, false)
		f.api.Hold()
		f.look()
		f.look()
		require.EqualValues(t, 2, f.created.Load(), "untracked, the bug shows: the test above is able to fail")
		f.api.Release()
	})
}

func TestAKeyWaitsForTheDeletionThatItMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHousehold(t, true)
		f.look()
		f.unwanted.Store(true)
		f.api.Hold()
		f.look()
		require.Empty(t, f.api.Objects())
		runs := f.runs.Load()
		f.look()
		require.EqualValues(t, runs, f.runs.Load(), "called while the cache still had the child that it deleted")
		f.api.Release()
		synctest.Wait()
		require.EqualValues(t, runs+1, f.runs.Load())
		require.False(t, f.controller.Owes())
	})
}

func TestACacheThatStaysBehindKeepsTheKeyParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHousehold(t, true)
		f.api.Hold()
		f.noLists.Store(true)
		f.look()
		f.look()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, 1, f.runs.Load(),
			"the server has the child and the cache does not: acting would do harm")
		require.Equal(t, informer.Stale, f.children.Health().State)
		f.noLists.Store(false)
		f.api.Release()
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, f.runs.Load())
	})
}

// TestACacheThatStaysBehindIsMended has a server whose watches tell nothing any more, while its lists are as good as
// ever.
func TestACacheThatStaysBehindIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHousehold(t, true)
		f.api.Hold()
		f.look()
		f.look()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.EqualValues(t, 2, f.runs.Load())
		require.EqualValues(t, 1, f.created.Load(), "called before its cache had the child")
		f.api.Release()
	})
}

func TestAWriteThatIsGoneFromTheServerIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHousehold(t, true)
		f.api.Hold()
		f.look()
		f.api.Delete("default", "child-1") // by somebody else
		f.look()
		time.Sleep(debts.DoubtAfter - time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, f.runs.Load())
		time.Sleep(2 * time.Minute) // lists that are streamed come to nothing, as the watch does
		synctest.Wait()
		require.EqualValues(t, 2, f.runs.Load(),
			"after 10 s a list shows that nobody will ever see the child")
		require.EqualValues(t, 2, f.created.Load())
		f.api.Release()
	})
}

// TestWritesAreSeenInProjectionsToo has caches that hold something that has no metadata.
func TestWritesAreSeenInProjectionsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := learning{newMapAPI()}
		names, err := informer.Project[*corev1.ConfigMap](api,
			func(m *corev1.ConfigMap) (string, error) { return m.Name, nil }, informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		var runs atomic.Int32
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			if key != parent {
				return reconcile.Result{}, nil
			}
			switch runs.Add(1) {
			case 1:
				require.NoError(t, reconcile.Wrote(ctx, names, api.Create(configMap("child"))))
			case 2:
				_, exists := names.Get(reconcile.Key{Namespace: "default", Name: "child"})
				require.True(t, exists, "not woken by the event of its creation, but before")
			case 3:
				deleted := api.Objects()[0]
				api.Delete("default", "child")
				require.NoError(t, reconcile.Deleted(ctx, names, deleted))
			case 4:
				require.Zero(t, names.Len(), "not woken by the event of its deletion, but before")
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, names)
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		for _, write := range []int32{1, 3} {
			api.Hold()
			c.Enqueue(parent)
			synctest.Wait()
			c.Enqueue(parent)
			time.Sleep(time.Second)
			require.Equal(t, write, runs.Load(), "called on a cache that is older than its own write")
			api.Release()
			synctest.Wait()
			require.Equal(t, write+1, runs.Load())
			require.False(t, c.Owes())
		}
	})
}

// TestAnObjectThatTheCacheCannotTakeKeepsItsKeyParked creates an object whose state the cache cannot take. Nobody who
// reads the cache sees it, however far that has come: another run would make another one.
func TestAnObjectThatTheCacheCannotTakeKeepsItsKeyParked(t *testing.T) {
	for name, end := range map[string]func(api *mapAPI){
		"until it can": func(api *mapAPI) {
			api.Update("default", "child-1", func(m *corev1.ConfigMap) { m.Data = map[string]string{"good": "yes"} })
		},
		"until it is gone": func(api *mapAPI) { api.Delete("default", "child-1") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := learning{newMapAPI()}
				children, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{
					Transform: func(m *corev1.ConfigMap) (*corev1.ConfigMap, error) {
						if m.Data["good"] == "" {
							return nil, errors.New("will not do")
						}
						return m, nil
					},
				})
				require.NoError(t, err)
				made := 0
				c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
					if key == parent && children.Len() == 0 {
						made++
						require.NoError(t, reconcile.Wrote(ctx, children,
							api.Create(configMap(fmt.Sprint("child-", made)))))
					}
					return reconcile.Result{}, nil
				}, reconcile.Options{})
				reconcile.For(c, children)
				var log journal
				logger := funcr.New(func(_, args string) { log.note("%s", args) }, funcr.Options{})
				ctx := klog.NewContext(t.Context(), logger)
				startIn(ctx, t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
				synctest.Wait()
				for range 50 {
					c.Enqueue(parent)
					time.Sleep(time.Minute)
				}
				require.Equal(t, 1, len(api.Objects()), "it has made more, as it does not see the first")
				require.Equal(t, 1, c.Stats().Parked)
				said := 0
				for _, line := range log.take() {
					if strings.Contains(line, "the cache cannot take what they have written") {
						said++
						require.Contains(t, line, "child-1")
					}
				}
				require.Equal(t, 1, said)
				lists := children.Health().Lists

				end(api.mapAPI)
				synctest.Wait()
				require.Equal(t, children.Len() == 0, c.Owes(), "it is seen, or waited for")
				require.Equal(t, lists, children.Health().Lists, "a list would not help")
				if name == "until it is gone" {
					require.Equal(t, 2, made, "woken, and it makes another one")
				} else {
					require.Equal(t, 1, made)
				}
			})
		})
	}
}

// reportIn reports a write to the run of ctx, as TrackWrites does.
func reportIn(ctx context.Context, w writes.Write) {
	r := ctx.Value(writes.WriterKey{}).(*writes.Writer)
	r.History.Wrote(w.UID, w.ResourceVersion, w.Deleted)
	r.Debtor.Wrote(klog.FromContext(ctx), w)
}

// TestAKeyWhoseWriteIsOfUnknownOutcomeWaitsForAList loses the answer to a creation that has happened, and to one that
// has not.
func TestAKeyWhoseWriteIsOfUnknownOutcomeWaitsForAList(t *testing.T) {
	for name, happened := range map[string]bool{"it happened": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newHousehold(t, true)
				f.answerLost.Store(true)
				f.neverHappens.Store(!happened)
				lists := f.children.Health().Lists
				f.api.Hold()
				f.look()
				f.look()
				require.EqualValues(t, 1, f.runs.Load(), "called before anybody knows what became of its write")
				f.answerLost.Store(false)
				f.neverHappens.Store(false)
				f.api.Release()
				synctest.Wait()
				require.EqualValues(t, lists+1, f.children.Health().Lists, "one list tells")
				require.Equal(t, informer.Live, f.children.Health().State)
				require.Len(t, f.api.Objects(), 1)
				if happened {
					require.EqualValues(t, 1, f.created.Load(), "made twice")
				}
				require.False(t, f.controller.Owes())
			})
		})
	}
}

// TestACacheThatStaysBehindIsStale looks at what the world is told of a key that stays parked.
func TestACacheThatStaysBehindIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHousehold(t, true)
		f.api.Hold()
		f.look()
		f.look()
		require.Equal(t, 1, f.controller.Stats().Parked)
		time.Sleep(debts.DoubtAfter + time.Second)
		synctest.Wait()
		h := f.children.Health()
		require.Equal(t, informer.Stale, h.State)
		require.ErrorContains(t, h.LastError, "for 10s the cache has not shown the latest write to default/child-1")
		require.Equal(t, debts.DoubtAfter+time.Second, f.controller.Stats().LongestParked)
		f.api.Release()
		time.Sleep(time.Minute)
		require.Equal(t, informer.Live, f.children.Health().State)
		require.EqualValues(t, 2, f.runs.Load())
		require.Zero(t, f.controller.Stats().Parked)
		require.Equal(t, []time.Duration{debts.DoubtAfter + time.Second}, f.parked())
	})
}

// TestNothingFromBeforeARewindIsWaitedFor restores the cluster from a backup that does not know the write.
func TestNothingFromBeforeARewindIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHousehold(t, true)
		f.api.Create(configMap("of old"))
		synctest.Wait()
		restore := f.api.Snapshot()
		f.api.Create(configMap("of late"))
		f.api.Create(configMap("of yesterday"))
		synctest.Wait()
		f.always.Store(true)
		f.noWatches.Store(true)
		f.api.Cut()
		f.look()
		f.look()
		require.EqualValues(t, 1, f.runs.Load())
		f.always.Store(false)
		restore()
		f.noWatches.Store(false)
		time.Sleep(time.Second)
		f.api.Create(configMap("of today")) // at a version that the informer has seen before
		time.Sleep(debts.DoubtAfter - 3*time.Second)
		synctest.Wait()
		require.Equal(t, 1, f.children.Health().Rewinds)
		require.EqualValues(t, 2, f.runs.Load(), "parked until the informer lists anew, at least")
		require.False(t, f.controller.Owes())
	})
}

// TestWhatIsOnlyReadIsWaitedFor writes to an informer that names no keys.
func TestWhatIsOnlyReadIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parents, api := newMapAPI(), newMapAPI()
		parents.Create(configMap("parent"))
		children := newMaps(t, api)
		runs := 0
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			runs++
			if children.Len() == 0 {
				require.NoError(t, reconcile.Wrote(ctx, children, api.Create(configMap(fmt.Sprint("child-", runs)))))
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, parents))
		reconcile.DependsOn(c, children)
		api.BeforeWatch = func(metav1.ListOptions) error { api.Hold(); return nil }
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		require.Zero(t, runs, "called before the cache that it reads is complete")
		api.Release()
		synctest.Wait()
		require.Equal(t, 1, runs)
		require.Len(t, api.Objects(), 1)
		require.Equal(t, 1, children.Len())
		api.Hold()
		api.Delete("default", "child-1")
		c.Enqueue(parent)
		synctest.Wait()
		api.Release()
		synctest.Wait()
		require.Equal(t, 2, runs, "nobody is named when the cache changes")
		api.Hold()
		c.Enqueue(parent)
		synctest.Wait()
		c.Enqueue(parent)
		synctest.Wait()
		require.Equal(t, 3, runs, "called on a cache that is older than its own write")
		require.Len(t, api.Objects(), 1)
		api.Release()
		synctest.Wait()
		require.Equal(t, 4, runs)
	})
}

func TestAWriteThatCannotBeWaitedForIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maps, other := newMaps(t, newMapAPI()), newMaps(t, newMapAPI())
		written := configMap("a")
		written.UID, written.ResourceVersion = "u", "7"
		require.ErrorContains(t, reconcile.Wrote(t.Context(), maps, written),
			"Wrote: the ctx is not that of a call of Reconcile")
		var log journal
		c := newController(t, func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			log.note("%v", reconcile.Wrote(ctx, (*informer.SharedIndexInformer[*corev1.ConfigMap])(nil), written))
			log.note("%v", reconcile.Deleted(ctx, other, written))
			log.note("%v", reconcile.Wrote(ctx, maps, (*corev1.ConfigMap)(nil)))
			log.note("%v", reconcile.Wrote(ctx, maps, configMap("a")))
			written := written.DeepCopy()
			written.ResourceVersion = ""
			log.note("%v", reconcile.Wrote(ctx, maps, written))
			log.note("%v", reconcile.Deleted(ctx, maps, written))
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, maps)
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		c.Enqueue(parent)
		synctest.Wait()
		require.Equal(t, []string{
			"Wrote: the informer is nil",
			"Deleted: informer configmaps is no source of controller test: call DependsOn or one of the others " +
				"before " +
				"NewManager",
			"Wrote: the object is nil",
			"Wrote: default/a has no UID or no resourceVersion: give the object that the server has answered (a " +
				"fake client answers without them)",
			"Wrote: default/a has no UID or no resourceVersion: give the object that the server has answered (a " +
				"fake client answers without them)",
			"<nil>",
		}, log.take())
	})
}

// TestAKeyWhoseWriteIsGoneIsReconciledAlthoughNobodyNamesIt has somebody delete the child before the cache sees it:
// no event will tell.
func TestAKeyWhoseWriteIsGoneIsReconciledAlthoughNobodyNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHousehold(t, true)
		f.api.Hold()
		f.look()
		f.api.Delete("default", "child-1")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.EqualValues(t, 2, f.runs.Load())
		require.EqualValues(t, 2, f.created.Load())
		f.api.Release()
	})
}

// TestManyKeysBehindACacheWhoseListsFail has a server that tells of each object when it is asked for that alone, and
// cannot list them all.
func TestManyKeysBehindACacheWhoseListsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := learning{newMapAPI()}
		var requests atomic.Int32
		var down atomic.Bool
		api.BeforeList = func(opts metav1.ListOptions) error {
			requests.Add(1)
			if down.Load() && opts.Limit > 0 {
				return errors.New("no lists today")
			}
			return nil
		}
		api.BeforeWatch = func(metav1.ListOptions) error { requests.Add(1); return nil }
		children := newMaps(t, api.mapAPI)
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			if _, exists := children.Get(key); !exists {
				require.NoError(t, reconcile.Wrote(ctx, children, api.Create(configMap(key.Name))))
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{Workers: 10})
		reconcile.For(c, children)
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		api.Hold()
		down.Store(true)
		for range 2 {
			for i := range 200 {
				c.Enqueue(reconcile.Key{Namespace: "default", Name: fmt.Sprint("child-", i)})
			}
			synctest.Wait()
		}
		require.Equal(t, 200, c.Stats().Parked)
		requests.Store(0)
		time.Sleep(10 * time.Minute)
		t.Logf("%d requests", requests.Load())
		require.LessOrEqual(t, requests.Load(), int32(60))
		require.Greater(t, requests.Load(), int32(20), "the informer tries to list")
		require.Equal(t, informer.Stale, children.Health().State)
		down.Store(false)
		api.Release()
		time.Sleep(time.Minute)
		require.Zero(t, c.Stats().Parked)
	})
}
