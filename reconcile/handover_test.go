package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// lease is what two electors of one test have between them. Its word is written by who leads.
type lease struct {
	free chan struct{} // holds a token while nobody leads
	word string        // that is to be left to the next one
	left string        // that was left to who leads
	lost bool          // whoever leads cannot leave any, as after a crash, and has been waited for
}

func (l *lease) SetHandover(word string) {
	if !l.lost {
		l.word = word
	}
}

func (l *lease) Handover() (string, bool) { return l.left, l.lost }

func (l *lease) Run(ctx context.Context, lead func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.free:
	}
	defer func() { l.free <- struct{}{} }()
	l.left, l.word = l.word, ""
	return lead(ctx)
}

type cachedMaps = informer.SharedIndexInformer[*corev1.ConfigMap]

// turn is a lease for a replica that may have it only when its turn has come.
type turn struct {
	*lease
	comes chan struct{}
}

func (w *turn) Run(ctx context.Context, lead func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-w.comes:
	}
	return w.lease.Run(ctx, lead)
}

// replica runs a controller that reads api, and is called for one key when it comes to lead.
func replica(t *testing.T, l Elector, api *mapAPI, r func(context.Context, *cachedMaps)) (stop func() error) {
	return replicaOf(t, l, learning{api}, r)
}

func replicaOf(t *testing.T, l Elector, api informer.Client[*corev1.ConfigMapList],
	r func(ctx context.Context, children *cachedMaps)) (stop func() error) {
	children, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: "children"})
	require.NoError(t, err)
	c := newController(t, func(ctx context.Context, _ Key) (Result, error) {
		r(ctx, children)
		return Result{}, nil
	}, Options{})
	DependsOn(c, children)
	c.Enqueue(parent)
	return start(t, ManagerOptions{Controllers: []*Controller{c}, Elector: l})
}

// TestTheNextLeaderWaitsForWhatTheLastOneWrote has a standby whose server lags behind that of the leader when the
// leader leaves.
func TestTheNextLeaderWaitsForWhatTheLastOneWrote(t *testing.T) {
	creates := func(ctx context.Context, api *mapAPI) {
		child := api.Create(configMap("child"))
		reportIn(ctx, writes.NewWrite(writes.Target{Host: "server", Resource: "configmaps"},
			http.MethodPost, 201, writes.Metadata{ObjectMeta: child.ObjectMeta}))
	}
	for name, test := range map[string]struct {
		does  func(ctx context.Context, api *mapAPI) // what the leader does
		heals time.Duration                          // when the server of the next one has caught up
		want  string
		lists int // that the next one has made by then
		crash bool
		since time.Duration // for how long the next one follows its server
	}{
		"it is there already":  {does: creates, want: "1 child after 0s", lists: 1},
		"it lags for a moment": {does: creates, heals: time.Second, want: "1 child after 1s", lists: 1},
		"it lags until it is doubted": {does: creates, heals: doubtAfter + time.Second, want: "1 child after 11s",
			lists: 1},
		"it lags for ever": {does: creates, heals: time.Hour, want: "0 child after 20s", lists: 1},
		"a deletion that nobody has seen": {does: func(ctx context.Context,
			api *mapAPI) {
			creates(ctx, api)
			deletes(ctx, api)
		}, want: "0 child after 0s", lists: 2},
		"an outcome that nobody knows yet": {does: loses, want: "0 child after 0s", lists: 2},
		"it has written nothing": {does: func(context.Context, *mapAPI) {}, heals: time.Hour,
			want: "0 child after 0s", lists: 1},
		"a crash": {does: creates, crash: true, since: steadyTime, want: "1 child after 0s",
			lists: 1},
		"a crash, and a young watch": {does: creates, crash: true, since: steadyTime - 1,
			want: "1 child after 0s", lists: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lease{free: make(chan struct{}, 1), lost: test.crash}
				l.free <- struct{}{}
				ahead, behind := newMapAPI(), newMapAPI() // two servers of one cluster
				stop := replica(t, l, ahead, func(ctx context.Context, _ *cachedMaps) { test.does(ctx, ahead) })
				synctest.Wait()
				behind.BeforeList = func(opts metav1.ListOptions) error {
					if test.heals > 0 {
						return errors.New("no lists, either")
					}
					return nil
				}
				var log journal
				var left time.Time
				var lists int
				replica(t, l, behind, func(_ context.Context, children *cachedMaps) {
					log.note("%d child after %s", children.Len(), time.Since(left))
					lists = children.Health().Lists
				})
				synctest.Wait()
				if test.heals > 0 {
					behind.Hold()
				}
				if name != "it has written nothing" && name != "an outcome that nobody knows yet" {
					behind.Create(configMap("child"))
				}
				if len(ahead.Objects()) == 0 && len(behind.Objects()) > 0 {
					behind.Delete("default", "child")
				}
				synctest.Wait()
				require.Empty(t, l.word)
				time.Sleep(test.since)
				left = time.Now()
				require.NoError(t, stop())
				time.Sleep(test.heals)
				behind.Release()
				time.Sleep(time.Minute)
				require.Equal(t, []string{test.want}, taken(&log), l.word)
				if test.heals == 0 {
					require.Equal(t, test.lists, lists)
				}
			})
		})
	}
}

