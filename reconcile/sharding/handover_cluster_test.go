package sharding

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// handOvers are those of slices with one key each, as the runs of these keys show them.
type handOvers struct {
	mu sync.Mutex
	// Guarded by mu.
	last  map[reconcile.Key]lastRun
	waits []time.Duration // from the end of the last run in one replica to the next one, in another
}

type lastRun struct {
	by    string
	ended time.Time
	runs  int
}

// begins notes that a run begins, and returns how many there were before.
func (h *handOvers) begins(by string, key reconcile.Key) (before int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last[key]
	if last.by != "" && last.by != by {
		h.waits = append(h.waits, time.Since(last.ended))
	}
	return last.runs
}

func (h *handOvers) ends(by string, key reconcile.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[key] = lastRun{by, time.Now(), h.last[key].runs + 1}
}

// allSince reports whether that many keys have run since a moment.
func (h *handOvers) allSince(moment time.Time, keys int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, last := range h.last {
		if last.ended.After(moment) {
			n++
		}
	}
	return n == keys
}

// TestCleanHandOvers has two Managers on a real control plane, and a third that joins and leaves, three times, or 30
// times with THERMOSTAT_SOAK. It measures how long the key of a slice waits that is handed over: from the end of its
// last run in the one to its next run in the other. Each key runs every 100 ms, so up to that it has nothing to wait
// for. Each fifth run writes, and the next owner has to see that.
func TestCleanHandOvers(t *testing.T) {
	cluster := testcluster.New(t, testcluster.Options{DisableNode: true,
		Controllers: []string{"serviceaccount-controller"}})
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("caches of a share: ", shared), func(t *testing.T) { cleanHandOvers(t, cluster, shared) })
	}
}

func cleanHandOvers(t *testing.T, cluster *testcluster.Cluster, shared bool) {
	const keys = 60
	rounds := 3
	if soak() {
		rounds = 30
	}
	f, h := emptyFleet(t), &handOvers{last: map[reconcile.Key]lastRun{}}
	f.base, f.namespace, f.slices, f.pause = cluster.Config(), cluster.Namespace(t), keys, 5*time.Millisecond
	f.shared = shared
	f.options = func(o *Options) {
		o.By = func(key types.NamespacedName) string { return key.Name }
		o.LeaseDuration, o.RenewDeadline = 3*time.Second, 1500*time.Millisecond
		o.RetryPeriod, o.StopGrace = 400*time.Millisecond, 500*time.Millisecond
	}
	ours := map[reconcile.Key]bool{}
	for slice := range keys {
		name := keyOf(slice, keys).Name
		ours[reconcile.Key{Namespace: f.namespace, Name: name}] = true
		_, err := kubernetes.NewForConfigOrDie(f.base).CoreV1().ConfigMaps(f.namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	launch := func(name string) *ship {
		s := f.build(name, func(shards *Shards) reconcile.Elector { return shards },
			func(ctx context.Context, s *ship, key reconcile.Key) (result reconcile.Result, err error) {
				if !ours[key] {
					return result, nil
				}
				if h.begins(name, key)%5 == 0 {
					err = f.count(ctx, s, name, s.api, key)
				} else {
					lifecycle.Sleep(ctx, f.pause)
				}
				h.ends(name, key)
				return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, err
			})
		f.start(s)
		return s
	}
	until := func(what string, holds func() bool) {
		for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
			require.Less(t, time.Since(began), 2*time.Minute, what)
		}
		moment := time.Now()
		for !h.allSince(moment, keys) {
			require.Less(t, time.Since(moment), 2*time.Minute, "%s: all keys run", what)
			time.Sleep(20 * time.Millisecond)
		}
	}
	a, b := launch("a"), launch("b")
	has := func(s *ship, n int) bool { return len(s.shards.Stats().Slices) == n }
	until("two share the slices", func() bool { return has(a, keys/2) && has(b, keys/2) })
	h.mu.Lock()
	h.waits = nil
	h.mu.Unlock()
	for round := range rounds {
		c := launch(fmt.Sprint("c", round))
		until("the third has its share", func() bool { return has(c, keys/3) })
		c.stop()
		<-c.group.Done()
		require.NoError(t, c.err)
		until("it has left", func() bool { return has(a, keys/2) && has(b, keys/2) })
	}
	h.mu.Lock()
	waits := slices.Sorted(slices.Values(h.waits))
	h.mu.Unlock()
	require.GreaterOrEqual(t, len(waits), rounds*2*keys/3)
	t.Logf("%d slices were handed over; until the next run of a key: median %v, 99th percentile %v, longest %v",
		len(waits), waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1])
	require.Less(t, waits[len(waits)-1], time.Minute)
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(t, f.broken)
}
