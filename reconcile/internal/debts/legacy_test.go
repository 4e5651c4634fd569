package debts

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Each kind of answer to a write of WhileLeading, and of a call, says something to the next leader.
func TestTheHandoverHasWhatEachKindOfWriteLeaves(t *testing.T) {
	const pods, pod = "https://server/api/v1/namespaces/a/pods", "https://server/api/v1/namespaces/a/pods/p"
	success := answering{code: 201, object: successOf(nil)}
	inserted := answering{code: 201, object: podCalled("p")}
	for name, test := range map[string]struct {
		method, url string
		answer      http.RoundTripper
		want        Legacy
	}{
		"a creation": {"POST", pods, inserted, Legacy{ResourceVersion: "7"}},
		"a scale": {"PUT", pod + "/scale", answering{code: 200, object: podCalled("p")},
			Legacy{ResourceVersion: "7"}},
		"a deletion": {"DELETE", pod, answering{code: 200, object: successOf(&metav1.StatusDetails{UID: "u"})},
			Legacy{Relist: true}},
		"a lost answer":   {"PUT", pod, answering{err: io.ErrUnexpectedEOF}, Legacy{Relist: true}},
		"an eviction":     {"POST", pod + "/eviction", success, Legacy{Relist: true}},
		"a lost eviction": {"POST", pod + "/eviction", answering{err: io.EOF}, Legacy{Relist: true}},
		"a binding":       {"POST", pod + "/binding", success, Legacy{Relist: true}},
		"a refused eviction": {"POST", pod + "/eviction", answering{code: 429, object: &metav1.Status{}},
			Legacy{}},
		"a token":                  {"POST", pod + "/token", success, Legacy{}},
		"a dry run":                {"POST", pods + "?dryRun=All", inserted, Legacy{}},
		"what no informer follows": {"POST", strings.ReplaceAll(pods, "pods", "secrets"), inserted, Legacy{}},
	} {
		t.Run(name, func(t *testing.T) {
			for who, debtor := range map[string]func(b *bench) Debtor{
				"a call":        func(b *bench) Debtor { return b.Debtor(b.key()) },
				"while leading": func(b *bench) Debtor { return Ledgers{b.Ledger}.Debtor() },
			} {
				b := newBench(t)
				s := b.follow(&still{listed: 1}, "https://server/api/v1/pods")
				b.by(t.Context(), debtor(b))
				b.send(test.method, test.url, nil, test.answer)
				if who == "while leading" {
					require.Empty(t, b.Ledger.accounts[b.key()])
				}
				entries := b.Ledger.left()
				if test.want == (Legacy{}) {
					require.Empty(t, entries, who)
					continue
				}
				test.want.Host, test.want.Resource = "server", "pods"
				require.Equal(t, []Legacy{test.want}, entries, who)
				s.listed, s.resourceVersion = 2, "9"
				b.Ledger.Reached(b.Ledger.caches[0], "")
				for _, e := range b.Ledger.left() {
					require.False(t, e.Relist, "%s: a list has shown it", who)
				}
				require.Zero(t, b.Ledger.open.Load(), who)
			}
		})
	}
}