// deletes leaves at once after a deletion, before its cache has seen it.
func deletes(ctx context.Context, api *mapAPI) {
	child := api.Objects()[0]
	api.Hold()
	api.Delete("default", "child")
	reportIn(ctx, writes.NewWrite(writes.Target{Host: "server", Resource: "configmaps", Name: "child"},
		http.MethodDelete, 200, writes.Metadata{ObjectMeta: child.ObjectMeta}))
}

// loses leaves at once after a write whose answer was lost, before its cache has listed anew.
func loses(ctx context.Context, api *mapAPI) {
	api.Hold()
	ctx.Value(writes.WriterKey{}).(*writes.Writer).Debtor.LostAnswer(klog.FromContext(ctx),
		writes.Target{Host: "server", Resource: "configmaps"})
}

// The log tells of a wait for what the last leader wrote if a cache was doubted, and of none that the end of the
// process cut short.
func TestTheLogTellsOfTheHandoverWhatAnOperatorNeeds(t *testing.T) {
	const behind, seen = "The cache is behind", "The caches have seen"
	for name, test := range map[string]struct {
		heals, ends time.Duration // when the cache has caught up, and when the process ends
		want        []string
	}{
		"nothing was behind":         {ends: time.Minute},
		"it was behind for a moment": {heals: time.Second, ends: time.Minute},
		"it was doubted": {heals: doubtAfter + time.Second, ends: time.Minute,
			want: []string{behind, seen}},
		"the process ends while it waits": {heals: time.Hour, ends: time.Second},
		"the process ends once it has doubts": {heals: time.Hour, ends: doubtAfter + time.Second,
			want: []string{behind}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newMapAPI()
				children := newMaps(t, api)
				c := newController(t, noting(&journal{}), Options{})
				DependsOn(c, children)
				l := &lease{free: make(chan struct{}, 1)}
				var lines journal
				ctx := klog.NewContext(t.Context(), funcr.New(func(_, line string) {
					for _, known := range []string{behind, seen} {
						if strings.Contains(line, known) {
							lines.note("%s", known)
						}
					}
				}, funcr.Options{}))
				stop := startIn(ctx, t, ManagerOptions{Controllers: []*Controller{c}, Elector: l})
				synctest.Wait()
				if test.heals > 0 {
					api.Hold()
				}
				child := api.Create(configMap("child"))
				l.word = `[{"informer":"configmaps","resourceVersion":"` + child.ResourceVersion + `"}]`
				l.free <- struct{}{}
				time.AfterFunc(test.heals, api.Release)
				time.Sleep(test.ends)
				synctest.Wait()
				require.NoError(t, stop())
				require.Equal(t, test.want, lines.take())
				api.Release()
			})
		})
	}
}

func TestAWordThatCannotBeReadIsNoWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{free: make(chan struct{}, 1), word: "by hand"}
		l.free <- struct{}{}
		var log journal
		replica(t, l, newMapAPI(), func(context.Context, *cachedMaps) { log.note("called") })
		require.Equal(t, []string{"called"}, taken(&log))
	})
}

// TestWordsOfSeveralServersAreKeptApart has two caches of one resource, on servers of their own.
func TestWordsOfSeveralServersAreKeptApart(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	var pods []*still
	for i, host := range []string{"a", "b"} {
		pods = append(pods, &still{resourceVersion: fmt.Sprint(10 * (i + 1)), listed: 1, begun: 1})
		c := l.cacheOf(pods[i])
		c.learner = &writes.Learner{}
		c.learner.Learn(&http.Request{URL: &url.URL{Host: host, Path: "/api/v1/pods"}})
	}
	var will *inheritance
	inherit := func(left ...handoverEntry) <-chan struct{} {
		will = newInheritance(left)
		return l.oweHandover(will)
	}
	at := func(host, version string) handoverEntry {
		return handoverEntry{Host: host, Resource: "pods", ResourceVersion: version}
	}
	require.Nil(t, inherit(at("a", "10"), at("b", "20")))
	require.NotNil(t, inherit(at("a", "11"), at("b", "20")))
	l.dropHandover(will)
	require.Equal(t, []handoverEntry{at("a", "11")}, will.rest(), "it was not seen")
	require.Zero(t, l.open.Load())
	require.ElementsMatch(t, []handoverEntry{at("a", "11"), at("b", "20")}, l.handoverEntries(),
		"what was inherited is passed on")
	require.NotNil(t, inherit(at("elsewhere", "12")), "the same server, by another name")
}

