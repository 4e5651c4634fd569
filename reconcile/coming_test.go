package reconcile

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// comes adds a cache of the Secrets of a namespace that comes and goes.
func comes(l *ledger, namespace string) *cache {
	of := &writes.Learner{}
	of.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/namespaces/" + namespace + "/secrets"}})
	return l.coming.join(&rescoped{apart: true}, of)
}

// secretWritten is an own write of a Secret of a namespace, at a version.
func secretWritten(namespace, version string) writes.Write {
	to := writes.Target{Host: "server", Resource: "secrets", Namespace: namespace}
	return writes.Write{Target: to, UID: "u", Created: true,
		Object: Key{Namespace: namespace, Name: "s"}, ResourceVersion: version}
}

func TestACacheThatComesIsFollowed(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	const address = "server/api/v1/namespaces/a/secrets/s"
	_, followed := l.follows(address)
	require.False(t, followed)
	c := comes(l, "a")
	to, followed := l.follows(address)
	require.True(t, followed)
	require.Equal(t, "a", to.Namespace)
	c.giveUp(l, klog.Background())
	_, followed = l.follows(address)
	require.False(t, followed)
}

// What another controller writes to a cache that comes and goes is for the next leader to see, also once it has gone.
func TestWritesOfOtherControllersToWhatComes(t *testing.T) {
	one, two := newController(t, noting(&journal{}), Options{}).ledger, newController(t, noting(&journal{}),
		Options{}).ledger
	all := []*ledger{one, two}
	c := comes(one, "a")
	by := debtor{owner: parent, ledger: two, all: all}
	by.Wrote(klog.Background(), secretWritten("a", "7"))
	expected := handoverEntry{Host: "server", Resource: "secrets", Namespace: "a", ResourceVersion: "7"}
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())
	c.giveUp(one, klog.Background())
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())
	by.Wrote(klog.Background(), secretWritten("a", "9"))
	expected.ResourceVersion = "9"
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())

	// A write that a cache has is not for what has gone.
	c = comes(one, "a")
	by.Wrote(klog.Background(), secretWritten("a", "11"))
	require.Contains(t, one.handoverEntries(), expected)
	c.giveUp(one, klog.Background())
	expected.ResourceVersion = "11"
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())
	by.LostAnswer(klog.Background(), secretWritten("a", "").Target)
	expected.Relist = true
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())
	require.Empty(t, two.handoverEntries())
}

// What was given up an hour ago is no longer told of, by whomever it was given up.
func TestWhatHasGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, noting(&journal{}), Options{})
		gone := comes(c.ledger, "a")
		debtor{owner: parent, ledger: c.ledger, all: []*ledger{c.ledger}}.Wrote(klog.Background(),
			secretWritten("a", "7"))
		gone.giveUp(c.ledger, klog.Background())
		time.Sleep(leftFor)
		require.Len(t, c.ledger.handoverEntries(), 1)
		time.Sleep(time.Second)
		require.Empty(t, c.ledger.handoverEntries())
		require.False(t, c.ledger.coming.knows(secretWritten("a", "").Target))
	})
	for _, lasts := range []time.Duration{time.Minute, 2 * leftFor} {
		synctest.Test(t, func(t *testing.T) {
			l := &lease{free: make(chan struct{}, 1)}
			l.free <- struct{}{}
			l.word = encodeHandover([]handoverEntry{{Host: "server", Resource: "secrets", Namespace: "a",
				ResourceVersion: "7"}})
			stop := replica(t, l, newMapAPI(), func(context.Context, *cachedMaps) {})
			time.Sleep(lasts)
			require.NoError(t, stop())
			require.Equal(t, lasts < leftFor, strings.Contains(l.word, "secrets"))
		})
	}
}

// What has gone takes no more room than a few hundred namespaces.
func TestWhatHasGoneIsToldByResource(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	for i := range 3 * maxLeft {
		c := comes(l, fmt.Sprint("n-", i))
		debtor{owner: parent, ledger: l, all: []*ledger{l}}.Wrote(klog.Background(),
			secretWritten(fmt.Sprint("n-", i), fmt.Sprint(100+i)))
		c.giveUp(l, klog.Background())
	}
	require.Zero(t, l.open.Load())
	left := l.handoverEntries()
	require.LessOrEqual(t, len(left), maxLeft)
	latest := handoverEntry{}
	for _, e := range left {
		require.Equal(t, "secrets", e.Resource)
		latest = latest.merge(e)
	}
	require.Equal(t, fmt.Sprint(100+3*maxLeft-1), latest.ResourceVersion)

	for i := range 3 * maxLeft { // kinds, of all namespaces
		c := l.coming.join(&still{listed: 1}, &writes.Learner{})
		c.learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: fmt.Sprint("/apis/g/v1/kinds", i)}})
		c.written[metav1.NamespaceAll] = mark{resourceVersion: "7", begun: 1}
		c.giveUp(l, klog.Background())
	}
	require.LessOrEqual(t, len(l.handoverEntries()), maxLeft)

	// Of an informer whose requests do not pass TrackWrites only the name is known.
	c := l.coming.join(&still{listed: 1}, &writes.Learner{})
	c.written[metav1.NamespaceAll] = mark{resourceVersion: "7", begun: 1}
	c.giveUp(l, klog.Background())
	unknown := 0
	for _, e := range l.handoverEntries() {
		if e.Informer != "" {
			unknown++
			require.True(t, e.Relist)
		}
	}
	require.Equal(t, 1, unknown)
}

// A key that comes while its informer is given up gets another one.
func TestAnInformerThatIsGivenUpWhileItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		d, err := NewDynamic("family", func(string) (*cachedMaps, error) {
			return informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{})
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		require.NoError(t, d.WaitForSync(ctx))
		ended, end := context.WithCancel(ctx)
		end()
		for range 50 {
			require.NoError(t, d.WaitForSync(ended), "it has begun")
		}
		old := &member[*corev1.ConfigMap]{over: make(chan struct{})}
		d.members["a"] = old
		d.giveUp(old)
		m, err := d.member("a")
		require.NoError(t, err)
		require.NotSame(t, old, m)
		require.ErrorIs(t, d.Run(ctx), informer.ErrStarted)
		cancel()
		require.NoError(t, <-done)
		delete(d.members, "a")
		_, err = d.member("a")
		require.ErrorIs(t, err, informer.ErrStopped)
	})
}

// What is refused is not among what is missing after SyncTimeout.
func TestNothingIsMissingThatIsNotWaitedFor(t *testing.T) {
	inf, err := informer.New[*corev1.ConfigMap](newMapAPI(), informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	m := &Manager{informers: []*managedInformer{{Informer: inf}}}
	ended, end := context.WithCancel(t.Context())
	end()
	require.Error(t, m.missingCaches(ended, nil))
	require.NoError(t, m.missingCaches(ended, map[Informer]bool{inf: true}))
}
