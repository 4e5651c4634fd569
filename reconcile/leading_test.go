package reconcile

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// A function of WhileLeading makes an object if the cache has none. The next leader's must not make another one because
// its watch is late.
func TestWhatIsWrittenWhileLeadingIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		l := &lease{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		writes, made := make(chan struct{}), make(chan struct{})
		replica := func(link *reconciletest.Link) (stop func() error) {
			config := link.Config()
			config.Wrap(TrackWrites)
			secrets := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("default")
			inf, err := informer.New[*corev1.Secret](secrets, informer.Options[*corev1.Secret]{})
			require.NoError(t, err)
			c := newController(t, noting(&journal{}), Options{})
			For(c, inf)
			return start(t, ManagerOptions{Controllers: []*Controller{c}, Elector: l,
				WhileLeading: map[string]func(context.Context) error{"maker": func(ctx context.Context) error {
					<-writes
					defer func() { made <- struct{}{} }()
					if inf.Len() > 0 {
						return nil
					}
					_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}},
						metav1.CreateOptions{})
					return err
				}}})
		}
		stop := replica(server.Link())
		synctest.Wait()
		second := server.Link()
		replica(second)
		time.Sleep(time.Second)
		second.DelayWatches("secrets", 3*time.Second)
		close(writes)
		<-made
		go func() { _ = stop() }()
		<-made
		all, err := kubernetes.NewForConfigOrDie(server.Link().Config()).CoreV1().Secrets("default").List(t.Context(),
			metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, all.Items, 1)
	})
}