// The list-watches of an informer before and after a change of its scope count lists and rewinds each for itself. None
// of that says that the cluster has gone back: a debt stays open, and the handover has it.
func TestAnotherListWatchDoesNotMeanThatTheClusterHasGoneBack(t *testing.T) {
	for from, to := range map[string]string{"/api/v1/pods": "/api/v1/namespaces/default/pods",
		"/api/v1/namespaces/default/pods": "/api/v1/pods"} {
		l := newController(t, noting(&journal{}), Options{}).ledger
		pods := &rescoped{still: still{resourceVersion: "5", listed: 4, begun: 4}, rewinds: 1}
		c := l.cacheOf(pods)
		c.learner = &writes.Learner{}
		follow := func(path string) {
			c.learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: path}})
			namespace := ""
			if pods.apart = path != "/api/v1/pods"; pods.apart {
				namespace = "default"
			}
			l.reached(c, namespace)
		}
		follow(from)
		owing(parent, l).Wrote(klog.Background(), podWrite("a", "7", false))
		pods.rewinds, pods.listed, pods.begun = 0, 0, 5 // the new one has begun its first list
		follow(to)
		require.Len(t, openDebts(l), 1, to)
		require.Len(t, l.handoverEntries(), 1, to)
		require.Equal(t, "7", l.handoverEntries()[0].ResourceVersion, to)
	}
}

// rescoped is an informer whose scope changes.
type rescoped struct {
	still
	rewinds int
	apart   bool // it follows namespaces one by one
}

func (r *rescoped) HealthIn(namespace string) informer.Health {
	h := r.still.HealthIn(namespace)
	h.Rewinds = r.rewinds
	return h
}

func (r *rescoped) ResourceVersion(namespace string) string {
	if r.apart && namespace == metav1.NamespaceAll {
		return ""
	}
	return r.still.ResourceVersion(namespace)
}

// What was written while one namespace was followed by itself is not forgotten when all of them are.
func TestAWordOutlivesTheScope(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	pods := &still{resourceVersion: "5"}
	c := l.cacheOf(pods)
	c.learner = &writes.Learner{}
	follow := func(path string) { c.learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: path}}) }
	follow("/api/v1/namespaces/default/pods")
	owing(parent, l).Wrote(klog.Background(), podWrite("a", "7", false))
	require.Equal(t, []handoverEntry{{Host: "server", Resource: "pods", Namespace: "default", ResourceVersion: "7"}},
		l.handoverEntries())
	follow("/api/v1/pods")
	require.Equal(t, []handoverEntry{{Host: "server", Resource: "pods", ResourceVersion: "7"}}, l.handoverEntries())
	follow("/api/v1/namespaces/default/pods")
	require.Equal(t, []handoverEntry{{Host: "server", Resource: "pods", Namespace: "default", ResourceVersion: "7"}},
		l.handoverEntries())
}

// A Lease has no room for any number of namespaces. Of too many the next leader is told how far the furthest has got,
// and waits for that in each.
func TestAWordAboutTooManyNamespacesTellsThemNotApart(t *testing.T) {
	for _, namespaces := range []int{500, 2000} { // and one of another resource
		c := newController(t, noting(&journal{}), Options{})
		for range 2 { // caches of pods and configmaps
			c.ledger.cacheOf(&still{resourceVersion: "5"}).learner = &writes.Learner{}
		}
		write := func(cache int, namespace, resource string, resourceVersion int) {
			path := fmt.Sprintf("/api/v1/namespaces/%s/%s", namespace, resource)
			c.ledger.caches[cache].learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: path}})
			object := metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "u",
				ResourceVersion: fmt.Sprint(resourceVersion)}
			to := writes.Target{Host: "server", Resource: resource, Namespace: namespace}
			owing(parent, c.ledger).Wrote(klog.Background(),
				writes.NewWrite(to, http.MethodPost, 201, writes.Metadata{ObjectMeta: object}))
		}
		write(1, "default", "configmaps", 7)
		for i := range namespaces {
			write(0, fmt.Sprintf("team-%d", i), "pods", 1000+i*7%namespaces) // the last is not the latest
		}
		owing(parent, c.ledger).LostAnswer(klog.Background(), writes.Target{Host: "server", Resource: "pods",
			Namespace: "team-3"})
		word := (&Manager{opts: ManagerOptions{Controllers: []*Controller{c}}}).handoverText(nil)
		require.LessOrEqual(t, len(word), maxHandoverBytes)
		var left []handoverEntry
		require.NoError(t, json.Unmarshal([]byte(word), &left))
		if namespaces == 500 {
			require.Len(t, left, namespaces+1)
			continue
		}
		require.ElementsMatch(t, []handoverEntry{
			{Host: "server", Resource: "pods", ResourceVersion: fmt.Sprint(1000 + namespaces - 1), Relist: true},
			{Host: "server", Resource: "configmaps", ResourceVersion: "7"},
		}, left)
	}
}

