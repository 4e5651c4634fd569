package debts

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// TestADeletionIsNotSeenBeforeTheCreation deletes what the same run has created, and what the cache has seen neither
// of.
func TestADeletionIsNotSeenBeforeTheCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		var there informer.Version
		pods := listing(l, &still{version: func(Key) (informer.Version, bool) { return there, there.UID != "" }})
		l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "7", false))
		l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "", true))
		require.EqualValues(t, 2, l.open.Load())
		key := Key{Namespace: "default", Name: "a"}
		there, pods.resourceVersion = informer.Version{UID: "u", ResourceVersion: "7"}, "7"
		l.Saw(l.caches[0], key, "u", "7", false)
		require.True(t, l.Park(parent), "the cache has the pod that the run has deleted")
		there = informer.Version{}
		l.Saw(l.caches[0], key, "u", "8", true)
		require.False(t, l.Park(parent))
		require.Equal(t, "8", l.caches[0].written[""].resourceVersion, "what the next leader has to have seen")
	})
}

// TestADeletionOfWhatTheCacheHasNotSeen deletes an object that others have made, and that the cache does not hold: it
// may yet come.
func TestADeletionOfWhatTheCacheHasNotSeen(t *testing.T) {
	five := informer.Version{UID: "u", ResourceVersion: "5"}
	list := func(listed int) func(*Ledger, *Cache, *still) {
		return func(l *Ledger, c *Cache, pods *still) {
			pods.listed, pods.resourceVersion = listed, "12"
			l.Reached(c, "")
		}
	}
	key := Key{Namespace: "default", Name: "a"}
	for name, test := range map[string]struct {
		answer  string // the version in the answer, if there is one
		before  func(l *Ledger, c *Cache, pods *still)
		proof   func(l *Ledger, c *Cache, pods *still)
		atOnce  bool
		written string // what the next leader has to have seen
	}{
		"nothing proves it": {},
		"a version, and the answer tells none": {
			proof: func(l *Ledger, c *Cache, pods *still) { pods.resourceVersion = "100"; l.Reached(c, "") },
		},
		"a version before the answer's": {
			answer: "7", written: "7",
			proof: func(l *Ledger, c *Cache, pods *still) { pods.resourceVersion = "6"; l.Reached(c, "") },
		},
		"the version of the answer": {
			answer: "7", written: "7", atOnce: true,
			proof: func(l *Ledger, c *Cache, pods *still) { pods.resourceVersion = "7"; l.Reached(c, "") },
		},
		"the cache was past the answer's version": {
			answer: "7", written: "7", atOnce: true,
			before: func(l *Ledger, c *Cache, pods *still) { pods.resourceVersion = "7" },
		},
		"the event of its end": {
			written: "9", atOnce: true,
			proof: func(l *Ledger, c *Cache, pods *still) { l.Saw(c, key, "u", "9", true) },
		},
		"the event of its end, before the answer": {
			atOnce: true,
			before: func(l *Ledger, c *Cache, pods *still) { l.Saw(c, key, "u", "9", true) },
		},
		"the event of another one's end": {
			proof: func(l *Ledger, c *Cache, pods *still) { l.Saw(c, key, "other", "9", true) },
		},
		"it comes, and goes in a list": {
			written: "12", atOnce: true,
			proof: func(l *Ledger, c *Cache, pods *still) {
				held := true
				pods.version = func(Key) (informer.Version, bool) { return five, held }
				l.Saw(c, key, "u", "5", false)
				held, pods.listed, pods.resourceVersion = false, 5, "12"
				l.Reached(c, "")
			},
		},
		"a list that had begun before": {
			before: func(l *Ledger, c *Cache, pods *still) { pods.begun = 4 },
			proof:  list(4),
		},
		"a later list": {
			written: "12", atOnce: true,
			before: func(l *Ledger, c *Cache, pods *still) { pods.begun = 4 },
			proof:  list(5),
		},
		"a later list that has it": { // something keeps it
			written: "12", atOnce: true,
			before: func(l *Ledger, c *Cache, pods *still) { pods.begun = 4 },
			proof: func(l *Ledger, c *Cache, pods *still) {
				pods.version = func(Key) (informer.Version, bool) { return five, true }
				list(5)(l, c, pods)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger()
				pods := listing(l, &still{listed: 3, resourceVersion: "5"})
				c := l.caches[0]
				if test.before != nil {
					test.before(l, c, pods)
				}
				l.Debtor(parent).Wrote(klog.Background(), podWrite("a", test.answer, true))
				if test.proof != nil {
					require.True(t, l.Park(parent), "the cache may be older than the object")
					test.proof(l, c, pods)
				}
				require.Equal(t, !test.atOnce, l.Park(parent))
				require.Equal(t, test.written, c.written[""].resourceVersion)
				if !test.atOnce {
					lookIn(t, l, DoubtAfter)
					require.True(t, l.Park(parent))
					require.Equal(t, 1, pods.relists)
					pods.listed, pods.resourceVersion = pods.listed+1, "12"
					l.Reached(c, "")
					require.False(t, l.Park(parent))
				}
			})
		})
	}
}

