package debts

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// TestLegaciesOfSeveralServersAreKeptApart has two caches of one resource, on servers of their own.
func TestLegaciesOfSeveralServersAreKeptApart(t *testing.T) {
	l := newLedger()
	var pods []*still
	for i, host := range []string{"a", "b"} {
		pods = append(pods, &still{resourceVersion: fmt.Sprint(10 * (i + 1)), listed: 1, begun: 1})
		c := l.CacheOf(pods[i])
		c.Learner = &writes.Learner{}
		c.Learner.Learn(&http.Request{URL: &url.URL{Host: host, Path: "/api/v1/pods"}})
	}
	var will *inheritance
	inherit := func(left ...Legacy) <-chan struct{} {
		will = newInheritance(left)
		return inherit(l, will)
	}
	at := func(host, version string) Legacy {
		return Legacy{Host: host, Resource: "pods", ResourceVersion: version}
	}
	require.Nil(t, inherit(at("a", "10"), at("b", "20")))
	require.NotNil(t, inherit(at("a", "11"), at("b", "20")))
	disinherit(l, will)
	require.Equal(t, []Legacy{at("a", "11")}, will.rest(), "it was not seen")
	require.Zero(t, l.open.Load())
	require.ElementsMatch(t, []Legacy{at("a", "11"), at("b", "20")}, l.left(),
		"what was inherited is passed on")
	require.NotNil(t, inherit(at("elsewhere", "12")), "the same server, by another name")
}

// TestAListThatHasShownItAllNeedNotBeRepeated by a cache that has come as far since.
func TestAListThatHasShownItAllNeedNotBeRepeated(t *testing.T) {
	listed := Legacy{Host: "server", Resource: "pods", Listed: "5"}
	for version, lists := range map[string]int{"4": 1, "5": 0, "6": 0} {
		l := newLedger()
		pods := listing(l, &still{resourceVersion: version, listed: 1, begun: 1})
		settled := inherit(l, newInheritance([]Legacy{listed}))
		require.Equal(t, lists, pods.relists, version)
		require.Equal(t, lists > 0, settled != nil)
		left := l.left()
		require.Len(t, left, 1, "and the next one is told")
		require.Equal(t, lists > 0, left[0].Relist)
		require.True(t, left[0].Relist || left[0].Listed == "5")
	}
}

// A cache that has seen everything is not behind because the wait ends at the same moment.
func TestAHandoverThatIsSettledAtTheLastMomentIsSettled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		require.Empty(t, await(ctx, []heir{{settled: closed()}, {settled: closed()}}, time.Hour))
	}
	late := make(chan struct{})
	require.Len(t, await(ctx, []heir{{settled: late}, {settled: closed()}}, time.Hour), 1)
}

// A list that the handover asks for is not asked for a second time because it takes long.
func TestALongListForAHandoverIsAskedForOnce(t *testing.T) {
	l := newLedger()
	pods := listing(l, &still{listed: 1, begun: 1})
	require.NotNil(t, inherit(l, newInheritance([]Legacy{{Host: "server", Resource: "pods", Relist: true}})))
	require.Equal(t, 1, pods.relists)
	heir{ledger: l}.relist(klog.Background())
	require.Equal(t, 1, pods.relists)
}

// TestAnInformerOfAnotherName may be the one that a legacy is about: those that are known by name only list anew.
func TestAnInformerOfAnotherName(t *testing.T) {
	l := newLedger()
	l.CacheOf(&still{}).Learner = &writes.Learner{}
	known := []Legacy{{Informer: "still", ResourceVersion: "7"}}
	require.Equal(t, known, Ledgers{l}.withUnknownInformers(known))
	renamed := []Legacy{{Informer: "lively", ResourceVersion: "7"}}
	require.Equal(t, append(renamed, Legacy{Informer: "still", Relist: true}),
		Ledgers{l}.withUnknownInformers(renamed))
}

// What the last leader has left is no key's: no key runs because the caches have come to show it.
func TestAHandoverBringsUpNoKey(t *testing.T) {
	var named []Key
	name := func(key Key) { named = append(named, key) }
	l := New(keys.New(false, -1, writes.ResourceOf), name, func(key Key, _ status.Wait) { name(key) })
	pods := listing(l, &still{resourceVersion: "5", listed: 1})
	settled := inherit(l, newInheritance([]Legacy{{Host: "server", Resource: "pods", ResourceVersion: "7"}}))
	require.NotNil(t, settled)
	pods.resourceVersion = "7"
	l.Reached(l.caches[0], "")
	<-settled
	require.Empty(t, named)
}

// What was written in one namespace is waited for where that namespace is followed, and nowhere else.
func TestAHandoverConcernsItsNamespace(t *testing.T) {
	for written, want := range map[string][]string{"a": {"", "a"}, "": {"", "a", "b"}} {
		var got []string
		for _, followed := range []string{"", "a", "b"} {
			left := Legacy{Host: "server", Resource: "pods", Namespace: written, ResourceVersion: "7"}
			scope := &writes.Scope{Target: writes.Target{Host: "server", Resource: "pods", Namespace: followed}}
			if left.concerns(scope) {
				got = append(got, followed)
			}
		}
		require.Equal(t, want, got, "%q", written)
	}
}
