package debts

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// The answer to the request that removes the last finalizer has the version that the request has found. Somebody else
// may have changed the object between the two, so a later state in the cache does not show that it has stayed.
func TestAnObjectIsGoneAlthoughTheCacheShowsALaterState(t *testing.T) {
	for name, owe := range map[string]func(l *Ledger, o writes.Metadata){
		"answered": func(l *Ledger, o writes.Metadata) {
			to := writes.Target{Host: "server", Resource: "pods", Namespace: "default", Name: "a"}
			l.Debtor(parent).Wrote(klog.Background(), writes.NewWrite(to, http.MethodPatch, 200, o))
		},
		"reported": func(l *Ledger, o writes.Metadata) {
			l.Debtor(parent).Report(l.caches[0], &o.ObjectMeta, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			has, held := informer.Version{UID: "u", ResourceVersion: "5", Deleting: true}, true
			pods := listing(l, &still{listed: 1, resourceVersion: "5",
				version: func(Key) (informer.Version, bool) { return has, held }})
			owe(l, writes.Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u",
				ResourceVersion: "5", DeletionTimestamp: &metav1.Time{}}})
			key := Key{Namespace: "default", Name: "a"}
			for _, version := range []string{"5", "6"} {
				has.ResourceVersion, pods.resourceVersion = version, version
				l.Saw(l.caches[0], key, "u", version, false)
				l.Reached(l.caches[0], "")
				require.True(t, l.Park(parent), "the cache has it at version %s", version)
			}
			held, pods.resourceVersion = false, "7"
			l.Saw(l.caches[0], key, "u", "7", true)
			l.Reached(l.caches[0], "")
			require.False(t, l.Park(parent))
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
			l := New(keys.New(false, -1, writes.ResourceOf), func(Key) { ran++ }, func(Key, status.Wait) {})
			pods := &still{listed: 1, resourceVersion: "5"}
			c := l.CacheOf(pods)
			c.Learner = &writes.Learner{}
			c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods", RawQuery: query}})
			w := podWrite("a", "7", false)
			if w.Created = created; created {
				want = runs.created
			}
			l.Debtor(parent).Wrote(klog.Background(), w)
			pods.listed, pods.resourceVersion = 2, "9"
			l.Reached(c, "")
			require.Zero(t, l.open.Load(), query)
			require.Equal(t, want, ran, "%s, created: %t", query, created)
		}
	}
}

// The cluster goes back to before a deletion that the cache has not shown: no event tells of that, either. An object
// whose deletion is not sure may just as well have stayed, which is no reason for a run.
func TestAKeyRunsWhenTheClusterHasGoneBackToBeforeItsDeletion(t *testing.T) {
	there := informer.Version{UID: "u", ResourceVersion: "4"}
	for name, test := range map[string]struct {
		has    informer.Version
		unsure bool
		want   int
	}{
		"it is there again":       {has: there, want: 1},
		"it may have stayed":      {has: there, unsure: true},
		"it is terminating":       {has: informer.Version{UID: "u", ResourceVersion: "8", Deleting: true}},
		"another has its name":    {has: informer.Version{UID: "namesake", ResourceVersion: "4"}},
		"nothing is of that name": {},
	} {
		ran := 0
		l := New(keys.New(false, -1, writes.ResourceOf), func(Key) { ran++ }, func(Key, status.Wait) {})
		pods := listing(l, &still{listed: 1, resourceVersion: "5", version: func(Key) (informer.Version, bool) {
			return test.has, test.has.UID != ""
		}})
		w := podWrite("a", "7", true)
		w.Unsure = test.unsure
		l.Debtor(parent).Wrote(klog.Background(), w)
		pods.listed = 2
		l.Reached(l.caches[0], "")
		require.Zero(t, l.open.Load())
		require.Equal(t, test.want, ran, name)
	}
}

// An answer may come when what it tells of is over: the cache has seen the object come and go. Then nothing names the
// key any more, and it runs for that reason.
func TestAKeyRunsIfItsWriteWasUndoneBeforeTheAnswer(t *testing.T) {
	for holds, want := range map[bool][]Key{false: {parent}, true: nil} {
		var named []Key
		l := New(keys.New(false, -1, writes.ResourceOf), func(key Key) { named = append(named, key) },
			func(Key, status.Wait) { t.Error("it is not parked") })
		listing(l, &still{listed: 1, resourceVersion: "9", version: func(key Key) (informer.Version, bool) {
			if key.Name == "b" {
				return informer.Version{UID: "there", ResourceVersion: "7"}, true
			}
			return informer.Version{UID: "u", ResourceVersion: "7"}, holds
		}})
		d, to := l.Debtor(parent), writes.Target{Host: "server", Resource: "pods"}
		d.Sends(to)
		d.Wrote(klog.Background(), podWrite("a", "7", false))
		there := podWrite("b", "7", false)
		there.UID = "there"
		d.Wrote(klog.Background(), there)
		require.Empty(t, openDebts(l))
		require.Empty(t, named)
		d.Answered(to)
		require.Equal(t, want, named)
	}
}

