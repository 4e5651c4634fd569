package informer

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/internal/netproxy"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Two API servers on one etcd. Changes are made on the first, which is always well; what the informers follow is the
// second, or a way that leads from one to the other. Everything is done to an informer on a typed client and to one
// that reads the bytes itself, at once. It is not beside other tests, whose clients must not find out as early that
// their connections are dead: there the informer has to.
func TestBesideAnAPIServerThatIsWell(t *testing.T) {
	// By default a client finds out by itself after 45 seconds. A server that is well may take some seconds to answer
	// on a busy machine.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "5")
	cluster := testcluster.New(t, testcluster.Options{DisableNode: true})
	first := cluster.Config()
	etcd := netproxy.New(t, "unix", filepath.Join(cluster.Dir(), "etcd", "client"))
	process, second := runAPIServer(t, cluster, "second", etcd.Address())
	tenantIn := func(t *testing.T) (tenant, string) {
		namespace := cluster.Namespace(t)
		tn := tenant{t, kubernetes.NewForConfigOrDie(first).CoreV1().Pods(namespace)}
		tn.create("changes", "goes", "replaced", "stays")
		return tn, namespace
	}
	// disturb does, to pods, all that can be missed.
	disturb := func(tn tenant) {
		tn.change("changes")
		tn.delete("goes", "replaced")
		tn.create("comes", "replaced")
	}
	// begin returns how many lists each has needed, of which one may have broken off.
	begin := func(t *testing.T, followers []*follower, tn tenant) map[*follower]int {
		for _, f := range followers {
			becomes(t, f.inf, Live)
		}
		agree(t, followers, tn.pods)
		toldOnly(t, followers, "Added changes initial", "Added goes initial", "Added replaced initial",
			"Added stays initial")
		lists := map[*follower]int{}
		for _, f := range followers {
			lists[f] = f.lists()
		}
		return lists
	}

	// listed requires that each has listed since, but not again and again. A list that is asked of a server which does
	// not have its caches yet fails.
	listed := func(t *testing.T, followers []*follower, since map[*follower]int) {
		for _, f := range followers {
			require.Greater(t, f.lists(), since[f], "%s: only a list can tell", f.name)
			require.LessOrEqual(t, f.lists(), since[f]+4, f.name)
		}
	}

	// The connections stay, and nobody answers.
	t.Run("stopped", func(t *testing.T) {
		tn, namespace := tenantIn(t)
		followers := follow(t, second, namespace, Options[*corev1.Pod]{})
		lists := begin(t, followers, tn)
		require.NoError(t, process.Stop(t.Context()))
		disturb(tn)
		for _, f := range followers {
			f.proxy.LeadNew(t, first) // the watch is not broken: that it is dead has to be found out
		}
		agree(t, followers, tn.pods)
		require.NoError(t, process.Continue(t.Context()))
		toldOnly(t, followers, "Updated changes", "Deleted goes", "Deleted replaced", "Added comes", "Added replaced")
		for _, f := range followers {
			require.Equal(t, lists[f], f.lists(), "the watch is resumed")
			require.Greater(t, f.proxy.Accepted(), 1)
		}
	})

	// The same, and there is no other server to turn to.
	t.Run("stopped for a while", func(t *testing.T) {
		tn, namespace := tenantIn(t)
		followers := follow(t, second, namespace, Options[*corev1.Pod]{MaxStaleness: 2 * time.Second})
		lists := begin(t, followers, tn)
		tn.change("stays")
		agree(t, followers, tn.pods)
		toldOnly(t, followers, "Updated stays")
		require.NoError(t, process.Stop(t.Context()))
		for _, f := range followers {
			becomes(t, f.inf, Stale)
			// A connection that is found to be dead makes the cache Stale, too, and may do so first.
			require.Eventually(t, func() bool { return errors.Is(f.inf.Fresh(metav1.NamespaceAll), ErrStale) }, inTime,
				5*time.Millisecond)
			require.Equal(t, 4, f.inf.Len(), "the cache still answers")
		}
		disturb(tn)
		require.NoError(t, process.Continue(t.Context()))
		agree(t, followers, tn.pods)
		toldOnly(t, followers, "Updated changes", "Deleted goes", "Deleted replaced", "Added comes", "Added replaced")
		for _, f := range followers {
			require.Equal(t, lists[f], f.lists(), "the watch is resumed")
			require.Eventually(t, func() bool { return f.inf.Fresh(metav1.NamespaceAll) == nil }, inTime,
				5*time.Millisecond)
		}
	})

	// The client of a server that is up to date is led to one that lags.
	t.Run("lagging", func(t *testing.T) {
		tn, namespace := tenantIn(t)
		followers := follow(t, first, namespace, Options[*corev1.Pod]{})
		begin(t, followers, tn)
		cached := func() []string { // what the second server has of the pods, not what it would ask etcd for
			list, err := kubernetes.NewForConfigOrDie(second).CoreV1().Pods(namespace).List(t.Context(),
				metav1.ListOptions{ResourceVersion: "0"})
			require.NoError(t, err)
			return podNames(list.Items)
		}
		require.Eventually(t, func() bool { return len(cached()) == 4 }, inTime, 5*time.Millisecond)
		etcd.Stall(true)
		defer etcd.Stall(false)
		disturb(tn)
		agree(t, followers, tn.pods)
		toldOnly(t, followers, "Updated changes", "Deleted goes", "Deleted replaced", "Added comes", "Added replaced")

		// The second server still has the old state, and shows it to whoever does not insist on the present.
		require.Contains(t, cached(), "goes")
		newcomers := follow(t, second, namespace, Options[*corev1.Pod]{DisableWatchList: true})
		for _, f := range followers {
			f.proxy.Lead(t, second)
		}
		tn.change("stays")
		time.Sleep(time.Second) // to go back in time if they will
		for _, f := range followers {
			require.Equal(t, 4, f.inf.Len())
			require.Zero(t, f.inf.Health().Rewinds)
			f.inf.Relist(metav1.NamespaceAll, nil) // and now they ask for all of it
		}
		time.Sleep(time.Second)
		toldOnly(t, followers)
		for _, f := range newcomers {
			require.False(t, f.inf.HasSynced(), "%s took the past for the present", f.name)
		}
		toldOnly(t, newcomers)

		etcd.Stall(false)
		agree(t, append(followers, newcomers...), tn.pods)
		toldOnly(t, followers, "Updated stays")
		toldOnly(t, newcomers, "Added changes initial", "Added comes initial", "Added replaced initial",
			"Added stays initial")
		for _, f := range followers {
			require.Zero(t, f.inf.Health().Rewinds)
		}
	})

	// What the watch missed, the server has missed, too, and etcd has forgotten it.
	t.Run("compacted", func(t *testing.T) {
		tn, namespace := tenantIn(t)
		followers := follow(t, second, namespace, Options[*corev1.Pod]{})
		lists := begin(t, followers, tn)
		etcd.Cut(true)
		defer etcd.Cut(false)
		disturb(tn)
		require.NoError(t, cluster.Compact(t.Context()))
		etcd.Cut(false)
		agree(t, followers, tn.pods)
		toldOnly(t, followers, "Updated changes", "Deleted goes unknown", "Deleted replaced unknown", "Added comes",
			"Added replaced")
		listed(t, followers, lists)
	})

	// Refused connections are no reason for a list; but an API server that has begun anew knows nothing of before.
	t.Run("killed", func(t *testing.T) {
		tn, namespace := tenantIn(t)
		followers := follow(t, second, namespace, Options[*corev1.Pod]{})
		lists := begin(t, followers, tn)
		require.NoError(t, process.Kill(t.Context()))
		for _, f := range followers {
			becomes(t, f.inf, Stale)
			require.Equal(t, 4, f.inf.Len(), "the cache still answers")
		}
		disturb(tn)
		time.Sleep(500 * time.Millisecond) // the next try begins at once, and takes seconds
		for _, f := range followers {
			require.Equal(t, lists[f], f.lists(), f.name)
		}
		_, err := process.Restart(t.Context())
		require.NoError(t, err)
		awaitAPIServer(t, second)
		agree(t, followers, tn.pods)
		toldOnly(t, followers, "Updated changes", "Deleted goes unknown", "Deleted replaced unknown", "Added comes",
			"Added replaced")
		for _, f := range followers {
			becomes(t, f.inf, Live)
			f.log.until(t, Live)
		}
		listed(t, followers, lists)
	})
}

func podNames(pods []corev1.Pod) (names []string) {
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}
