package reconcile

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
)

// comes adds a cache of the Secrets of a namespace that comes and goes.
func comes(l *ledger, namespace string) *cache {
	of := &learner{}
	of.learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/namespaces/" + namespace + "/secrets"}})
	return l.coming.join(&rescoped{apart: true}, of)
}

// secretWritten is an own write of a Secret of a namespace, at a version.
func secretWritten(namespace, version string) write {
	return write{target: target{host: "server", resource: "secrets", namespace: namespace}, uid: "u", created: true,
		object: Key{Namespace: namespace, Name: "s"}, resourceVersion: version}
}

func TestACacheThatComesIsFollowed(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	const address = "server/api/v1/namespaces/a/secrets/s"
	_, followed := l.follows(address)
	require.False(t, followed)
	c := comes(l, "a")
	to, followed := l.follows(address)
	require.True(t, followed)
	require.Equal(t, "a", to.namespace)
	c.giveUp(l)
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
	by.wrote(klog.Background(), secretWritten("a", "7"))
	expected := handoverEntry{Host: "server", Resource: "secrets", Namespace: "a", ResourceVersion: "7"}
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())
	c.giveUp(one)
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())
	by.wrote(klog.Background(), secretWritten("a", "9"))
	expected.ResourceVersion = "9"
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())

	// A write that a cache has is not for what has gone.
	c = comes(one, "a")
	by.wrote(klog.Background(), secretWritten("a", "11"))
	require.Contains(t, one.handoverEntries(), expected)
	c.giveUp(one)
	expected.ResourceVersion = "11"
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())
	by.lostAnswer(klog.Background(), secretWritten("a", "").target)
	expected.Relist = true
	require.Equal(t, []handoverEntry{expected}, one.handoverEntries())
	require.Empty(t, two.handoverEntries())
}

// What has gone takes no more room than a few hundred namespaces.
func TestWhatHasGoneIsToldByResource(t *testing.T) {
	l := newController(t, noting(&journal{}), Options{}).ledger
	for i := range 3 * maxLeft {
		c := comes(l, fmt.Sprint("n-", i))
		debtor{owner: parent, ledger: l, all: []*ledger{l}}.wrote(klog.Background(),
			secretWritten(fmt.Sprint("n-", i), fmt.Sprint(100+i)))
		c.giveUp(l)
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

	// Of an informer whose requests do not pass TrackWrites only the name is known.
	c := l.coming.join(&still{listed: 1}, &learner{})
	c.written[metav1.NamespaceAll] = mark{resourceVersion: "7", begun: 1}
	c.giveUp(l)
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
		old := &member[*corev1.ConfigMap]{}
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