// A controller writes to what only another one of its Manager follows, or sees only a part of. Its keys wait for none
// of that, and the next leader for all.
func TestTheHandoverHasWhatOnlyOtherControllersFollow(t *testing.T) {
	const pod = "https://server/api/v1/namespaces/a/pods/p"
	for name, test := range map[string]struct {
		method string
		answer http.RoundTripper
		want   Legacy
	}{
		"a change":      {"PUT", answering{code: 200, object: podCalled("p")}, Legacy{ResourceVersion: "7"}},
		"a lost answer": {"PUT", answering{err: io.ErrUnexpectedEOF}, Legacy{Relist: true}},
		"its last state": {"DELETE", answering{code: 200, object: podCalled("p")},
			Legacy{ResourceVersion: "7"}},
		"a mere deletion": {"DELETE", answering{code: 200, object: successOf(nil)}, Legacy{Relist: true}},
		"a refusal":       {"PUT", answering{code: 409, object: &metav1.Status{}}, Legacy{}},
	} {
		for _, own := range []string{"https://server/api/v1/secrets", "https://server/api/v1/pods?labelSelector=x"} {
			b, other := newBench(t, own), newBench(t, "https://server/api/v1/pods")
			Together(b.Ledger, other.Ledger)
			b.run(t.Context())
			b.send(test.method, pod, nil, transport(func(req *http.Request) (*http.Response, error) {
				for _, e := range other.Ledger.left() {
					require.True(t, e.Relist, "it may happen at any moment")
				}
				require.NotEmpty(t, other.Ledger.left())
				return test.answer.RoundTrip(req)
			}))
			require.Zero(t, other.Ledger.open.Load())
			require.Empty(t, other.Ledger.accounts)
			if test.want == (Legacy{}) {
				require.Empty(t, other.Ledger.left(), name)
				continue
			}
			test.want.Host, test.want.Resource = "server", "pods"
			require.Equal(t, []Legacy{test.want}, other.Ledger.left(), "%s, %s", name, own)
		}
	}
}

// Two controllers share an informer: the one that has deleted an object waits for the event, and the next leader need
// not list.
func TestAnInformerThatIsSharedIsNotedOnce(t *testing.T) {
	b, other := newBench(t), newBench(t)
	s := b.follow(&still{version: func(Key) (informer.Version, bool) {
		return informer.Version{UID: "u", ResourceVersion: "1"}, true
	}}, "https://server/api/v1/pods")
	other.follow(s, "https://server/api/v1/pods")
	Together(b.Ledger, other.Ledger)
	b.run(t.Context())
	b.send("DELETE", "https://server/api/v1/namespaces/a/pods/p", nil,
		answering{code: 200, object: successOf(&metav1.StatusDetails{UID: "u"})})
	require.Len(t, openDebts(b.Ledger), 1)
	require.Empty(t, other.Ledger.left())
}

// A write that is under way when the workers have ended may have happened.
func TestAWriteThatIsUnderWayIsHandedOver(t *testing.T) {
	b := newBench(t, "https://server/api/v1/pods")
	b.send("PUT", "https://server/api/v1/namespaces/a/pods/p", nil,
		transport(func(*http.Request) (*http.Response, error) {
			require.Equal(t, []Legacy{{Host: "server", Resource: "pods", Relist: true}},
				b.Ledger.left())
			require.True(t, b.Ledger.Park(b.key()))
			list := b.Ledger.Owed(b.key(), false)
			require.Equal(t, status.DebtUnderWay, list[0].Kind)
			return answering{code: 200, object: podCalled("p")}.RoundTrip(nil)
		}))
	list := b.Ledger.Owed(b.key(), false)
	require.Len(t, list, 1)
	require.Equal(t, status.DebtChange, list[0].Kind)
	require.Equal(t, types.UID("uid-p"), openDebts(b.Ledger)[0].uid)
}

// The caches that cannot show a write that is under way need not list anew for it.
func TestAWriteThatIsUnderWayConcernsTheCachesOfItsResource(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"pods", "secrets", "namespaces/a/pods", "namespaces/b/pods"} {
		b.follow(&still{resourceVersion: path}, "https://server/api/v1/"+path) // each is a cache of its own
	}
	b.Ledger.CacheOf(&still{}).Learner = &writes.Learner{} // whose requests do not pass TrackWrites
	pods := func(namespace string) Legacy {
		return Legacy{Host: "server", Resource: "pods", Namespace: namespace, Relist: true}
	}
	b.send("PUT", "https://server/api/v1/namespaces/a/pods/p", nil,
		transport(func(*http.Request) (*http.Response, error) {
			require.Equal(t, []Legacy{pods(""), pods("a"), {Informer: "still", Relist: true}},
				b.Ledger.left())
			return answering{code: 409, object: &metav1.Status{}}.RoundTrip(nil)
		}))
	require.Empty(t, b.Ledger.left(), "it has not happened")

	to := writes.Target{Host: "server", Resource: "secrets", Namespace: "a", Name: "s"}
	for range 2 {
		b.Ledger.Debtor(b.key()).Sends(to)
	}
	b.Ledger.Debtor(b.key()).Answered(to)
	require.Contains(t, b.Ledger.left(), Legacy{Host: "server", Resource: "secrets", Relist: true},
		"one of two is still under way")
	b.Ledger.Debtor(b.key()).Answered(to)
	require.Empty(t, b.Ledger.left())
	require.Empty(t, b.Ledger.underWay)
}

