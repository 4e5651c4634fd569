package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"slices"
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
	"github.com/thermostat-go/thermostat/internal/kube"
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

func (learning) learn(ctx context.Context) {
	req := (&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/configmaps"}}).WithContext(ctx)
	if _, err := TrackWrites(answering{code: 200}).RoundTrip(req); err != nil {
		panic(err)
	}
}

// family is a controller that wants one child and believes its cache, and the API that its watch can be held back from.
type family struct {
	api        learning
	controller *Controller
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

// The family listens to its controller.
func (f *family) Controller(string, func() status.Stats) Recorder { return f }
func (*family) Waited(workqueue.Priority, time.Duration)          {}
func (*family) Worked(workqueue.Priority, time.Duration)          {}
func (*family) Reconciled(string, time.Duration)                  {}
func (f *family) Parked(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waited = append(f.waited, d)
}

func (f *family) parked() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waited
}

var parent = Key{Namespace: "default", Name: "parent"}

func newFamily(t *testing.T, tracked bool) *family {
	f := &family{api: learning{newMapAPI()}, tracked: tracked}
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
	f.controller = newController(t, func(ctx context.Context, key Key) (Result, error) {
		if key != parent {
			return Result{}, nil
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
		return Result{}, nil
	}, Options{Metrics: f})
	For(f.controller, children)
	start(t, ManagerOptions{Controllers: []*Controller{f.controller}})
	synctest.Wait()
	return f
}

// wrote reports a write to the run of ctx, as TrackWrites does.
func (f *family) wrote(ctx context.Context, m *corev1.ConfigMap, deleted bool) {
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
func (f *family) look() {
	f.controller.Enqueue(parent)
	synctest.Wait()
}

// TestAKeyWaitsForTheCreationThatItMade is the classic bug: a controller creates a child, is called again before its
// cache has it, and creates another.
func TestAKeyWaitsForTheCreationThatItMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, true)
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
		require.Zero(t, f.controller.ledger.open.Load())
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, false)
		f.api.Hold()
		f.look()
		f.look()
		require.EqualValues(t, 2, f.created.Load(), "untracked, the bug shows: the test above is able to fail")
		f.api.Release()
	})
}

func TestAKeyWaitsForTheDeletionThatItMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, true)
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
		require.Zero(t, f.controller.ledger.open.Load())
	})
}

func TestACacheThatStaysBehindKeepsTheKeyParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, true)
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
		f := newFamily(t, true)
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
		f := newFamily(t, true)
		f.api.Hold()
		f.look()
		f.api.Delete("default", "child-1") // by somebody else
		f.look()
		time.Sleep(doubtAfter - time.Second)
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
		c := newController(t, func(ctx context.Context, key Key) (Result, error) {
			if key != parent {
				return Result{}, nil
			}
			switch runs.Add(1) {
			case 1:
				require.NoError(t, Wrote(ctx, names, api.Create(configMap("child"))))
			case 2:
				_, exists := names.Get(Key{Namespace: "default", Name: "child"})
				require.True(t, exists, "not woken by the event of its creation, but before")
			case 3:
				deleted := api.Objects()[0]
				api.Delete("default", "child")
				require.NoError(t, Deleted(ctx, names, deleted))
			case 4:
				require.Zero(t, names.Len(), "not woken by the event of its deletion, but before")
			}
			return Result{}, nil
		}, Options{})
		For(c, names)
		start(t, ManagerOptions{Controllers: []*Controller{c}})
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
			require.Zero(t, c.ledger.open.Load())
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
				c := newController(t, func(ctx context.Context, key Key) (Result, error) {
					if key == parent && children.Len() == 0 {
						made++
						require.NoError(t, Wrote(ctx, children, api.Create(configMap(fmt.Sprint("child-", made)))))
					}
					return Result{}, nil
				}, Options{})
				For(c, children)
				var log journal
				logger := funcr.New(func(_, args string) { log.note("%s", args) }, funcr.Options{})
				ctx := klog.NewContext(t.Context(), logger)
				startIn(ctx, t, ManagerOptions{Controllers: []*Controller{c}})
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
				require.EqualValues(t, 1-children.Len(), c.ledger.open.Load(), "it is seen, or waited for")
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

