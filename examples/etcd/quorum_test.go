package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const mayRecover = `{"spec":{"quorumLoss":{"policy":"Recover","afterSeconds":60}}}`

// loseDisks empties the disks of members, and ends their processes.
func (w *world) loseDisks(names ...string) {
	for _, name := range names {
		claim, err := w.claims.Get(w.Context(), name, metav1.GetOptions{})
		require.NoError(w, err)
		etcd.now.loseDisk(name, claim.UID)
		w.nudge(name)
	}
}

// loseClaims deletes claims and pods of members: both are gone for good.
func (w *world) loseClaims(names ...string) {
	for _, name := range names {
		require.NoError(w, w.claims.Delete(w.Context(), name, metav1.DeleteOptions{}))
		require.NoError(w, w.pods.Delete(w.Context(), name, metav1.DeleteOptions{}))
	}
}

// freeze stops processes, or lets them go on.
func (w *world) freeze(frozen bool, names ...string) {
	etcd.now.lock.Lock()
	for _, name := range names {
		etcd.now.frozen[name] = frozen
	}
	etcd.now.lock.Unlock()
	for _, name := range names {
		w.nudge(name)
	}
}

// nudge has the fake kubelet look again.
func (w *world) nudge(pod string) {
	_, err := w.pods.Patch(w.Context(), pod, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{"nudge":"%d"}}}`, time.Now().UnixNano()), metav1.PatchOptions{})
	require.NoError(w, err)
}

func (f *fake) loseDisk(pod string, claim types.UID) {
	f.lock.Lock()
	defer f.lock.Unlock()
	delete(f.disks, claim)
	delete(f.processes, pod)
}

// commit says what each member knows to be committed, by the number in its name.
func (w *world) commit(indexes map[uint64]uint64) {
	etcd.now.lock.Lock()
	defer etcd.now.lock.Unlock()
	for _, c := range etcd.now.clusters {
		c.committed = indexes
	}
}

// voters reports whether a cluster has so many voters, and all of them answer.
func (f *fake) voters(n int) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, c := range f.clusters {
		voters := 0
		for id, m := range c.list {
			if !m.Learner && c.healthy(id) {
				voters++
			}
		}
		if voters == n {
			return true
		}
	}
	return false
}

func (w *world) begun() []string {
	etcd.now.lock.Lock()
	defer etcd.now.lock.Unlock()
	return slices.Clone(etcd.now.begun)
}

// untouched returns the UIDs of claims and of pods that have a node.
func (w *world) untouched() (uids []types.UID) {
	for _, claim := range ofMembers(reconciletest.List[*corev1.PersistentVolumeClaim](w.server,
		"persistentvolumeclaims",
		"default")) {
		uids = append(uids, claim.UID)
	}
	for _, pod := range ofMembers(reconciletest.List[*corev1.Pod](w.server, "pods", "default")) {
		uids = append(uids, pod.UID)
	}
	return uids
}

func (w *world) message(condition string) string {
	c, _ := objects.FindCondition(w.status().Conditions, condition)
	return c.Message
}

// recovered checks that the cluster has begun anew with a member, and is whole again.
func (w *world) recovered(size int32, survivor string) {
	w.Helper()
	w.settles(size, "3.6.16")
	w.is(v1.QuorumLost, v1.ReasonRecovered)
	require.Equal(w, []string{survivor}, w.begun())
	status := w.status()
	require.Equal(w, survivor, status.Recovery.Survivor)
	require.NotNil(w, status.Recovery.Finished)
	require.Equal(w, "1", status.ClusterID)
	require.True(w, slices.ContainsFunc(status.Members, func(m v1.MemberStatus) bool { return m.Name == survivor }))
}

// TestQuorumLost has what the operator does when a majority has lost its data, and what it never does.
func TestQuorumLost(t *testing.T) {
	for what, test := range map[string]struct {
		size int32
		test func(w *world)
	}{
		"disks, without permission: nothing is touched, until there is one": {3, func(w *world) {
			w.loseDisks("a-1", "a-3")
			w.commit(map[uint64]uint64{2: 77})
			time.Sleep(time.Minute)
			before := w.untouched()
			time.Sleep(5 * time.Minute)
			require.Equal(w, before, w.untouched())
			w.is(v1.QuorumLost, v1.ReasonManual)
			require.Equal(w, "2 of 3 voters have lost their data: a-1 (its disk is empty), a-3 (its disk is empty); "+
				"no "+
				"quorum can come back. a-2 had revision 77 (commit index 77); writes that were acknowledged after "+
				"that "+
				"may be lost. To go on with it: kubectl patch etcdcluster a --type=merge "+
				`-p '{"spec":{"quorumLoss":{"policy":"Recover"}}}'; or make a new EtcdCluster with spec.restore and a `+
				"backup", w.message(v1.QuorumLost))
			require.NoError(w, w.patch(mayRecover))
			w.recovered(3, "a-2")
			require.EqualValues(w, 77, w.status().Recovery.CommitIndex)
			require.Equal(w, []string{"a-1", "a-3"}, w.status().Recovery.Lost)
			require.Contains(w, w.message(v1.QuorumLost), "with a-2, which had revision 77 (commit index 77)")
		}},
		"claims": {3, func(w *world) {
			require.NoError(w, w.patch(mayRecover))
			w.loseClaims("a-2", "a-3")
			time.Sleep(50 * time.Second)
			w.is(v1.QuorumLost, v1.ReasonWaiting)
			require.Empty(w, w.begun())
			w.recovered(3, "a-1")
		}},
		"three of five: the best of the others": {5, func(w *world) {
			require.NoError(w, w.patch(mayRecover))
			w.commit(map[uint64]uint64{1: 50, 2: 90, 3: 10, 4: 70, 5: 60})
			w.loseDisks("a-2", "a-5")
			w.loseClaims("a-3")
			w.recovered(5, "a-4")
			require.Equal(w, []string{"a-1"}, w.status().Recovery.Discarded)
		}},
		"a survivor that was started again answers nothing, and is the only one": {3, func(w *world) {
			require.NoError(w, w.patch(mayRecover))
			w.loseClaims("a-2", "a-3")
			require.NoError(w, w.pods.Delete(w.Context(), "a-1", metav1.DeleteOptions{}))
			w.recovered(3, "a-1")
			require.Contains(w, w.message(v1.QuorumLost), "did not answer before")
		}},
		"no comparison without an answer, until a person gives one up": {5, func(w *world) {
			require.NoError(w, w.patch(mayRecover))
			w.loseDisks("a-1", "a-2", "a-3")
			w.freeze(true, "a-5")
			time.Sleep(time.Minute)
			before := w.untouched()
			time.Sleep(5 * time.Minute)
			w.is(v1.QuorumLost, v1.ReasonNoSurvivor)
			require.Contains(w, w.message(v1.QuorumLost), "since a-5 does not answer, and its data may be the newest: "+
				"bring it back, or give up its data with kubectl delete pvc,pod a-5, or make a new EtcdCluster")
			require.Equal(w, before, w.untouched())
			w.loseClaims("a-5")
			w.recovered(5, "a-4")
		}},
		"members that only do not answer are not lost": {3, func(w *world) {
			require.NoError(w, w.patch(mayRecover))
			before := w.untouched()
			w.freeze(true, "a-1", "a-2")
			time.Sleep(5 * time.Minute)
			w.freeze(true, "a-3")
			time.Sleep(5 * time.Minute)
			require.Equal(w, before, w.untouched())
			require.Empty(w, w.message(v1.QuorumLost))
			w.freeze(false, "a-1", "a-2", "a-3")
			w.settles(3, "3.6.16")
			require.Empty(w, w.begun())
		}},
		"one lost and one frozen are no quorum, and not lost": {3, func(w *world) {
			require.NoError(w, w.patch(mayRecover))
			w.freeze(true, "a-2")
			w.loseDisks("a-3")
			time.Sleep(5 * time.Minute)
			require.Empty(w, w.message(v1.QuorumLost))
			w.freeze(false, "a-2")
			w.settles(3, "3.6.16")
			require.Empty(w, w.begun())
		}},
		"nobody is left": {3, func(w *world) {
			require.NoError(w, w.patch(mayRecover))
			w.loseClaims("a-1", "a-2", "a-3")
			time.Sleep(5 * time.Minute)
			w.is(v1.QuorumLost, v1.ReasonNoSurvivor)
			require.Contains(w, w.message(v1.QuorumLost), "No other voter is left: make a new EtcdCluster")
			require.Empty(w, w.begun())
		}},
		"a pause": {3, func(w *world) {
			require.NoError(w, w.patch(mayRecover))
			require.NoError(w, w.patch(`{"spec":{"paused":true}}`))
			w.loseDisks("a-1", "a-3")
			time.Sleep(5 * time.Minute)
			require.Empty(w, w.begun())
			w.is(v1.QuorumLost, v1.ReasonWaiting)
			require.NoError(w, w.patch(`{"spec":{"paused":false}}`))
			w.recovered(3, "a-2")
		}},
	} {
		t.Run(what, func(t *testing.T) {
			inMemory(t, func(w *world) {
				w.create(test.size, "3.6.16")
				w.settles(test.size, "3.6.16")
				test.test(w)
			})
		})
	}
}

// oneWrite lets an incarnation of the operator write once, and then kills it.
type oneWrite struct {
	http.RoundTripper
	armed  *atomic.Bool
	kill   func()
	writes *atomic.Int32
}

func (o oneWrite) RoundTrip(request *http.Request) (*http.Response, error) {
	path := request.URL.Path
	if !o.armed.Load() || request.Method == http.MethodGet || !strings.Contains(path, "/namespaces/default/") ||
		strings.Contains(path, "/events") { // neither the Lease nor the question which rights it has
		return o.RoundTripper.RoundTrip(request)
	}
	if o.writes.Add(1) > 1 {
		return nil, errors.New("killed")
	}
	defer o.kill()
	return o.RoundTripper.RoundTrip(request)
}

// TestKilledAtEachWrite kills the operator after each of its writes, from the loss of the quorum on. The next one goes
// on with the same survivor.
func TestKilledAtEachWrite(t *testing.T) {
	var armed atomic.Bool
	killed := 0
	operate := func(ctx context.Context, link *reconciletest.Link) error {
		for ctx.Err() == nil && killed < 1000 {
			life, kill := context.WithCancel(ctx)
			cfg := link.Config()
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return oneWrite{rt, &armed, kill, new(atomic.Int32)}
			})
			if err := start(life, cfg); err != nil {
				kill()
				return err
			}
			killed++
			kill()
		}
		return nil
	}
	inMemoryWith(t, operate, func(w *world) {
		w.create(5, "3.6.16")
		w.settles(5, "3.6.16")
		require.NoError(w, w.patch(mayRecover))
		w.commit(map[uint64]uint64{1: 50, 2: 90, 3: 10, 4: 70, 5: 60})
		armed.Store(true)
		w.loseDisks("a-2", "a-5")
		w.loseClaims("a-3")
		for try := 0; settled(w.server, 5, "3.6.16") != nil && try < 2000; try++ {
			time.Sleep(5 * time.Second)
		}
		armed.Store(false)
		w.recovered(5, "a-4")
	})
	t.Logf("the operator was started %d times", killed)
}
