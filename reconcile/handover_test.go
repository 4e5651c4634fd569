package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
)

// lease is what two electors of one test have between them. Its word is written by who leads.
type lease struct {
	free chan struct{} // holds a token while nobody leads
	word string
	lost bool // whoever leads cannot leave any, as after a crash, and has been waited for
}

func (l *lease) Leave(word string) {
	if !l.lost {
		l.word = word
	}
}

func (l *lease) Left() (string, bool) { return l.word, l.lost }

func (l *lease) Run(ctx context.Context, lead func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.free:
	}
	defer func() { l.free <- struct{}{} }()
	return lead(ctx)
}

// replica runs a controller that reads api, and is called for one key when it comes to lead.
func replica(t *testing.T, l *lease, api *mapAPI, r func(ctx context.Context, children *informer.SharedIndexInformer[*corev1.ConfigMap])) (stop func() error) {
	children, err := informer.New[*corev1.ConfigMap](learning{api}, informer.Options[*corev1.ConfigMap]{Name: "children"})
	require.NoError(t, err)
	c := newController(t, func(ctx context.Context, _ Key) (Result, error) {
		r(ctx, children)
		return Result{}, nil
	}, Options{})
	Reads(c, children)
	c.Enqueue(parent)
	return start(t, ManagerOptions{Controllers: []*Controller{c}, Elector: l})
}