// lookIn lets a while pass, and the relister look at what is overdue then.
func lookIn(t *testing.T, l *ledger, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	l.relister.scan()
}

// owing is a key of one ledger.
func owing(owner Key, l *ledger) debtor { return debtor{owner, l, l.all} }

// reportIn reports a write to the run of ctx, as TrackWrites does.
func reportIn(ctx context.Context, w writes.Write) {
	r := ctx.Value(runKey{}).(*run)
	r.Wrote(w.UID, w.ResourceVersion, w.Deleted)
	ctx.Value(writes.WriterKey{}).(*writes.Writer).Debtor.Wrote(klog.FromContext(ctx), w)
}

// podWrite is a write of the pod default/NAME, whose UID is u.
func podWrite(name, resourceVersion string, deleted bool) writes.Write {
	o := writes.Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u",
		ResourceVersion: resourceVersion}}
	if deleted {
		return writes.NewWrite(writes.Target{Host: "server", Resource: "pods", Name: name}, http.MethodDelete, 200, o)
	}
	return writes.NewWrite(writes.Target{Host: "server", Resource: "pods"}, http.MethodPost, 201, o)
}

// TestACacheThatIsBehindListsOnce has written much that the cache does not show.
func TestACacheThatIsBehindListsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newController(t, noting(&journal{}), Options{}).ledger
		pods := listing(l, &still{listed: 4})
		for i := range 500 {
			owing(parent, l).Wrote(klog.Background(), podWrite(fmt.Sprint("pod-", i), "100", false))
		}
		require.True(t, l.park(parent))
		lookIn(t, l, doubtAfter-1)
		require.Zero(t, pods.relists)
		lookIn(t, l, 1)
		for range 3 {
			require.True(t, l.park(parent))
			require.Equal(t, 1, pods.relists, "one list is under way all the time")
			lookIn(t, l, doubtAfter)
		}
		require.ErrorContains(t, pods.doubt, "for 10s the cache has not shown the latest write to default/pod-")
		n := l.table.Counts()
		require.Equal(t, 1, n.Parked)
		require.Equal(t, 4*doubtAfter, n.LongestParked)

		pods.listed, pods.resourceVersion = 5, "100"
		l.reached(l.caches[0], "")
		require.Zero(t, l.open.Load())
		require.False(t, l.park(parent))
	})
}

// TestAWriteThatNoEventTellsOfIsListedForSoon takes an object out of a selector that it may have matched. The cache is
// not behind: nothing is to come.
func TestAWriteThatNoEventTellsOfIsListedForSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newController(t, noting(&journal{}), Options{}).ledger
		pods := &still{listed: 4, resourceVersion: "50"}
		c := l.cacheOf(pods)
		c.learner = &writes.Learner{}
		c.learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods",
			RawQuery: "labelSelector=app%3Dx"}})
		owing(parent, l).Wrote(klog.Background(), podWrite("new", "99", false))
		require.Zero(t, l.open.Load(), "a new object that is not selected has never been in the cache")
		changed := podWrite("old", "100", false)
		changed.Created = false
		owing(parent, l).Wrote(klog.Background(), changed)
		require.True(t, l.park(parent))
		lookIn(t, l, unexpectedAfter-1)
		require.Zero(t, pods.relists)
		lookIn(t, l, 1)
		require.Equal(t, 1, pods.relists)
		require.NoError(t, pods.doubt)
		pods.listed, pods.resourceVersion = 5, "101"
		l.reached(c, "")
		require.False(t, l.park(parent))
	})
}

// TestTheRelisterGoesOnInTheNextTenure ends it with the first, before the write is overdue.
func TestTheRelisterGoesOnInTheNextTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newController(t, noting(&journal{}), Options{}).ledger
		pods := listing(l, &still{})
		owing(parent, l).Wrote(klog.Background(), podWrite("a", "7", false))
		for tenure := range 2 {
			stop := relisting(t, l, t.Context())
			time.Sleep(doubtAfter - time.Second)
			stop()
			require.Equal(t, tenure, pods.relists)
		}
	})
}