// key is that of the run.
func (b *bench) key() Key { return Key{Namespace: "a", Name: "owner"} }

// A transport that panics may have sent the write before.
func TestAWriteWhoseTransportPanicsIsOfUnknownOutcome(t *testing.T) {
	b := newBench(t, "https://server/api/v1/pods")
	require.Panics(t, func() {
		b.send("PUT", "https://server/api/v1/namespaces/a/pods/p", nil,
			transport(func(*http.Request) (*http.Response, error) { panic("swordfish") }))
	})
	list := b.Ledger.Owed(b.key(), false)
	require.Len(t, list, 1)
	require.Equal(t, status.DebtUnknown, list[0].Kind)
}

// The list-watches of an informer before and after a change of its scope count lists and rewinds each for itself. None
// of that says that the cluster has gone back: a debt stays open, and the handover has it.
func TestAnotherListWatchDoesNotMeanThatTheClusterHasGoneBack(t *testing.T) {
	for from, to := range map[string]string{"/api/v1/pods": "/api/v1/namespaces/default/pods",
		"/api/v1/namespaces/default/pods": "/api/v1/pods"} {
		l := newLedger()
		pods := &rescoped{still: still{resourceVersion: "5", listed: 4, begun: 4}, rewinds: 1}
		c := l.CacheOf(pods)
		c.Learner = &writes.Learner{}
		follow := func(path string) {
			c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: path}})
			namespace := ""
			if pods.apart = path != "/api/v1/pods"; pods.apart {
				namespace = "default"
			}
			l.Reached(c, namespace)
		}
		follow(from)
		l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "7", false))
		pods.rewinds, pods.listed, pods.begun = 0, 0, 5 // the new one has begun its first list
		follow(to)
		require.Len(t, openDebts(l), 1, to)
		require.Len(t, l.left(), 1, to)
		require.Equal(t, "7", l.left()[0].ResourceVersion, to)
	}
}

// What was written while one namespace was followed by itself is not forgotten when all of them are.
func TestALegacyOutlivesTheScope(t *testing.T) {
	l := newLedger()
	pods := &still{resourceVersion: "5"}
	c := l.CacheOf(pods)
	c.Learner = &writes.Learner{}
	follow := func(path string) { c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: path}}) }
	follow("/api/v1/namespaces/default/pods")
	l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "7", false))
	require.Equal(t, []Legacy{{Host: "server", Resource: "pods", Namespace: "default", ResourceVersion: "7"}},
		l.left())
	follow("/api/v1/pods")
	require.Equal(t, []Legacy{{Host: "server", Resource: "pods", ResourceVersion: "7"}}, l.left())
	follow("/api/v1/namespaces/default/pods")
	require.Equal(t, []Legacy{{Host: "server", Resource: "pods", Namespace: "default", ResourceVersion: "7"}},
		l.left())
}