// TestAWordSurvivesALeaderThatWritesNothing is a rolling update of three: the first leader writes, the second finds
// nothing to do, and the third, whose server lags, has to wait for what the first wrote.
func TestAWordSurvivesALeaderThatWritesNothing(t *testing.T) {
	for _, leads := range []bool{true, false} { // or is told to stop before its caches are there
		t.Run(fmt.Sprintf("and leads: %t", leads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lease{free: make(chan struct{}, 1)}
				l.free <- struct{}{}
				ahead, second, behind := newMapAPI(), newMapAPI(), newMapAPI()
				begins := make(chan struct{})
				one := replica(t, l, ahead, func(ctx context.Context, _ *cachedMaps) {
					<-begins
					child := ahead.Create(configMap("child"))
					w := writes.NewWrite(writes.Target{Host: "server", Resource: "configmaps"}, http.MethodPost, 201,
						writes.Metadata{ObjectMeta: child.ObjectMeta})
					reportIn(ctx, w)
				})
				synctest.Wait()
				ledTwo := 0
				two := replica(t, &turn{l, closed()}, second, func(context.Context, *cachedMaps) { ledTwo++ })
				var log journal
				var left time.Time
				last := &turn{l, make(chan struct{})}
				replica(t, last, behind, func(_ context.Context, children *cachedMaps) {
					log.note("%d child after %s and %d list", children.Len(), time.Since(left), children.Health().Lists)
				})
				synctest.Wait()
				behind.Hold()
				behind.Create(configMap("child"))
				if !leads {
					second.Hold()
				}
				second.Create(configMap("child"))
				close(begins)
				synctest.Wait()
				require.NoError(t, one())
				synctest.Wait()
				if leads {
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, 1, ledTwo)
				} else {
					require.Zero(t, ledTwo)
				}
				left = time.Now()
				require.NoError(t, two())
				close(last.comes)
				time.Sleep(time.Second)
				require.Empty(t, taken(&log), "its cache is behind")
				behind.Release()
				time.Sleep(time.Minute)
				require.Equal(t, []string{"1 child after 1s and 1 list"}, taken(&log), "it knows what to wait for")
			})
		})
	}
}

// TestAnElectorWithoutAHandoverListsAnew: nobody says what the last leader wrote, whichever Elector it is.
func TestAnElectorWithoutAHandoverListsAnew(t *testing.T) {
	l := &lease{free: make(chan struct{}, 1)}
	for name, elector := range map[string]Elector{
		"one with Run alone":                        tenures{closed()},
		"a wrapper that hides what the Elector has": struct{ Elector }{l},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l.free = make(chan struct{}, 1)
				l.free <- struct{}{}
				var log journal
				replica(t, elector, newMapAPI(), func(_ context.Context, children *cachedMaps) {
					log.note("called after %d lists", children.Health().Lists)
				})
				require.Equal(t, []string{"called after 2 lists"}, taken(&log))
			})
		})
	}
}

// tenures is an Elector that leads once, and knows of no handover.
type tenures struct{ comes chan struct{} }

func (e tenures) Run(ctx context.Context, lead func(context.Context) error) error {
	<-e.comes
	return lead(ctx)
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestWithoutAWordTheCachesListAnew although they have long followed the server, unless nobody can have written for a
// while.
func TestWithoutAWordTheCachesListAnew(t *testing.T) {
	for name, test := range map[string]struct {
		lease lease
		lists int
	}{
		"the Lease was released without a word": {lease{}, 2},
		"with one that cannot be read":          {lease{word: "by hand"}, 2},
		"the Lease was waited for":              {lease{lost: true}, 1},
		"with a word that nothing was written":  {lease{word: "[]"}, 1},
	} {
		for way, client := range map[string]func(api *mapAPI) informer.Client[*corev1.ConfigMapList]{
			"through TrackWrites": func(api *mapAPI) informer.Client[*corev1.ConfigMapList] { return learning{api} },
			"past TrackWrites":    func(api *mapAPI) informer.Client[*corev1.ConfigMapList] { return api },
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := test.lease
					l.free = make(chan struct{}, 1)
					lists := 0
					replicaOf(t, &l, client(newMapAPI()), func(_ context.Context, children *cachedMaps) {
						lists = children.Health().Lists
					})
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Zero(t, lists)
					l.free <- struct{}{}
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, test.lists, lists)
				})
			})
		}
	}
}