// TestAKeyWhoseWriteIsOfUnknownOutcomeWaitsForAList loses the answer to a creation that has happened, and to one that
// has not.
func TestAKeyWhoseWriteIsOfUnknownOutcomeWaitsForAList(t *testing.T) {
	for name, happened := range map[string]bool{"it happened": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFamily(t, true)
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
				require.Zero(t, f.controller.ledger.open.Load())
			})
		})
	}
}

// TestAListThatDoesNotComeKeepsTheKeyParked has a server that cannot be reached after it has taken the write.
func TestAListThatDoesNotComeKeepsTheKeyParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newController(t, noting(&journal{}), Options{}).ledger
		pods := listing(l, &still{listed: 1})
		owing(parent, l).LostAnswer(klog.Background(),
			writes.Target{Host: "server", Resource: "pods", Namespace: "default"})
		require.Zero(t, pods.relists, "the relister asks for it, and nobody else")
		for range 5 {
			require.True(t, l.park(parent))
			lookIn(t, l, doubtAfter)
		}
		require.Equal(t, 1, pods.relists)
		pods.listed = 2
		l.reached(l.caches[0], "")
		require.False(t, l.park(parent))
	})
}

// TestACacheThatStaysBehindIsStale looks at what the world is told of a key that stays parked.
func TestACacheThatStaysBehindIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, true)
		f.api.Hold()
		f.look()
		f.look()
		require.Equal(t, 1, f.controller.Stats().Parked)
		time.Sleep(doubtAfter + time.Second)
		synctest.Wait()
		h := f.children.Health()
		require.Equal(t, informer.Stale, h.State)
		require.ErrorContains(t, h.LastError, "for 10s the cache has not shown the latest write to default/child-1")
		require.Equal(t, doubtAfter+time.Second, f.controller.Stats().LongestParked)
		f.api.Release()
		time.Sleep(time.Minute)
		require.Equal(t, informer.Live, f.children.Health().State)
		require.EqualValues(t, 2, f.runs.Load())
		require.Zero(t, f.controller.Stats().Parked)
		require.Equal(t, []time.Duration{doubtAfter + time.Second}, f.parked())
	})
}

// TestNothingFromBeforeARewindIsWaitedFor restores the cluster from a backup that does not know the write.
func TestNothingFromBeforeARewindIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, true)
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
		time.Sleep(doubtAfter - 3*time.Second)
		synctest.Wait()
		require.Equal(t, 1, f.children.Health().Rewinds)
		require.EqualValues(t, 2, f.runs.Load(), "parked until the informer lists anew, at least")
		require.Zero(t, f.controller.ledger.open.Load())
	})
}

// TestWhatIsOnlyReadIsWaitedFor writes to an informer that names no keys.
func TestWhatIsOnlyReadIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parents, api := newMapAPI(), newMapAPI()
		parents.Create(configMap("parent"))
		children := newMaps(t, api)
		runs := 0
		c := newController(t, func(ctx context.Context, key Key) (Result, error) {
			runs++
			if children.Len() == 0 {
				require.NoError(t, Wrote(ctx, children, api.Create(configMap(fmt.Sprint("child-", runs)))))
			}
			return Result{}, nil
		}, Options{})
		For(c, newMaps(t, parents))
		DependsOn(c, children)
		api.BeforeWatch = func(metav1.ListOptions) error { api.Hold(); return nil }
		start(t, ManagerOptions{Controllers: []*Controller{c}})
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
		require.ErrorContains(t, Wrote(t.Context(), maps, written), "Wrote: the ctx is not that of a call of Reconcile")
		var log journal
		c := newController(t, func(ctx context.Context, _ Key) (Result, error) {
			log.note("%v", Wrote(ctx, (*informer.SharedIndexInformer[*corev1.ConfigMap])(nil), written))
			log.note("%v", Deleted(ctx, other, written))
			log.note("%v", Wrote(ctx, maps, (*corev1.ConfigMap)(nil)))
			log.note("%v", Wrote(ctx, maps, configMap("a")))
			written := written.DeepCopy()
			written.ResourceVersion = ""
			log.note("%v", Wrote(ctx, maps, written))
			log.note("%v", Deleted(ctx, maps, written))
			return Result{}, nil
		}, Options{})
		For(c, maps)
		start(t, ManagerOptions{Controllers: []*Controller{c}})
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

