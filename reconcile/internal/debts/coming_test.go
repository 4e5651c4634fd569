package debts

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// comes adds a cache of the Secrets of a namespace that comes and goes.
func comes(l *Ledger, namespace string) *Cache {
	of := &writes.Learner{}
	of.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/namespaces/" + namespace + "/secrets"}})
	return l.Join(&rescoped{apart: true}, of, nil)
}

// secretWritten is an own write of a Secret of a namespace, at a version.
func secretWritten(namespace, version string) writes.Write {
	to := writes.Target{Host: "server", Resource: "secrets", Namespace: namespace}
	return writes.Write{Target: to, UID: "u", Created: true,
		Object: Key{Namespace: namespace, Name: "s"}, ResourceVersion: version}
}

func TestACacheThatComesIsFollowed(t *testing.T) {
	l := newLedger()
	const address = "server/api/v1/namespaces/a/secrets/s"
	_, followed := follows(l, address)
	require.False(t, followed)
	c := comes(l, "a")
	to, followed := follows(l, address)
	require.True(t, followed)
	require.Equal(t, "a", to.Namespace)
	l.GiveUp(c, klog.Background())
	_, followed = follows(l, address)
	require.False(t, followed)
}

// What another controller writes to a cache that comes and goes is for the next leader to see, also once it has gone.
func TestWritesOfOtherControllersToWhatComes(t *testing.T) {
	one, two := newLedger(), newLedger()
	Together(one, two)
	c := comes(one, "a")
	by := two.Debtor(parent)
	by.Wrote(klog.Background(), secretWritten("a", "7"))
	expected := Legacy{Host: "server", Resource: "secrets", Namespace: "a", ResourceVersion: "7"}
	require.Equal(t, []Legacy{expected}, one.left())
	one.GiveUp(c, klog.Background())
	require.Equal(t, []Legacy{expected}, one.left())
	by.Wrote(klog.Background(), secretWritten("a", "9"))
	expected.ResourceVersion = "9"
	require.Equal(t, []Legacy{expected}, one.left())

	// A write that a cache has is not for what has gone.
	c = comes(one, "a")
	by.Wrote(klog.Background(), secretWritten("a", "11"))
	require.Contains(t, one.left(), expected)
	one.GiveUp(c, klog.Background())
	expected.ResourceVersion = "11"
	require.Equal(t, []Legacy{expected}, one.left())
	by.LostAnswer(klog.Background(), secretWritten("a", "").Target)
	expected.Relist = true
	require.Equal(t, []Legacy{expected}, one.left())
	require.Empty(t, two.left())
}

// What was given up an hour ago is no longer told of, by whomever it was given up.
func TestWhatHasGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		gone := comes(l, "a")
		l.Debtor(parent).Wrote(klog.Background(), secretWritten("a", "7"))
		l.GiveUp(gone, klog.Background())
		time.Sleep(LeftFor)
		require.Len(t, l.left(), 1)
		time.Sleep(time.Second)
		require.Empty(t, l.left())
		require.False(t, l.coming.knows(secretWritten("a", "").Target))
	})
}

// What has gone takes no more room than a few hundred namespaces.
func TestWhatHasGoneIsToldByResource(t *testing.T) {
	l := newLedger()
	for i := range 3 * maxLeft {
		c := comes(l, fmt.Sprint("n-", i))
		l.Debtor(parent).Wrote(klog.Background(),
			secretWritten(fmt.Sprint("n-", i), fmt.Sprint(100+i)))
		l.GiveUp(c, klog.Background())
	}
	require.Zero(t, l.open.Load())
	left := l.left()
	require.LessOrEqual(t, len(left), maxLeft)
	latest := Legacy{}
	for _, e := range left {
		require.Equal(t, "secrets", e.Resource)
		latest = latest.merge(e)
	}
	require.Equal(t, fmt.Sprint(100+3*maxLeft-1), latest.ResourceVersion)

	for i := range 3 * maxLeft { // kinds, of all namespaces
		c := l.Join(&still{listed: 1}, &writes.Learner{}, nil)
		c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: fmt.Sprint("/apis/g/v1/kinds", i)}})
		c.written[metav1.NamespaceAll] = mark{resourceVersion: "7", begun: 1}
		l.GiveUp(c, klog.Background())
	}
	require.LessOrEqual(t, len(l.left()), maxLeft)

	// Of an informer whose requests do not pass TrackWrites only the name is known.
	c := l.Join(&still{listed: 1}, &writes.Learner{}, nil)
	c.written[metav1.NamespaceAll] = mark{resourceVersion: "7", begun: 1}
	l.GiveUp(c, klog.Background())
	unknown := 0
	for _, e := range l.left() {
		if e.Informer != "" {
			unknown++
			require.True(t, e.Relist)
		}
	}
	require.Equal(t, 1, unknown)
}

// A write is noted for the next leader in the caches that the writer's controller does not have.
func TestWritesAreNotedWhereTheControllerHasNoCache(t *testing.T) {
	one, two := newLedger(), newLedger()
	shared := &still{}
	one.Join(shared, &writes.Learner{}, nil)
	two.Join(shared, &writes.Learner{}, nil)
	alone := two.Join(&still{}, &writes.Learner{}, nil)
	var noted []*Cache
	Together(one, two)
	one.Debtor(parent).note(func(c *Cache) { noted = append(noted, c) })
	require.Equal(t, []*Cache{alone}, noted)
}

// A trouble that was logged ends in the log, too, when its informer is given up.
func TestALoggedTroubleEndsWithItsInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
		l := newLedger()
		c := comes(l, "a")
		c.listAfter("")
		l.AwaitReady(parent, c, Key{})
		time.Sleep(DoubtAfter - time.Second)
		lines, _ := l.relister.scan()
		require.Empty(t, lines, "it is not yet worth a line")
		time.Sleep(minPause)
		lines, _ = l.relister.scan()
		require.Len(t, lines, 1)
		require.Equal(t, cacheNotReady, lines[0].trouble)
		l.GiveUp(c, log)
		require.Contains(t, fmt.Sprint(said), string(allQuiet))
		require.Zero(t, l.open.Load())
	})
}

// A write to what was just given up is followed from the moment at which it is sent: the informer may come again, and
// list, before its answer is lost.
func TestAWriteToWhatWasGivenUpIsFollowed(t *testing.T) {
	l := newLedger()
	of := func() *Cache {
		learns := &writes.Learner{}
		learns.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/namespaces/a/secrets"}})
		return l.Join(&rescoped{apart: true, still: still{listed: 1}}, learns, nil)
	}
	l.GiveUp(of(), klog.Background())
	by := l.Debtor(parent)
	to, followed := by.TargetOf(klog.Background(), "server/api/v1/namespaces/a/secrets/s")
	require.True(t, followed)
	by.Sends(to)
	require.True(t, l.Park(parent), "it waits for the answer")
	of()
	by.LostAnswer(klog.Background(), to)
	by.Answered(to)
	debts := l.Owed(parent, false)
	require.Len(t, debts, 1)
	require.Equal(t, status.DebtUnknown, debts[0].Kind)
	_, followed = by.TargetOf(klog.Background(), "server/api/v1/namespaces/a/pods/s")
	require.False(t, followed)
}