// TestWhatWroteAndDeletedTellIsHandedOver where no client makes its requests through TrackWrites.
func TestWhatWroteAndDeletedTellIsHandedOver(t *testing.T) {
	for name, test := range map[string]struct {
		does func(ctx context.Context, api *mapAPI, children *cachedMaps)
	}{
		"Wrote": {func(ctx context.Context, api *mapAPI, children *cachedMaps) {
			require.NoError(t, Wrote(ctx, children, api.Create(configMap("child"))))
		}},
		"Deleted": {func(ctx context.Context, api *mapAPI, children *cachedMaps) {
			child := api.Create(configMap("child"))
			api.Delete("default", "child")
			require.NoError(t, Deleted(ctx, children, child))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lease{free: make(chan struct{}, 1)}
				l.free <- struct{}{}
				ahead, behind := newMapAPI(), newMapAPI()
				writes := make(chan struct{})
				stop := replicaOf(t, l, ahead, func(ctx context.Context, children *cachedMaps) {
					<-writes
					ahead.Hold()
					test.does(ctx, ahead, children)
				})
				synctest.Wait()
				var log journal
				var left time.Time
				replicaOf(t, l, behind, func(_ context.Context, children *cachedMaps) {
					log.note("%d child after %s", children.Len(), time.Since(left))
				})
				synctest.Wait()
				behind.Hold()
				behind.Create(configMap("child"))
				if name == "Deleted" {
					behind.Delete("default", "child")
				}
				behind.BeforeList = func(metav1.ListOptions) error {
					if time.Since(left) < time.Second {
						return errors.New("no lists, either")
					}
					return nil
				}
				left = time.Now()
				close(writes)
				synctest.Wait()
				require.NoError(t, stop())
				time.Sleep(time.Second)
				require.Empty(t, taken(&log), l.word)
				behind.Release()
				time.Sleep(time.Minute)
				require.Len(t, taken(&log), 1, "it has waited, and then begun: %s", l.word)
			})
		})
	}
}

// TestAWordForgetsWhatTheClusterHasGoneBackFrom: no cache will ever show it.
func TestAWordForgetsWhatTheClusterHasGoneBackFrom(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	pods := listing(l, &still{resourceVersion: "5"})
	owing(parent, l).Wrote(klog.Background(), podWrite("a", "7", false))
	owing(parent, l).LostAnswer(klog.Background(),
		writes.Target{Host: "server", Resource: "pods", Namespace: "default"})
	pods.listed, pods.resourceVersion = pods.listed+1, "8"
	l.reached(l.caches[0], "")
	require.Equal(t, []handoverEntry{{Host: "server", Resource: "pods", ResourceVersion: "7", Listed: "8"}},
		l.handoverEntries())
	pods.listed, pods.resourceVersion = pods.listed+1, "3"
	require.Empty(t, l.handoverEntries())
	owing(parent, l).Wrote(klog.Background(), podWrite("a", "6", false))
	require.Equal(t, []handoverEntry{{Host: "server", Resource: "pods", ResourceVersion: "6"}}, l.handoverEntries())
}

// TestAListThatHasShownItAllNeedNotBeRepeated by a cache that has come as far since.
func TestAListThatHasShownItAllNeedNotBeRepeated(t *testing.T) {
	word := handoverEntry{Host: "server", Resource: "pods", Listed: "5"}
	for version, lists := range map[string]int{"4": 1, "5": 0, "6": 0} {
		l := newController(t, noting(&journal{}), Options{}).ledger
		pods := listing(l, &still{resourceVersion: version, listed: 1, begun: 1})
		settled := l.oweHandover(newInheritance([]handoverEntry{word}))
		require.Equal(t, lists, pods.relists, version)
		require.Equal(t, lists > 0, settled != nil)
		left := l.handoverEntries()
		require.Len(t, left, 1, "and the next one is told")
		require.Equal(t, lists > 0, left[0].Relist)
		require.True(t, left[0].Relist || left[0].Listed == "5")
	}
}