// TestADeletionBesideAnotherObjectOfThatName has a cache that holds the one that was before, or that came after.
func TestADeletionBesideAnotherObjectOfThatName(t *testing.T) {
	for held, settled := range map[string]bool{"4": false, "8": true} {
		l := newLedger()
		listing(l, &still{resourceVersion: "5", version: func(Key) (informer.Version, bool) {
			return informer.Version{UID: "namesake", ResourceVersion: held}, true
		}})
		l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "7", true))
		require.Equal(t, !settled, l.Park(parent))
	}
}

// TestVersionsThatAreNoNumbers are equal, or a list tells.
func TestVersionsThatAreNoNumbers(t *testing.T) {
	l := newLedger()
	pods := listing(l, &still{listed: 3, resourceVersion: "v-a"})
	c := l.caches[0]
	for _, name := range []string{"b", "b2", "c"} {
		l.Debtor(Key{Name: name}).Wrote(klog.Background(), podWrite(name, "v-"+name[:1], false))
	}
	require.EqualValues(t, 3, l.open.Load())
	pods.resourceVersion = "v-b"
	l.Reached(c, "")
	require.EqualValues(t, 1, l.open.Load())
	pods.resourceVersion = "v-d"
	l.Reached(c, "")
	require.EqualValues(t, 1, l.open.Load())
	pods.listed = 4
	l.Reached(c, "")
	require.Zero(t, l.open.Load())
	require.Empty(t, c.partitions[""].byName)
}

// TestMarksDoNotGrowWithTheNamespaces: what is written in each namespace is noted for the next leader, of an informer
// whose requests do not pass TrackWrites, too. It lists all namespaces at once.
func TestMarksDoNotGrowWithTheNamespaces(t *testing.T) {
	l := newLedger()
	c := l.CacheOf(&still{resourceVersion: "7"})
	c.Learner = &writes.Learner{}
	for i := range 100 {
		pod := object{c, Key{Namespace: fmt.Sprint("namespace-", i), Name: "a"}}
		l.owe(&debt{owner: parent, kind: status.DebtChange, object: pod, uid: "u", resourceVersion: fmt.Sprint(8 + i)})
		l.owe(&debt{owner: parent, kind: status.DebtDeletion, object: pod, uid: "v", resourceVersion: "6"})
	}
	require.Equal(t, map[string]mark{"": {resourceVersion: "107"}}, c.written)
	require.Equal(t, map[string]mark{"": {resourceVersion: "7"}}, c.shown)
}