// TestTheNextLeaderWaitsForWhatTheLastOneWrote has a standby whose server lags behind that of the leader when the leader leaves.
func TestTheNextLeaderWaitsForWhatTheLastOneWrote(t *testing.T) {
	creates := func(ctx context.Context, api *mapAPI) {
		child := api.Create(configMap("child"))
		ctx.Value(runKey{}).(*run).wrote(ctx, "POST", newWrite(target{host: "server", resource: "configmaps"}, false, metadata{ObjectMeta: child.ObjectMeta}))
	}
	for name, test := range map[string]struct {
		does  func(ctx context.Context, api *mapAPI) // what the leader does
		heals time.Duration                          // when the server of the next one has caught up
		want  string
		lists int // that the next one has made by then
		crash bool
		since time.Duration // for how long the next one follows its server
	}{
		"it is there already":              {does: creates, want: "1 child after 0s", lists: 1},
		"it lags for a moment":             {does: creates, heals: time.Second, want: "1 child after 1s", lists: 1},
		"it lags until it is doubted":      {does: creates, heals: parkingTime + time.Second, want: "1 child after 11s", lists: 1},
		"it lags for ever":                 {does: creates, heals: time.Hour, want: "0 child after 20s", lists: 1},
		"a deletion that nobody has seen":  {does: func(ctx context.Context, api *mapAPI) { creates(ctx, api); deletes(ctx, api) }, want: "0 child after 0s", lists: 2},
		"an outcome that nobody knows yet": {does: loses, want: "0 child after 0s", lists: 2},
		"it has written nothing":           {does: func(context.Context, *mapAPI) {}, heals: time.Hour, want: "0 child after 0s", lists: 1},
		"a crash":                          {does: creates, crash: true, since: steadyTime, want: "1 child after 0s", lists: 1},
		"a crash, and a young watch":       {does: creates, crash: true, since: steadyTime - 1, want: "1 child after 0s", lists: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lease{free: make(chan struct{}, 1), lost: test.crash}
				l.free <- struct{}{}
				ahead, behind := newMapAPI(), newMapAPI() // two servers of one cluster
				stop := replica(t, l, ahead, func(ctx context.Context, _ *informer.SharedIndexInformer[*corev1.ConfigMap]) { test.does(ctx, ahead) })
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
				replica(t, l, behind, func(_ context.Context, children *informer.SharedIndexInformer[*corev1.ConfigMap]) {
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
	ctx.Value(runKey{}).(*run).wrote(ctx, "DELETE", newWrite(target{host: "server", resource: "configmaps"}, true, metadata{ObjectMeta: child.ObjectMeta}))
}

// loses leaves at once after a write whose answer was lost, before its cache has listed anew.
func loses(ctx context.Context, api *mapAPI) {
	api.Hold()
	ctx.Value(runKey{}).(*run).lost(ctx, target{host: "server", resource: "configmaps"})
}

func TestAWordThatCannotBeReadIsNoWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{free: make(chan struct{}, 1), word: "by hand"}
		l.free <- struct{}{}
		var log journal
		replica(t, l, newMapAPI(), func(context.Context, *informer.SharedIndexInformer[*corev1.ConfigMap]) { log.note("called") })
		require.Equal(t, []string{"called"}, taken(&log))
	})
}

// TestWordsOfSeveralServersAreKeptApart has two caches of one resource, on servers of their own.
func TestWordsOfSeveralServersAreKeptApart(t *testing.T) {
	l := newController(t, keys(&journal{}), Options{}).ledger
	var pods []*still
	for i, host := range []string{"a", "b"} {
		pods = append(pods, &still{resourceVersion: fmt.Sprint(10 * (i + 1))})
		c := l.cacheOf(pods[i])
		c.learner = &learner{}
		c.learner.learn(&http.Request{URL: &url.URL{Host: host, Path: "/api/v1/pods"}})
	}
	inherit := func(left ...legacy) <-chan struct{} { return l.inherit(left, make([]bool, len(left))) }
	require.Nil(t, inherit(legacy{Host: "a", Resource: "pods", ResourceVersion: "10"}, legacy{Host: "b", Resource: "pods", ResourceVersion: "20"}))
	require.NotNil(t, inherit(legacy{Host: "a", Resource: "pods", ResourceVersion: "11"}, legacy{Host: "b", Resource: "pods", ResourceVersion: "20"}))
	l.disinherit()
	require.Zero(t, l.open.Load())
	require.ElementsMatch(t, []legacy{{Host: "a", Resource: "pods", ResourceVersion: "11"}, {Host: "b", Resource: "pods", ResourceVersion: "20"}},
		l.legacies(), "what was inherited is left to the next one, too")
	require.NotNil(t, inherit(legacy{Host: "elsewhere", Resource: "pods", ResourceVersion: "12"}), "the same server, by another name")
}

// What was written while one namespace was followed by itself is not forgotten when all of them are.
func TestAWordOutlivesTheScope(t *testing.T) {
	l := newController(t, keys(&journal{}), Options{}).ledger
	pods := &still{resourceVersion: "5"}
	c := l.cacheOf(pods)
	c.learner = &learner{}
	follow := func(path string) { c.learner.learn(&http.Request{URL: &url.URL{Host: "server", Path: path}}) }
	follow("/api/v1/namespaces/default/pods")
	l.wrote(klog.Background(), parent, podWrite("a", "7", false))
	require.Equal(t, []legacy{{Host: "server", Resource: "pods", Namespace: "default", ResourceVersion: "7"}}, l.legacies())
	follow("/api/v1/pods")
	require.Equal(t, []legacy{{Host: "server", Resource: "pods", ResourceVersion: "7"}}, l.legacies())
	follow("/api/v1/namespaces/default/pods")
	require.Equal(t, []legacy{{Host: "server", Resource: "pods", Namespace: "default", ResourceVersion: "7"}}, l.legacies())
}

// A Lease has no room for any number of namespaces. Of too many the next leader is told how far the furthest has got, and waits for that in each.
func TestAWordAboutTooManyNamespacesTellsThemNotApart(t *testing.T) {
	for _, namespaces := range []int{maxLegacies - 1, maxLegacies} { // and one of another resource
		c := newController(t, keys(&journal{}), Options{})
		for range 2 { // caches of pods and configmaps
			c.ledger.cacheOf(&still{resourceVersion: "5"}).learner = &learner{}
		}
		write := func(cache int, namespace, resource string, resourceVersion int) {
			path := fmt.Sprintf("/api/v1/namespaces/%s/%s", namespace, resource)
			c.ledger.caches[cache].learner.learn(&http.Request{URL: &url.URL{Host: "server", Path: path}})
			object := metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "u", ResourceVersion: fmt.Sprint(resourceVersion)}
			c.ledger.wrote(klog.Background(), parent, newWrite(target{host: "server", resource: resource, namespace: namespace}, false, metadata{ObjectMeta: object}))
		}
		write(1, "default", "configmaps", 7)
		for i := range namespaces {
			write(0, fmt.Sprintf("team-%d", i), "pods", 1000+i*7%namespaces) // the last is not the latest
		}
		c.ledger.lost(klog.Background(), parent, target{host: "server", resource: "pods", namespace: "team-3"})
		word := (&Manager{opts: ManagerOptions{Controllers: []*Controller{c}}}).leave(nil)
		require.Less(t, len(word), 128<<10, "there is room for as much of somebody else")
		var left []legacy
		require.NoError(t, json.Unmarshal([]byte(word), &left))
		if namespaces < maxLegacies {
			require.Len(t, left, namespaces+1)
			continue
		}
		require.ElementsMatch(t, []legacy{
			{Host: "server", Resource: "pods", ResourceVersion: fmt.Sprint(1000 + namespaces - 1), Relist: true},
			{Host: "server", Resource: "configmaps", ResourceVersion: "7"},
		}, left)
	}
}