// An eviction costs the next leader a list. Once this leader's cache has listed, the next one's must have come as far
// as that list, and no further.
func TestAListCoversWhatHasNoVersion(t *testing.T) {
	const all, a, b = "/api/v1/pods", "/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"
	entry := func(namespace, listed string) handoverEntry {
		return handoverEntry{Host: "server", Resource: "pods", Namespace: namespace, Listed: listed,
			Relist: listed == ""}
	}
	for name, test := range map[string]struct {
		before, after []string // what the informer follows when the pod is evicted, and then
		gone          string   // a namespace that it has given up
		evicted       []handoverEntry
		half, covered []handoverEntry // when namespace a has been listed, and when all has been
	}{
		"all namespaces": {before: []string{all}, after: []string{all}, evicted: []handoverEntry{entry("", "")},
			half: []handoverEntry{entry("", "")}, covered: []handoverEntry{entry("", "10")}},
		"one of two": {before: []string{a, b}, after: []string{a, b}, evicted: []handoverEntry{entry("a", "")},
			half: []handoverEntry{entry("a", "11")}, covered: []handoverEntry{entry("a", "11")}},
		"all, and then two of them": {before: []string{all}, after: []string{a, b},
			evicted: []handoverEntry{entry("a", ""), entry("b", "")},
			half:    []handoverEntry{entry("a", ""), entry("b", "")},
			covered: []handoverEntry{entry("a", "11"), entry("b", "12")}},
		"all, then two of them, and then one": {before: []string{all}, after: []string{a, b}, gone: "b",
			evicted: []handoverEntry{entry("a", "")}, half: []handoverEntry{entry("a", "11")},
			covered: []handoverEntry{entry("a", "11")}},
		"one, and then all": {before: []string{a}, after: []string{all}, evicted: []handoverEntry{entry("", "")},
			half: []handoverEntry{entry("", "")}, covered: []handoverEntry{entry("", "10")}},
	} {
		for _, asked := range []bool{true, false} { // whether somebody asks for the handover meanwhile
			t.Run(fmt.Sprint(name, ", asked: ", asked), func(t *testing.T) {
				l := newController(t, noting(&journal{}), Options{}).ledger
				pods := newApart()
				c := l.cacheOf(pods)
				c.learner = &writes.Learner{}
				follow := func(paths []string) {
					for _, path := range paths {
						c.learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: path}})
					}
				}
				follow(test.before)
				owing(parent, l).WroteUnversioned(
					writes.Target{Host: "server", Resource: "pods", Namespace: "a", Name: "p"})
				follow(test.after)
				pods.gone = test.gone
				ask := func(want []handoverEntry) {
					if asked {
						require.ElementsMatch(t, want, l.handoverEntries())
					}
				}
				ask(test.evicted)
				pods.list(l, "a", "11")
				ask(test.half)
				pods.list(l, "b", "12")
				pods.list(l, "", "10")
				pods.versions = map[string]string{"": "100", "a": "101", "b": "102"}
				for namespace := range pods.versions {
					l.reached(c, namespace)
				}
				require.ElementsMatch(t, test.covered, l.handoverEntries(), "the cache has come further since")
				require.False(t, c.unlisted.Load(), "nothing is looked for any more")
			})
		}
	}
}

// The lists of single objects have no version in common.
func TestNoListCoversWhatHasNoVersionOfManySingleObjects(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	secrets := newApart()
	c := l.cacheOf(secrets)
	c.byName, c.learner = true, &writes.Learner{ByName: true}
	c.learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/namespaces/a/secrets"}})
	debtor{all: l.all}.LostAnswer(klog.Background(),
		writes.Target{Host: "server", Resource: "secrets", Namespace: "a", Name: "s"})
	secrets.list(l, "", "10")
	require.Equal(t, []handoverEntry{{Host: "server", Resource: "secrets", Relist: true}}, l.handoverEntries())
}

// apart is an informer that has come further in some places than in others.
type apart struct {
	still
	lists, listed map[string]int
	versions      map[string]string
	gone          string // a namespace that it no longer follows
}

func newApart() *apart {
	return &apart{lists: map[string]int{"": 1, "a": 1, "b": 1}, listed: map[string]int{"": 1, "a": 1, "b": 1},
		versions: map[string]string{"": "5", "a": "5", "b": "5"}}
}

// list begins a list and completes it.
func (a *apart) list(l *ledger, place, version string) {
	a.lists[place]++
	l.reached(l.caches[0], place)
	a.versions[place], a.listed[place] = version, a.lists[place]
	l.reached(l.caches[0], place)
}

func (a *apart) HealthIn(place string) informer.Health {
	if place != "" && place == a.gone {
		return informer.Health{}
	}
	return informer.Health{State: informer.Live, Lists: a.lists[place], Listed: a.listed[place]}
}

func (a *apart) ResourceVersion(place string) string { return a.versions[place] }