// TestALegacyForgetsWhatTheClusterHasGoneBackFrom: no cache will ever show it.
func TestALegacyForgetsWhatTheClusterHasGoneBackFrom(t *testing.T) {
	l := newLedger()
	pods := listing(l, &still{resourceVersion: "5"})
	l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "7", false))
	l.Debtor(parent).LostAnswer(klog.Background(),
		writes.Target{Host: "server", Resource: "pods", Namespace: "default"})
	pods.listed, pods.resourceVersion = pods.listed+1, "8"
	l.Reached(l.caches[0], "")
	require.Equal(t, []Legacy{{Host: "server", Resource: "pods", ResourceVersion: "7", Listed: "8"}},
		l.left())
	pods.listed, pods.resourceVersion = pods.listed+1, "3"
	require.Empty(t, l.left())
	l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "6", false))
	require.Equal(t, []Legacy{{Host: "server", Resource: "pods", ResourceVersion: "6"}}, l.left())
}

// An eviction costs the next leader a list. Once this leader's cache has listed, the next one's must have come as far
// as that list, and no further.
func TestAListCoversWhatHasNoVersion(t *testing.T) {
	const all, a, b = "/api/v1/pods", "/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"
	entry := func(namespace, listed string) Legacy {
		return Legacy{Host: "server", Resource: "pods", Namespace: namespace, Listed: listed,
			Relist: listed == ""}
	}
	for name, test := range map[string]struct {
		before, after []string // what the informer follows when the pod is evicted, and then
		gone          string   // a namespace that it has given up
		evicted       []Legacy
		half, covered []Legacy // when namespace a has been listed, and when all has been
	}{
		"all namespaces": {before: []string{all}, after: []string{all}, evicted: []Legacy{entry("", "")},
			half: []Legacy{entry("", "")}, covered: []Legacy{entry("", "10")}},
		"one of two": {before: []string{a, b}, after: []string{a, b}, evicted: []Legacy{entry("a", "")},
			half: []Legacy{entry("a", "11")}, covered: []Legacy{entry("a", "11")}},
		"all, and then two of them": {before: []string{all}, after: []string{a, b},
			evicted: []Legacy{entry("a", ""), entry("b", "")},
			half:    []Legacy{entry("a", ""), entry("b", "")},
			covered: []Legacy{entry("a", "11"), entry("b", "12")}},
		"all, then two of them, and then one": {before: []string{all}, after: []string{a, b}, gone: "b",
			evicted: []Legacy{entry("a", "")}, half: []Legacy{entry("a", "11")},
			covered: []Legacy{entry("a", "11")}},
		"one, and then all": {before: []string{a}, after: []string{all}, evicted: []Legacy{entry("", "")},
			half: []Legacy{entry("", "")}, covered: []Legacy{entry("", "10")}},
	} {
		for _, asked := range []bool{true, false} { // whether somebody asks for the handover meanwhile
			t.Run(fmt.Sprint(name, ", asked: ", asked), func(t *testing.T) {
				l := newLedger()
				pods := newApart()
				c := l.CacheOf(pods)
				c.Learner = &writes.Learner{}
				follow := func(paths []string) {
					for _, path := range paths {
						c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: path}})
					}
				}
				follow(test.before)
				l.Debtor(parent).WroteUnversioned(
					writes.Target{Host: "server", Resource: "pods", Namespace: "a", Name: "p"})
				follow(test.after)
				pods.gone = test.gone
				ask := func(want []Legacy) {
					if asked {
						require.ElementsMatch(t, want, l.left())
					}
				}
				ask(test.evicted)
				pods.list(l, "a", "11")
				ask(test.half)
				pods.list(l, "b", "12")
				pods.list(l, "", "10")
				pods.versions = map[string]string{"": "100", "a": "101", "b": "102"}
				for namespace := range pods.versions {
					l.Reached(c, namespace)
				}
				require.ElementsMatch(t, test.covered, l.left(), "the cache has come further since")
				require.False(t, c.unlisted.Load(), "nothing is looked for any more")
			})
		}
	}
}

