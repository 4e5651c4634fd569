package reconcile

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
)

// The answer to the request that removes the last finalizer has the version that the request has found. Somebody else
// may have changed the object between the two, so a later state in the cache does not show that it has stayed.
func TestAnObjectIsGoneAlthoughTheCacheShowsALaterState(t *testing.T) {
	for name, owe := range map[string]func(l *ledger, o metadata){
		"answered": func(l *ledger, o metadata) {
			to := target{host: "server", resource: "pods", namespace: "default", name: "a"}
			owing(parent, l).wrote(klog.Background(), newWrite(to, http.MethodPatch, 200, o))
		},
		"reported": func(l *ledger, o metadata) {
			c := newController(t, keys(&journal{}), Options{})
			c.ledger = l
			w := newWorker(c, t.Context(), t.Context(), nil)
			ctx := &run{worker: w, key: parent}
			require.NoError(t, report(ctx, l.caches[0].trackedInformer, &o.ObjectMeta, false))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(func(Key) {}, func(Key, WaitRecord) {})
			has, held := informer.Version{UID: "u", ResourceVersion: "5", Deleting: true}, true
			pods := listing(l, &still{listed: 1, resourceVersion: "5",
				version: func(Key) (informer.Version, bool) { return has, held }})
			owe(l, metadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u",
				ResourceVersion: "5", DeletionTimestamp: &metav1.Time{}}})
			key := Key{Namespace: "default", Name: "a"}
			for _, version := range []string{"5", "6"} {
				has.ResourceVersion, pods.resourceVersion = version, version
				l.saw(l.caches[0], key, "u", version, false)
				l.reached(l.caches[0], "")
				require.True(t, l.park(parent), "the cache has it at version %s", version)
			}
			held, pods.resourceVersion = false, "7"
			l.saw(l.caches[0], key, "u", "7", true)
			l.reached(l.caches[0], "")
			require.False(t, l.park(parent))
		})
	}
}

// An object that is gone before the cache could show it is told by no event. Its key runs even so, once, unless the
// informer does not select the object. With a field selector the answer does not tell: then a change of an object that
// the cache has never held brings up no key, or each write to an object that is not selected would.
func TestAKeyWhoseWriteNoCacheHasShownRuns(t *testing.T) {
	for query, runs := range map[string]struct{ created, changed int }{
		"":                                 {1, 1},
		"fieldSelector=spec.nodeName%3Dn":  {1, 0},
		"labelSelector=app%3Dx":            {0, 0},
		"labelSelector=app%21%3Dx":         {1, 1},
		"fieldSelector=metadata.name%3D=a": {1, 1},
	} {
		for _, created := range []bool{true, false} {
			ran, want := 0, runs.changed
			l := newLedger(func(Key) { ran++ }, func(Key, WaitRecord) {})
			pods := &still{listed: 1, resourceVersion: "5"}
			c := l.cacheOf(pods)
			c.learner = &learner{}
			c.learner.learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods", RawQuery: query}})
			w := podWrite("a", "7", false)
			if w.created = created; created {
				want = runs.created
			}
			owing(parent, l).wrote(klog.Background(), w)
			pods.listed, pods.resourceVersion = 2, "9"
			l.reached(c, "")
			require.Zero(t, l.open.Load(), query)
			require.Equal(t, want, ran, "%s, created: %t", query, created)
		}
	}
}

// The cluster goes back to before a deletion that the cache has not shown: no event tells of that, either.
func TestAKeyRunsWhenTheClusterHasGoneBackToBeforeItsDeletion(t *testing.T) {
	ran := 0
	l := newLedger(func(Key) { ran++ }, func(Key, WaitRecord) {})
	pods := listing(l, &still{listed: 1, resourceVersion: "5", version: func(Key) (informer.Version, bool) {
		return informer.Version{UID: "u", ResourceVersion: "4"}, true
	}})
	owing(parent, l).wrote(klog.Background(), podWrite("a", "7", true))
	pods.listed = 2
	l.reached(l.caches[0], "")
	require.Zero(t, l.open.Load())
	require.Equal(t, 1, ran)
}