// A cache that has seen everything is not behind because the wait ends at the same moment.
func TestAHandoverThatIsSettledAtTheLastMomentIsSettled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		require.Empty(t, waitForHandover(ctx, []pendingHandover{{settled: closed()}, {settled: closed()}}, time.Hour))
	}
	late := make(chan struct{})
	require.Len(t, waitForHandover(ctx, []pendingHandover{{settled: late}, {settled: closed()}}, time.Hour), 1)
}

// At the end of its patience a new leader hands on what its caches have not seen, or do not have, and that alone.
func TestOnlyWhatWasNotSeenIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, noting(&journal{}), Options{})
		broken := newMapAPI()
		for name, api := range map[string]*mapAPI{"well": newMapAPI(), "broken": broken} {
			inf, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: name,
				DisableWatchList: true})
			require.NoError(t, err)
			DependsOn(c, inf)
		}
		began := time.Now()
		broken.BeforeList = func(metav1.ListOptions) error {
			if time.Since(began) > 0 {
				return errors.New("no")
			}
			return nil
		}
		elsewhere := handoverEntry{Host: "server", Resource: "pods", ResourceVersion: "7"}
		l := &lease{free: make(chan struct{}, 1)}
		stop := start(t, ManagerOptions{Controllers: []*Controller{c}, Elector: l})
		synctest.Wait()
		time.Sleep(time.Second)
		l.word = encodeHandover([]handoverEntry{{Informer: "well", Relist: true}, {Informer: "broken", Relist: true},
			elsewhere})
		l.free <- struct{}{}
		time.Sleep(time.Minute)
		require.Equal(t, status.StageWorking, c.manager.Inspect().Stage)
		require.NoError(t, stop())
		var left []handoverEntry
		require.NoError(t, json.Unmarshal([]byte(l.word), &left))
		require.Len(t, left, 3)
		require.Contains(t, left, elsewhere)
		require.Contains(t, left, handoverEntry{Informer: "broken", Relist: true})
		require.Contains(t, left, handoverEntry{Informer: "well", Listed: "1"}, "it has listed")
	})
}

// A list that the handover asks for is not asked for a second time because it takes long.
func TestALongListForAHandoverIsAskedForOnce(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	pods := listing(l, &still{listed: 1, begun: 1})
	require.NotNil(t, l.oweHandover(newInheritance([]handoverEntry{{Host: "server", Resource: "pods", Relist: true}})))
	require.Equal(t, 1, pods.relists)
	pendingHandover{ledger: l}.relist(klog.Background())
	require.Equal(t, 1, pods.relists)
}

// TestAnInformerOfAnotherName may be the one that a word is about: those that are known by name only list anew.
func TestAnInformerOfAnotherName(t *testing.T) {
	c := newController(t, noting(&journal{}), Options{})
	c.ledger.cacheOf(&still{}).learner = &writes.Learner{}
	m := &Manager{opts: ManagerOptions{Controllers: []*Controller{c}}}
	known := []handoverEntry{{Informer: "still", ResourceVersion: "7"}}
	require.Equal(t, known, m.withUnknownInformers(known))
	renamed := []handoverEntry{{Informer: "lively", ResourceVersion: "7"}}
	require.Equal(t, append(renamed, handoverEntry{Informer: "still", Relist: true}), m.withUnknownInformers(renamed))
	require.Equal(t, `[{"informer":"lively","resourceVersion":"7"}]`, m.handoverText(renamed), "it is passed on")
}

// TestTwoWordsAboutOnePlaceSayMore than either, and what cannot be compared is listed.
func TestTwoWordsAboutOnePlaceSayMore(t *testing.T) {
	at := func(v string) handoverEntry { return handoverEntry{ResourceVersion: v} }
	require.Equal(t, at("10"), at("9").merge(at("10")))
	require.Equal(t, at("10"), at("10").merge(at("9")))
	require.Equal(t, at("10"), at("").merge(at("10")))
	require.Equal(t, at("10"), at("10").merge(at("")))
	require.True(t, at("a").merge(at("b")).Relist)
	require.True(t, at("9").merge(handoverEntry{Relist: true}).Relist)
	require.Equal(t, "7", handoverEntry{Listed: "7"}.merge(handoverEntry{Listed: "6"}).Listed)
}