// TestADeletionIsNotSeenBeforeTheCreation deletes what the same run has created, and what the cache has seen neither
// of.
func TestADeletionIsNotSeenBeforeTheCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newController(t, noting(&journal{}), Options{}).ledger
		var there informer.Version
		pods := listing(l, &still{version: func(Key) (informer.Version, bool) { return there, there.UID != "" }})
		owing(parent, l).Wrote(klog.Background(), podWrite("a", "7", false))
		owing(parent, l).Wrote(klog.Background(), podWrite("a", "", true))
		require.EqualValues(t, 2, l.open.Load())
		key := Key{Namespace: "default", Name: "a"}
		there, pods.resourceVersion = informer.Version{UID: "u", ResourceVersion: "7"}, "7"
		l.saw(l.caches[0], key, "u", "7", false)
		require.True(t, l.park(parent), "the cache has the pod that the run has deleted")
		there = informer.Version{}
		l.saw(l.caches[0], key, "u", "8", true)
		require.False(t, l.park(parent))
		require.Equal(t, "8", l.caches[0].written[""].resourceVersion, "what the next leader has to have seen")
	})
}

// TestAKeyWhoseWriteIsGoneIsReconciledAlthoughNobodyNamesIt has somebody delete the child before the cache sees it:
// no event will tell.
func TestAKeyWhoseWriteIsGoneIsReconciledAlthoughNobodyNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, true)
		f.api.Hold()
		f.look()
		f.api.Delete("default", "child-1")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.EqualValues(t, 2, f.runs.Load())
		require.EqualValues(t, 2, f.created.Load())
		f.api.Release()
		time.Sleep(2 * quietTime)
		f.controller.ledger.mu.Lock()
		defer f.controller.ledger.mu.Unlock()
		require.Empty(t, f.controller.ledger.caches[0].partitions, "what is quiet is forgotten")
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
		c := newController(t, func(ctx context.Context, key Key) (Result, error) {
			if _, exists := children.Get(key); !exists {
				require.NoError(t, Wrote(ctx, children, api.Create(configMap(key.Name))))
			}
			return Result{}, nil
		}, Options{Workers: 10})
		For(c, children)
		start(t, ManagerOptions{Controllers: []*Controller{c}})
		synctest.Wait()
		api.Hold()
		down.Store(true)
		for range 2 {
			for i := range 200 {
				c.Enqueue(Key{Namespace: "default", Name: fmt.Sprint("child-", i)})
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

// TestAfterAQuietTimeTroubleIsTheFirstAgain loses answers one after the other, each of which takes a list.
func TestAfterAQuietTimeTroubleIsTheFirstAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newController(t, noting(&journal{}), Options{}).ledger
		pods := listing(l, &still{listed: 1})
		c := l.caches[0]
		lose := func() (pause time.Duration) {
			owing(parent, l).LostAnswer(klog.Background(), writes.Target{Host: "server", Resource: "pods",
				Namespace: "default"})
			before := pods.relists
			l.relister.scan()
			require.Equal(t, before+1, pods.relists)
			pods.listed++
			pause = time.Until(c.partitions[""].notBefore)
			l.reached(c, "")
			require.Zero(t, l.open.Load())
			return pause
		}
		for range 10 {
			time.Sleep(maxPause)
			lose()
		}
		time.Sleep(maxPause)
		require.Greater(t, lose(), maxPause/2-1)
		time.Sleep(quietTime)
		lines, _ := l.relister.scan()
		require.Equal(t, outcomesKnown, lines[0].trouble)
		require.Empty(t, c.partitions)
		require.LessOrEqual(t, lose(), minPause)
	})
}

