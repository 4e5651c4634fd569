package informer

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// A list that breaks off is no list, and a connection that breaks is no reason for one. The way to the server is
// long, too.
func TestConnectionsThatBreak(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming=%t", streaming), func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Namespace(t)
			tn := tenant{t, cluster.Client().CoreV1().Pods(namespace)}
			var initial []string
			for i := range 20 {
				name := fmt.Sprintf("large-%02d", i)
				tn.create(name)
				tn.annotate(name, random(30_000))
				initial = append(initial, "Added "+name+" initial")
			}
			followers := follow(t, cluster.Config(), namespace,
				Options[*corev1.Pod]{DisableWatchList: !streaming, PageSize: 8})
			for _, f := range followers {
				becomes(t, f.inf, Live)
				f.proxy.Delay(10 * time.Millisecond)
			}
			agree(t, followers, tn.pods)
			toldOnly(t, followers, initial...)

			// What follows the break is not there, as far as the informer can see.
			for _, f := range followers {
				connections := f.proxy.Accepted()
				f.proxy.BreakAfter(150_000)
				listed := f.inf.Relist(metav1.NamespaceAll, nil)
				require.Eventually(t, func() bool { return f.inf.Health().Listed >= listed }, inTime,
					5*time.Millisecond, "the list is begun again")
				require.Greater(t, f.proxy.Accepted(), connections, "the list should not have come in one piece")
				require.Equal(t, 20, f.inf.Len(), "%s", f.name)
			}
			agree(t, followers, tn.pods)
			toldOnly(t, followers)

			lists := map[*follower]int{}
			for _, f := range followers {
				becomes(t, f.inf, Live)
				lists[f] = f.inf.Health().Lists
				f.proxy.Cut(true)
			}
			tn.change("large-00")
			tn.delete("large-01")
			for _, f := range followers {
				becomes(t, f.inf, Stale)
			}
			for _, f := range followers {
				f.proxy.Cut(false)
			}
			agree(t, followers, tn.pods)
			toldOnly(t, followers, "Updated large-00", "Deleted large-01")
			for _, f := range followers {
				require.Equal(t, lists[f], f.inf.Health().Lists, "the watch is resumed")
			}

			// A first list that breaks off.
			newcomers := follow(t, cluster.Config(), namespace,
				Options[*corev1.Pod]{DisableWatchList: !streaming, PageSize: 8})
			for _, f := range newcomers {
				f.proxy.BreakAfter(150_000)
			}
			agree(t, newcomers, tn.pods)
			for _, f := range newcomers {
				require.NoError(t, f.inf.WaitForSync(t.Context()),
					"the last object may be there before the end of the list")
			}
		})
	}
}

// random is text that compression makes little smaller than length.
func random(length int) string {
	b := make([]byte, length/2)
	_, _ = rand.Read(b) // never fails
	return fmt.Sprintf("%x", b)
}