// The last leader has written an object that an informer does not select. No event tells the next leader's of that, and
// the next bookmark is far away.
func TestAHandoverDoesNotWaitForAnEventOfWhatIsNotSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		l := &lease{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		var log journal
		var left time.Time
		replica := func(r func(context.Context, typedcorev1.SecretInterface) error) (stop func() error) {
			config := server.Link().Config()
			config.Wrap(TrackWrites)
			secrets := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("default")
			some, err := informer.New[*corev1.Secret](secrets, informer.Options[*corev1.Secret]{
				LabelSelector: labels.SelectorFromSet(labels.Set{"role": "x"})})
			require.NoError(t, err)
			c := newController(t, func(ctx context.Context, _ Key) (Result, error) {
				return Result{}, r(ctx, secrets)
			}, Options{})
			DependsOn(c, some)
			c.Enqueue(parent)
			return start(t, ManagerOptions{Controllers: []*Controller{c}, Elector: l})
		}
		writes := make(chan struct{})
		stop := replica(func(ctx context.Context, secrets typedcorev1.SecretInterface) error {
			<-writes
			plain, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
				metav1.CreateOptions{})
			if err == nil {
				plain.StringData = map[string]string{"a": "b"}
				_, err = secrets.Update(ctx, plain, metav1.UpdateOptions{})
			}
			return err
		})
		synctest.Wait()
		replica(func(context.Context, typedcorev1.SecretInterface) error {
			log.note("called after %s", time.Since(left))
			return nil
		})
		synctest.Wait()
		close(writes)
		synctest.Wait()
		left = time.Now()
		require.NoError(t, stop())
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"called after 1s"}, taken(&log), l.word)
	})
}

// Each object of a Referenced cache has a watch of its own, so most of them lag behind what the last leader wrote to
// one of them, and nothing is wrong with that.
func TestAHandoverOfACacheOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		l := &lease{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		var log journal
		var left time.Time
		site := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "site"}}
		admin := kubernetes.NewForConfigOrDie(server.Config()).CoreV1()
		_, err := admin.ConfigMaps("default").Create(t.Context(), site, metav1.CreateOptions{})
		require.NoError(t, err)
		named := []string{"idle", "tls"}
		replica := func(link *reconciletest.Link, r func(context.Context, typedcorev1.SecretInterface,
			*informer.Referenced[*corev1.Secret]) error) (stop func() error) {
			config := link.Config()
			config.Wrap(TrackWrites)
			client := kubernetes.NewForConfigOrDie(config).CoreV1()
			sites, err := informer.New[*corev1.ConfigMap](client.ConfigMaps("default"),
				informer.Options[*corev1.ConfigMap]{})
			require.NoError(t, err)
			secrets, err := informer.NewReferenced[*corev1.Secret](client.Secrets, informer.Options[*corev1.Secret]{})
			require.NoError(t, err)
			c := newController(t, func(ctx context.Context, key Key) (Result, error) {
				if key.Name != "site" {
					return Result{}, nil
				}
				return Result{}, r(ctx, client.Secrets("default"), secrets)
			}, Options{})
			For(c, sites)
			References(c, sites, secrets, func(*corev1.ConfigMap) (keys []Key) {
				for _, name := range named {
					keys = append(keys, Key{Namespace: "default", Name: name})
				}
				return keys
			})
			return start(t, ManagerOptions{Controllers: []*Controller{c}, Elector: l})
		}
		writes := make(chan struct{})
		stop := replica(server.Link(), func(ctx context.Context, secrets typedcorev1.SecretInterface,
			_ *informer.Referenced[*corev1.Secret]) error {
			<-writes
			_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls"}},
				metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
		synctest.Wait()
		behind := server.Link()
		replica(behind, func(_ context.Context, _ typedcorev1.SecretInterface,
			secrets *informer.Referenced[*corev1.Secret]) error {
			s, exists, err := secrets.Get(Key{Namespace: "default", Name: "tls"})
			log.note("%v %v %v after %s", s != nil, exists, err, time.Since(left))
			return nil
		})
		synctest.Wait()
		behind.DelayWatches("secrets", 20*time.Second)
		close(writes)
		synctest.Wait()
		left = time.Now()
		require.NoError(t, stop())
		time.Sleep(15 * time.Second)
		require.Equal(t, []string{"true true <nil> after 1s"}, taken(&log), l.word)
		require.Contains(t, l.left, `"resource":"secrets"`)
		behind.DelayWatches("secrets", 0)
	})
}

// What nothing names any more may still be named as the next leader sees it.
func TestAHandoverOfWhatNothingNamesAnyMore(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	c := l.cacheOf(&rescoped{apart: true})
	c.byName, c.learner = true, &writes.Learner{ByName: true}
	c.learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/namespaces/default/secrets"}})
	c.written[metav1.NamespaceAll] = mark{resourceVersion: "7"}
	require.Len(t, l.handoverEntries(), 1)
	require.Equal(t, "7", l.handoverEntries()[0].ResourceVersion)
}