// TestADeletionOfWhatTheCacheHasNotSeen deletes an object that others have made, and that the cache does not hold: it
// may yet come.
func TestADeletionOfWhatTheCacheHasNotSeen(t *testing.T) {
	five := informer.Version{UID: "u", ResourceVersion: "5"}
	list := func(listed int) func(*ledger, *cache, *still) {
		return func(l *ledger, c *cache, pods *still) {
			pods.listed, pods.resourceVersion = listed, "12"
			l.reached(c, "")
		}
	}
	key := Key{Namespace: "default", Name: "a"}
	for name, test := range map[string]struct {
		answer  string // the version in the answer, if there is one
		before  func(l *ledger, c *cache, pods *still)
		proof   func(l *ledger, c *cache, pods *still)
		atOnce  bool
		written string // what the next leader has to have seen
	}{
		"nothing proves it": {},
		"a version, and the answer tells none": {
			proof: func(l *ledger, c *cache, pods *still) { pods.resourceVersion = "100"; l.reached(c, "") },
		},
		"a version before the answer's": {
			answer: "7", written: "7",
			proof: func(l *ledger, c *cache, pods *still) { pods.resourceVersion = "6"; l.reached(c, "") },
		},
		"the version of the answer": {
			answer: "7", written: "7", atOnce: true,
			proof: func(l *ledger, c *cache, pods *still) { pods.resourceVersion = "7"; l.reached(c, "") },
		},
		"the cache was past the answer's version": {
			answer: "7", written: "7", atOnce: true,
			before: func(l *ledger, c *cache, pods *still) { pods.resourceVersion = "7" },
		},
		"the event of its end": {
			written: "9", atOnce: true,
			proof: func(l *ledger, c *cache, pods *still) { l.saw(c, key, "u", "9", true) },
		},
		"the event of its end, before the answer": {
			atOnce: true,
			before: func(l *ledger, c *cache, pods *still) { l.saw(c, key, "u", "9", true) },
		},
		"the event of another one's end": {
			proof: func(l *ledger, c *cache, pods *still) { l.saw(c, key, "other", "9", true) },
		},
		"it comes, and goes in a list": {
			written: "12", atOnce: true,
			proof: func(l *ledger, c *cache, pods *still) {
				held := true
				pods.version = func(Key) (informer.Version, bool) { return five, held }
				l.saw(c, key, "u", "5", false)
				held, pods.listed, pods.resourceVersion = false, 5, "12"
				l.reached(c, "")
			},
		},
		"a list that had begun before": {
			before: func(l *ledger, c *cache, pods *still) { pods.begun = 4 },
			proof:  list(4),
		},
		"a later list": {
			written: "12", atOnce: true,
			before: func(l *ledger, c *cache, pods *still) { pods.begun = 4 },
			proof:  list(5),
		},
		"a later list that has it": { // something keeps it
			written: "12", atOnce: true,
			before: func(l *ledger, c *cache, pods *still) { pods.begun = 4 },
			proof: func(l *ledger, c *cache, pods *still) {
				pods.version = func(Key) (informer.Version, bool) { return five, true }
				list(5)(l, c, pods)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newController(t, noting(&journal{}), Options{}).ledger
				pods := listing(l, &still{listed: 3, resourceVersion: "5"})
				c := l.caches[0]
				if test.before != nil {
					test.before(l, c, pods)
				}
				owing(parent, l).Wrote(klog.Background(), podWrite("a", test.answer, true))
				if test.proof != nil {
					require.True(t, l.park(parent), "the cache may be older than the object")
					test.proof(l, c, pods)
				}
				require.Equal(t, !test.atOnce, l.park(parent))
				require.Equal(t, test.written, c.written[""].resourceVersion)
				if !test.atOnce {
					lookIn(t, l, doubtAfter)
					require.True(t, l.park(parent))
					require.Equal(t, 1, pods.relists)
					pods.listed, pods.resourceVersion = pods.listed+1, "12"
					l.reached(c, "")
					require.False(t, l.park(parent))
				}
			})
		})
	}
}

// TestADeletionBesideAnotherObjectOfThatName has a cache that holds the one that was before, or that came after.
func TestADeletionBesideAnotherObjectOfThatName(t *testing.T) {
	for held, settled := range map[string]bool{"4": false, "8": true} {
		l := newController(t, noting(&journal{}), Options{}).ledger
		listing(l, &still{resourceVersion: "5", version: func(Key) (informer.Version, bool) {
			return informer.Version{UID: "namesake", ResourceVersion: held}, true
		}})
		owing(parent, l).Wrote(klog.Background(), podWrite("a", "7", true))
		require.Equal(t, !settled, l.park(parent))
	}
}