// The lists of single objects have no version in common.
func TestNoListCoversWhatHasNoVersionOfManySingleObjects(t *testing.T) {
	l := newLedger()
	secrets := newApart()
	c := l.CacheOf(secrets)
	c.byName, c.Learner = true, &writes.Learner{ByName: true}
	c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/namespaces/a/secrets"}})
	Ledgers{l}.Debtor().LostAnswer(klog.Background(),
		writes.Target{Host: "server", Resource: "secrets", Namespace: "a", Name: "s"})
	secrets.list(l, "", "10")
	require.Equal(t, []Legacy{{Host: "server", Resource: "secrets", Relist: true}}, l.left())
}

// TestTwoLegaciesAboutOnePlaceSayMore than either, and what cannot be compared is listed.
func TestTwoLegaciesAboutOnePlaceSayMore(t *testing.T) {
	at := func(v string) Legacy { return Legacy{ResourceVersion: v} }
	require.Equal(t, at("10"), at("9").merge(at("10")))
	require.Equal(t, at("10"), at("10").merge(at("9")))
	require.Equal(t, at("10"), at("").merge(at("10")))
	require.Equal(t, at("10"), at("10").merge(at("")))
	require.True(t, at("a").merge(at("b")).Relist)
	require.True(t, at("9").merge(Legacy{Relist: true}).Relist)
	require.Equal(t, "7", Legacy{Listed: "7"}.merge(Legacy{Listed: "6"}).Listed)
}

// What nothing names any more may still be named as the next leader sees it.
func TestAHandoverOfWhatNothingNamesAnyMore(t *testing.T) {
	l := newLedger()
	c := l.CacheOf(&rescoped{apart: true})
	c.byName, c.Learner = true, &writes.Learner{ByName: true}
	c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/namespaces/default/secrets"}})
	c.written[metav1.NamespaceAll] = mark{resourceVersion: "7"}
	require.Len(t, l.left(), 1)
	require.Equal(t, "7", l.left()[0].ResourceVersion)
}

// TestWhatSomeKeysLeave: an unknown outcome or a missing answer of one key costs the next process that runs another one
// no list. Versions are told, whoever has written.
func TestWhatSomeKeysLeave(t *testing.T) {
	one, two := Key{Namespace: "default", Name: "one"}, Key{Namespace: "default", Name: "two"}
	pods := writes.Target{Host: "server", Resource: "pods"}
	log := klog.Logger{}
	for name, test := range map[string]struct {
		does     func(d Debtor)
		one, two []Legacy
		writers  int
	}{
		"a change": {func(d Debtor) { d.Wrote(log, podWrite("p", "7", false)) },
			[]Legacy{{Host: "server", Resource: "pods", ResourceVersion: "7"}},
			[]Legacy{{Host: "server", Resource: "pods", ResourceVersion: "7"}}, 1},
		"a deletion": {func(d Debtor) { d.Wrote(log, podWrite("p", "7", true)) },
			[]Legacy{{Host: "server", Resource: "pods", ResourceVersion: "7", Relist: true}},
			[]Legacy{{Host: "server", Resource: "pods", ResourceVersion: "7"}}, 1},
		"a lost answer": {func(d Debtor) { d.LostAnswer(log, pods) },
			[]Legacy{{Host: "server", Resource: "pods", Relist: true}}, nil, 1},
		"a write under way": {func(d Debtor) { d.Sends(pods) },
			[]Legacy{{Host: "server", Resource: "pods", Relist: true}}, nil, 1},
		"nothing": {func(Debtor) {}, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, other := newLedger(), newLedger()
			listing(l, &still{listed: 1})
			all := Together(l, other)
			test.does(l.Debtor(one))
			require.Len(t, all.Writers(), test.writers)
			require.Equal(t, test.one, all.LeftBy(map[Key]bool{one: true}))
			require.Equal(t, test.two, all.LeftBy(map[Key]bool{two: true}))
			require.Equal(t, test.two, all.LeftBy(map[Key]bool{}))
			require.Equal(t, test.one, all.Left())
		})
	}
}