// Each kind of answer to a write of WhileLeading, and of a call, says something to the next leader.
func TestTheHandoverHasWhatEachKindOfWriteLeaves(t *testing.T) {
	const pods, pod = "https://server/api/v1/namespaces/a/pods", "https://server/api/v1/namespaces/a/pods/p"
	success := answering{code: 201, object: successOf(nil)}
	inserted := answering{code: 201, object: podCalled("p")}
	for name, test := range map[string]struct {
		method, url string
		answer      http.RoundTripper
		want        handoverEntry
	}{
		"a creation": {"POST", pods, inserted, handoverEntry{ResourceVersion: "7"}},
		"a scale": {"PUT", pod + "/scale", answering{code: 200, object: podCalled("p")},
			handoverEntry{ResourceVersion: "7"}},
		"a deletion": {"DELETE", pod, answering{code: 200, object: successOf(&metav1.StatusDetails{UID: "u"})},
			handoverEntry{Relist: true}},
		"a lost answer":   {"PUT", pod, answering{err: io.ErrUnexpectedEOF}, handoverEntry{Relist: true}},
		"an eviction":     {"POST", pod + "/eviction", success, handoverEntry{Relist: true}},
		"a lost eviction": {"POST", pod + "/eviction", answering{err: io.EOF}, handoverEntry{Relist: true}},
		"a binding":       {"POST", pod + "/binding", success, handoverEntry{Relist: true}},
		"a refused eviction": {"POST", pod + "/eviction", answering{code: 429, object: &metav1.Status{}},
			handoverEntry{}},
		"a token":                  {"POST", pod + "/token", success, handoverEntry{}},
		"a dry run":                {"POST", pods + "?dryRun=All", inserted, handoverEntry{}},
		"what no informer follows": {"POST", strings.ReplaceAll(pods, "pods", "secrets"), inserted, handoverEntry{}},
	} {
		t.Run(name, func(t *testing.T) {
			for who, from := range map[string]func(b *bench) context.Context{
				"a call": func(b *bench) context.Context { return b.ctx },
				"while leading": func(b *bench) context.Context {
					return withWriter(t.Context(), []*ledger{b.ledger})
				},
			} {
				b := newBench(t)
				s := b.follow(&still{listed: 1}, "https://server/api/v1/pods")
				b.ctx = from(b)
				b.send(test.method, test.url, nil, test.answer)
				if who == "while leading" {
					require.Empty(t, b.ledger.accounts[b.key()])
				}
				entries := b.ledger.handoverEntries()
				if test.want == (handoverEntry{}) {
					require.Empty(t, entries, who)
					continue
				}
				test.want.Host, test.want.Resource = "server", "pods"
				require.Equal(t, []handoverEntry{test.want}, entries, who)
				s.listed, s.resourceVersion = 2, "9"
				b.ledger.reached(b.ledger.caches[0], "")
				for _, e := range b.ledger.handoverEntries() {
					require.False(t, e.Relist, "%s: a list has shown it", who)
				}
				require.Zero(t, b.ledger.open.Load(), who)
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
		want   handoverEntry
	}{
		"a change":      {"PUT", answering{code: 200, object: podCalled("p")}, handoverEntry{ResourceVersion: "7"}},
		"a lost answer": {"PUT", answering{err: io.ErrUnexpectedEOF}, handoverEntry{Relist: true}},
		"its last state": {"DELETE", answering{code: 200, object: podCalled("p")},
			handoverEntry{ResourceVersion: "7"}},
		"a mere deletion": {"DELETE", answering{code: 200, object: successOf(nil)}, handoverEntry{Relist: true}},
		"a refusal":       {"PUT", answering{code: 409, object: &metav1.Status{}}, handoverEntry{}},
	} {
		for _, own := range []string{"https://server/api/v1/secrets", "https://server/api/v1/pods?labelSelector=x"} {
			b, other := newBench(t, own), newBench(t, "https://server/api/v1/pods")
			all := []*ledger{b.ledger, other.ledger}
			b.ledger.all, other.ledger.all = all, all
			b.send(test.method, pod, nil, transport(func(req *http.Request) (*http.Response, error) {
				for _, e := range other.ledger.handoverEntries() {
					require.True(t, e.Relist, "it may happen at any moment")
				}
				require.NotEmpty(t, other.ledger.handoverEntries())
				return test.answer.RoundTrip(req)
			}))
			require.Zero(t, other.ledger.open.Load())
			require.Empty(t, other.ledger.accounts)
			if test.want == (handoverEntry{}) {
				require.Empty(t, other.ledger.handoverEntries(), name)
				continue
			}
			test.want.Host, test.want.Resource = "server", "pods"
			require.Equal(t, []handoverEntry{test.want}, other.ledger.handoverEntries(), "%s, %s", name, own)
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
	b.ledger.all = []*ledger{b.ledger, other.ledger}
	b.send("DELETE", "https://server/api/v1/namespaces/a/pods/p", nil,
		answering{code: 200, object: successOf(&metav1.StatusDetails{UID: "u"})})
	require.Len(t, openDebts(b.ledger), 1)
	require.Empty(t, other.ledger.handoverEntries())
}

// A write that is under way when the workers have ended may have happened.
func TestAWriteThatIsUnderWayIsHandedOver(t *testing.T) {
	b := newBench(t, "https://server/api/v1/pods")
	b.send("PUT", "https://server/api/v1/namespaces/a/pods/p", nil,
		transport(func(*http.Request) (*http.Response, error) {
			require.Equal(t, []handoverEntry{{Host: "server", Resource: "pods", Relist: true}},
				b.ledger.handoverEntries())
			require.True(t, b.ledger.park(b.key()))
			list := b.ledger.owed(b.key(), false)
			require.Equal(t, status.DebtUnderWay, list[0].Kind)
			return answering{code: 200, object: podCalled("p")}.RoundTrip(nil)
		}))
	list := b.ledger.owed(b.key(), false)
	require.Len(t, list, 1)
	require.Equal(t, status.DebtChange, list[0].Kind)
	require.Equal(t, types.UID("uid-p"), openDebts(b.ledger)[0].uid)
}

// The caches that cannot show a write that is under way need not list anew for it.
func TestAWriteThatIsUnderWayConcernsTheCachesOfItsResource(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"pods", "secrets", "namespaces/a/pods", "namespaces/b/pods"} {
		b.follow(&still{resourceVersion: path}, "https://server/api/v1/"+path) // each is a cache of its own
	}
	b.ledger.cacheOf(&still{}).learner = &writes.Learner{} // whose requests do not pass TrackWrites
	pods := func(namespace string) handoverEntry {
		return handoverEntry{Host: "server", Resource: "pods", Namespace: namespace, Relist: true}
	}
	b.send("PUT", "https://server/api/v1/namespaces/a/pods/p", nil,
		transport(func(*http.Request) (*http.Response, error) {
			require.Equal(t, []handoverEntry{pods(""), pods("a"), {Informer: "still", Relist: true}},
				b.ledger.handoverEntries())
			return answering{code: 409, object: &metav1.Status{}}.RoundTrip(nil)
		}))
	require.Empty(t, b.ledger.handoverEntries(), "it has not happened")

	to := writes.Target{Host: "server", Resource: "secrets", Namespace: "a", Name: "s"}
	for range 2 {
		owing(b.key(), b.ledger).Sends(to)
	}
	owing(b.key(), b.ledger).Answered(to)
	require.Contains(t, b.ledger.handoverEntries(), handoverEntry{Host: "server", Resource: "secrets", Relist: true},
		"one of two is still under way")
	owing(b.key(), b.ledger).Answered(to)
	require.Empty(t, b.ledger.handoverEntries())
	require.Empty(t, b.ledger.underWay)
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
	list := b.ledger.owed(b.key(), false)
	require.Len(t, list, 1)
	require.Equal(t, status.DebtUnknown, list[0].Kind)
}