// TestVersionsThatAreNoNumbers are equal, or a list tells.
func TestVersionsThatAreNoNumbers(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	pods := listing(l, &still{listed: 3, resourceVersion: "v-a"})
	c := l.caches[0]
	for _, name := range []string{"b", "b2", "c"} {
		owing(Key{Name: name}, l).Wrote(klog.Background(), podWrite(name, "v-"+name[:1], false))
	}
	require.EqualValues(t, 3, l.open.Load())
	pods.resourceVersion = "v-b"
	l.reached(c, "")
	require.EqualValues(t, 1, l.open.Load())
	pods.resourceVersion = "v-d"
	l.reached(c, "")
	require.EqualValues(t, 1, l.open.Load())
	pods.listed = 4
	l.reached(c, "")
	require.Zero(t, l.open.Load())
	require.Empty(t, c.partitions[""].byName)
}

// TestMarksDoNotGrowWithTheNamespaces: what is written in each namespace is noted for the next leader, of an informer
// whose requests do not pass TrackWrites, too. It lists all namespaces at once.
func TestMarksDoNotGrowWithTheNamespaces(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	c := l.cacheOf(&still{resourceVersion: "7"})
	c.learner = &writes.Learner{}
	for i := range 100 {
		pod := object{c, Key{Namespace: fmt.Sprint("namespace-", i), Name: "a"}}
		l.owe(&debt{owner: parent, kind: status.DebtChange, object: pod, uid: "u", resourceVersion: fmt.Sprint(8 + i)})
		l.owe(&debt{owner: parent, kind: status.DebtDeletion, object: pod, uid: "v", resourceVersion: "6"})
	}
	require.Equal(t, map[string]mark{"": {resourceVersion: "107"}}, c.written)
	require.Equal(t, map[string]mark{"": {resourceVersion: "7"}}, c.shown)
}

// TestTheBooksAreInOrder notes and settles debts at random, and compares what is open with a plain walk.
func TestTheBooksAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(300) {
			random := rand.New(rand.NewPCG(seed, 0))
			l := newController(t, noting(&journal{}), Options{}).ledger
			pods := listing(l, &still{listed: 1, resourceVersion: "1"})
			c := l.caches[0]
			at := 1
			for range 100 {
				switch random.IntN(5) {
				case 0, 1:
					version := fmt.Sprint(at + random.IntN(50))
					if random.IntN(4) == 0 {
						version = "no-" + version
					}
					w := podWrite(fmt.Sprint("pod-", random.IntN(20)), version, random.IntN(4) == 0)
					owing(Key{Name: fmt.Sprint(random.IntN(5))}, l).Wrote(klog.Background(), w)
				case 2:
					at += random.IntN(20)
					pods.resourceVersion = fmt.Sprint(at)
					l.reached(c, "")
				case 3:
					somewhere := writes.Target{Host: "server", Resource: "pods", Namespace: "default"}
					owing(Key{Name: fmt.Sprint(random.IntN(5))}, l).LostAnswer(klog.Background(), somewhere)
				default:
					if random.IntN(5) == 0 {
						pods.listed++
						l.reached(c, "")
					}
					if random.IntN(5) == 0 { // the cluster goes back
						at = random.IntN(at) + 1
						pods.listed, pods.resourceVersion = pods.listed+1, fmt.Sprint(at)
						l.reached(c, "")
					}
				}
				requireInOrder(t, l)
				for _, d := range openDebts(l) {
					require.False(t, d.settled(d.partition.progress()), "seed %d: %+v is open", seed, d)
				}
			}
			pods.listed++
			l.reached(c, "")
			require.Zero(t, l.open.Load())
			require.Empty(t, l.accounts)
			require.Empty(t, l.objects)
		}
	})
}