// For a deletion of what the cache does not hold there need be no event, unless the answer has the last version. Nor
// need there be one if the object may have stayed, whatever the cache holds: the cache is not behind then.
func TestHowLongADeletionMayTake(t *testing.T) {
	for name, test := range map[string]struct {
		held    bool
		version string
		unsure  bool
		after   time.Duration
	}{
		"the cache holds it":                     {held: true, after: DoubtAfter},
		"the cache does not hold it":             {after: unexpectedAfter},
		"the cache does not hold it, as it lags": {version: "7", after: DoubtAfter},
		"the cache holds it, and it may stay":    {held: true, unsure: true, after: unexpectedAfter},
		"it may stay, and the cache lags":        {version: "7", unsure: true, after: unexpectedAfter},
	} {
		l := newLedger()
		listing(l, &still{listed: 1, version: func(Key) (informer.Version, bool) {
			return informer.Version{UID: "u", ResourceVersion: "1"}, test.held
		}})
		w := podWrite("a", test.version, true)
		w.Deleted, w.Final, w.Unsure = true, test.version != "", test.unsure
		l.Debtor(parent).Wrote(klog.Background(), w)
		require.Len(t, openDebts(l), 1, name)
		d := openDebts(l)[0]
		require.Equal(t, test.after, d.overdueAt().Sub(d.openedAt), name)
		require.Equal(t, test.after == DoubtAfter, d.behindLocked() != nil, name)
	}
}

// That the server refuses a cache that comes and goes is looked at early. For a write it has as long as one that stays.
func TestHowLongACacheThatComesMayTake(t *testing.T) {
	l := newLedger()
	stays := l.CacheOf(&doubtful{err: informer.ErrStale})
	stays.Learner = &writes.Learner{}
	l.AwaitReady(parent, stays, Key{Namespace: "default"})
	learns := &writes.Learner{}
	learns.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods"}})
	comes := l.Join(&doubtful{still: still{listed: 1}, err: informer.ErrStale}, learns, nil)
	l.AwaitReady(parent, comes, Key{})
	l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "7", false))
	debts := openDebts(l)
	require.Len(t, debts, 3)
	for i, after := range []time.Duration{DoubtAfter, unexpectedAfter, DoubtAfter} {
		require.Equal(t, after, debts[i].overdueAt().Sub(debts[i].openedAt), "%+v", debts[i])
	}
}

// A parked key goes on when the cache is fresh again, be it by a mere bookmark.
func TestAKeyGoesOnWhenTheCacheIsFreshAgain(t *testing.T) {
	var woken []Key
	l := New(keys.New(false, -1, writes.ResourceOf), func(Key) {},
		func(key Key, _ status.Wait) { woken = append(woken, key) })
	pods := &doubtful{still: still{listed: 1}, err: informer.ErrStale}
	l.CacheOf(pods).Learner = &writes.Learner{}
	require.False(t, l.AwaitNamespaces(parent, []string{parent.Namespace}))
	require.True(t, l.Park(parent))
	l.Reached(l.caches[0], "")
	require.Empty(t, woken)
	pods.err = nil
	l.Reached(l.caches[0], "")
	require.Equal(t, []Key{parent}, woken)
}

// doubtful is an informer that may not be acted on while it has an error.
type doubtful struct {
	still
	err error
}

func (d *doubtful) Fresh(string) error { return d.err }

// What a key waits for is told up to a limit, and how much there is besides. Writes under way count as one.
func TestWhatAParkedKeyWaitsForHasALimit(t *testing.T) {
	l := newLedger()
	listing(l, &still{listed: 1})
	for i := range maxDebtsShown + 2 {
		l.Debtor(parent).Wrote(klog.Background(), podWrite(fmt.Sprint(i), "7", false))
	}
	for range 2 {
		l.Debtor(parent).Sends(writes.Target{Host: "server", Resource: "pods"})
	}
	require.True(t, l.Park(parent))
	wait, _, _ := l.table.Free(parent, status.WaitParked)
	require.Len(t, wait.Debts, maxDebtsShown)
	require.Equal(t, 3, wait.MoreDebts)
	all := l.Owed(parent, false)
	require.Len(t, all, maxDebtsShown+3)
}
