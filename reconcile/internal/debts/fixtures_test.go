package debts

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// parent is a key that writes.
var parent = Key{Namespace: "default", Name: "parent"}

// newLedger is that of a controller which nobody hears of.
func newLedger() *Ledger {
	return New(keys.New(false, -1, writes.ResourceOf), func(Key) {}, func(Key, status.Wait) {})
}

// still is an informer that has seen nothing yet, and does not move by itself.
type still struct {
	resourceVersion string // of the cache; empty: 1
	listed          int
	begun           int // the number of the latest list, if that is not listed
	relists         int // that were asked for
	doubt           error
	version         func(Key) (informer.Version, bool)
}

func (*still) Name() string                    { return "still" }
func (*still) Keys() []Key                     { return nil }
func (*still) Len() int                        { return 0 }
func (s *still) ResourceVersion(string) string { return cmp.Or(s.resourceVersion, "1") }
func (s *still) Health() informer.Health       { return s.HealthIn("") }
func (s *still) HealthIn(string) informer.Health {
	return informer.Health{State: informer.Live, Lists: max(s.begun, s.listed), Listed: s.listed}
}

func (s *still) Version(key Key) (informer.Version, bool) {
	if s.version == nil {
		return informer.Version{}, false
	}
	return s.version(key)
}

func (*still) Fresh(string) error { return nil }
func (*still) Invalid(Key) error  { return nil }

func (s *still) Relist(_ string, doubt error) int {
	s.relists++
	s.doubt = doubt
	return s.listed + 1
}

// listing lets a ledger depend on an informer that lists all pods of https://server.
func listing(l *Ledger, s *still) *still {
	c := l.CacheOf(s)
	c.Learner = &writes.Learner{}
	c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods"}})
	return s
}

// podWrite is a write of the pod default/NAME, whose UID is u.
func podWrite(name, resourceVersion string, deleted bool) writes.Write {
	o := writes.Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u",
		ResourceVersion: resourceVersion}}
	if deleted {
		return writes.NewWrite(writes.Target{Host: "server", Resource: "pods", Name: name}, http.MethodDelete, 200, o)
	}
	return writes.NewWrite(writes.Target{Host: "server", Resource: "pods"}, http.MethodPost, 201, o)
}

func openDebts(l *Ledger) (debts []*debt) {
	for _, a := range l.accounts {
		debts = append(debts, a.debts...)
	}
	return debts
}

// requireInOrder checks that each debt is where it says it is, and nowhere else.
func requireInOrder(t *testing.T, l *Ledger) {
	t.Helper()
	debts := openDebts(l)
	require.EqualValues(t, len(debts), l.open.Load())
	byObject := 0
	for o, of := range l.objects {
		require.NotEmpty(t, of)
		for _, d := range of {
			require.Equal(t, o, d.object)
			require.True(t, d.byObject(), "no event of an object settles it")
			byObject++
		}
	}
	known := slices.DeleteFunc(slices.Clone(debts), func(d *debt) bool { return !d.byObject() })
	require.Len(t, known, byObject)
	for owner, a := range l.accounts {
		require.NotEmpty(t, a.debts)
		for slot, d := range a.debts {
			require.Equal(t, owner, d.owner)
			require.Equal(t, slot, d.slot)
			require.Same(t, d, d.age.Value)
			if d.rank >= 0 {
				require.Same(t, d, d.partition.byVersion[d.rank])
			}
		}
	}
	aged := 0
	for _, c := range l.caches {
		for name, p := range c.partitions {
			require.Equal(t, name, p.namespace)
			aged += p.byAge.Len()
			for i, d := range p.byVersion {
				require.Equal(t, i, d.rank)
				require.False(t, i > 0 && !kube.AtLeast(d.resourceVersion, p.byVersion[(i-1)/2].resourceVersion))
			}
			for version, of := range p.byName {
				require.NotEmpty(t, of)
				for _, d := range of {
					require.Equal(t, version, d.resourceVersion)
				}
			}
			for d := range p.unready {
				require.Same(t, p, d.partition)
			}
		}
	}
	require.Equal(t, len(debts), aged)
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

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
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
func (a *apart) list(l *Ledger, place, version string) {
	a.lists[place]++
	l.Reached(l.caches[0], place)
	a.versions[place], a.listed[place] = version, a.lists[place]
	l.Reached(l.caches[0], place)
}

func (a *apart) HealthIn(place string) informer.Health {
	if place != "" && place == a.gone {
		return informer.Health{}
	}
	return informer.Health{State: informer.Live, Lists: a.lists[place], Listed: a.listed[place]}
}

func (a *apart) ResourceVersion(place string) string { return a.versions[place] }