// TestDebtsChangeTheirPlacesWithTheScope follows all namespaces in one list, then each by itself, and then all again.
func TestDebtsChangeTheirPlacesWithTheScope(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	pods := listing(l, &still{listed: 1, resourceVersion: "1"})
	c := l.caches[0]
	for i, namespace := range []string{"one", "two", "one", ""} {
		w := podWrite(fmt.Sprint("pod-", i), fmt.Sprint(7+i), false)
		w.Object.Namespace = namespace
		owing(parent, l).Wrote(klog.Background(), w)
	}
	owing(parent, l).LostAnswer(klog.Background(), writes.Target{Host: "server", Resource: "pods", Namespace: "two"})
	places := func() (names []string) {
		requireInOrder(t, l)
		return slices.Sorted(maps.Keys(c.partitions))
	}
	require.Equal(t, []string{""}, places())
	l.reached(c, "one")
	require.Equal(t, []string{"", "one", "two"}, places())
	require.EqualValues(t, 5, l.open.Load())
	pods.resourceVersion = "9"
	l.reached(c, "two")
	require.EqualValues(t, 4, l.open.Load(), "what is in another namespace is not looked at")
	lines, _ := l.relister.scan()
	require.Equal(t, 1, pods.relists, "the write of unknown outcome has gone with the others")
	require.Len(t, lines, 1)
	pods.resourceVersion = "10"
	l.reached(c, "")
	require.Equal(t, []string{""}, places())
	require.EqualValues(t, 1, l.open.Load())
	pods.listed = 2
	l.reached(c, "")
	require.Zero(t, l.open.Load())
}

func openDebts(l *ledger) (debts []*debt) {
	for _, a := range l.accounts {
		debts = append(debts, a.debts...)
	}
	return debts
}

// requireInOrder checks that each debt is where it says it is, and nowhere else.
func requireInOrder(t *testing.T, l *ledger) {
	t.Helper()
	debts := openDebts(l)
	require.EqualValues(t, len(debts), l.open.Load())
	byObject := 0
	for o, of := range l.objects {
		require.NotEmpty(t, of)
		for _, d := range of {
			require.Equal(t, o, d.object)
			require.True(t, d.byObject(), "no event of an object settles it")
			byObject++
		}
	}
	known := slices.DeleteFunc(slices.Clone(debts), func(d *debt) bool { return !d.byObject() })
	require.Len(t, known, byObject)
	for owner, a := range l.accounts {
		require.NotEmpty(t, a.debts)
		for slot, d := range a.debts {
			require.Equal(t, owner, d.owner)
			require.Equal(t, slot, d.slot)
			require.Same(t, d, d.age.Value)
			if d.rank >= 0 {
				require.Same(t, d, d.partition.byVersion[d.rank])
			}
		}
	}
	aged := 0
	for _, c := range l.caches {
		for name, p := range c.partitions {
			require.Equal(t, name, p.namespace)
			aged += p.byAge.Len()
			for i, d := range p.byVersion {
				require.Equal(t, i, d.rank)
				require.False(t, i > 0 && !kube.AtLeast(d.resourceVersion, p.byVersion[(i-1)/2].resourceVersion))
			}
			for version, of := range p.byName {
				require.NotEmpty(t, of)
				for _, d := range of {
					require.Equal(t, version, d.resourceVersion)
				}
			}
			for d := range p.unready {
				require.Same(t, p, d.partition)
			}
		}
	}
	require.Equal(t, len(debts), aged)
}

// TestAnEventBetweenTheLookAtTheCacheAndTheDebtSettlesIt: the event comes at the last moment at which the cache does
// not show the write, and need not wait for the ledger. What it finds to settle must be there, or nobody settles it
// before the cache is doubted.
func TestAnEventBetweenTheLookAtTheCacheAndTheDebtSettlesIt(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	key := Key{Namespace: "default", Name: "a"}
	var there atomic.Bool
	seen := make(chan struct{})
	listing(l, &still{version: func(Key) (informer.Version, bool) {
		if there.Swap(true) {
			return informer.Version{UID: "u", ResourceVersion: "7"}, true
		}
		go func() { l.saw(l.caches[0], key, "u", "7", false); close(seen) }()
		for range 1000 {
			runtime.Gosched() // the event is told of, or waits until the debt has been noted
		}
		return informer.Version{}, false
	}})
	owing(parent, l).Wrote(klog.Background(), podWrite("a", "7", false))
	<-seen
	require.Zero(t, l.open.Load())
}