// TestTheBooksAreInOrder notes and settles debts at random, and compares what is open with a plain walk.
func TestTheBooksAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(300) {
			random := rand.New(rand.NewPCG(seed, 0))
			l := newLedger()
			pods := listing(l, &still{listed: 1, resourceVersion: "1"})
			c := l.caches[0]
			at := 1
			for range 100 {
				switch random.IntN(5) {
				case 0, 1:
					version := fmt.Sprint(at + random.IntN(50))
					if random.IntN(4) == 0 {
						version = "no-" + version
					}
					w := podWrite(fmt.Sprint("pod-", random.IntN(20)), version, random.IntN(4) == 0)
					l.Debtor(Key{Name: fmt.Sprint(random.IntN(5))}).Wrote(klog.Background(), w)
				case 2:
					at += random.IntN(20)
					pods.resourceVersion = fmt.Sprint(at)
					l.Reached(c, "")
				case 3:
					somewhere := writes.Target{Host: "server", Resource: "pods", Namespace: "default"}
					l.Debtor(Key{Name: fmt.Sprint(random.IntN(5))}).LostAnswer(klog.Background(), somewhere)
				default:
					if random.IntN(5) == 0 {
						pods.listed++
						l.Reached(c, "")
					}
					if random.IntN(5) == 0 { // the cluster goes back
						at = random.IntN(at) + 1
						pods.listed, pods.resourceVersion = pods.listed+1, fmt.Sprint(at)
						l.Reached(c, "")
					}
				}
				requireInOrder(t, l)
				for _, d := range openDebts(l) {
					require.False(t, d.settledLocked(d.partition.progress()), "seed %d: %+v is open", seed, d)
				}
			}
			pods.listed++
			l.Reached(c, "")
			require.Zero(t, l.open.Load())
			require.Empty(t, l.accounts)
			require.Empty(t, l.objects)
		}
	})
}

// TestDebtsChangeTheirPlacesWithTheScope follows all namespaces in one list, then each by itself, and then all again.
func TestDebtsChangeTheirPlacesWithTheScope(t *testing.T) {
	l := newLedger()
	pods := listing(l, &still{listed: 1, resourceVersion: "1"})
	c := l.caches[0]
	for i, namespace := range []string{"one", "two", "one", ""} {
		w := podWrite(fmt.Sprint("pod-", i), fmt.Sprint(7+i), false)
		w.Object.Namespace = namespace
		l.Debtor(parent).Wrote(klog.Background(), w)
	}
	l.Debtor(parent).LostAnswer(klog.Background(), writes.Target{Host: "server", Resource: "pods", Namespace: "two"})
	places := func() (names []string) {
		requireInOrder(t, l)
		return slices.Sorted(maps.Keys(c.partitions))
	}
	require.Equal(t, []string{""}, places())
	l.Reached(c, "one")
	require.Equal(t, []string{"", "one", "two"}, places())
	require.EqualValues(t, 5, l.open.Load())
	pods.resourceVersion = "9"
	l.Reached(c, "two")
	require.EqualValues(t, 4, l.open.Load(), "what is in another namespace is not looked at")
	lines, _ := l.relister.scan()
	require.Equal(t, 1, pods.relists, "the write of unknown outcome has gone with the others")
	require.Len(t, lines, 1)
	pods.resourceVersion = "10"
	l.Reached(c, "")
	require.Equal(t, []string{""}, places())
	require.EqualValues(t, 1, l.open.Load())
	pods.listed = 2
	l.Reached(c, "")
	require.Zero(t, l.open.Load())
}

// TestAnEventBetweenTheLookAtTheCacheAndTheDebtSettlesIt: the event comes at the last moment at which the cache does
// not show the write, and need not wait for the ledger. What it finds to settle must be there, or nobody settles it
// before the cache is doubted.
func TestAnEventBetweenTheLookAtTheCacheAndTheDebtSettlesIt(t *testing.T) {
	l := newLedger()
	key := Key{Namespace: "default", Name: "a"}
	var there atomic.Bool
	seen := make(chan struct{})
	listing(l, &still{version: func(Key) (informer.Version, bool) {
		if there.Swap(true) {
			return informer.Version{UID: "u", ResourceVersion: "7"}, true
		}
		go func() { l.Saw(l.caches[0], key, "u", "7", false); close(seen) }()
		for range 1000 {
			runtime.Gosched() // the event is told of, or waits until the debt has been noted
		}
		return informer.Version{}, false
	}})
	l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "7", false))
	<-seen
	require.Zero(t, l.open.Load())
}
