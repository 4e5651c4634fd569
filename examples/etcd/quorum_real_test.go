package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

var (
	everyLoss   = flag.Bool("every-loss", false, "TestEachQuorumLost runs: each pair of three, each triple of five")
	lossVersion = flag.String("loss-version", "3.6.16", "of the members that lose their quorum")
)

// writers write one key after the other, each its own, and note which were acknowledged.
type writers struct {
	w     *real
	stop  context.CancelFunc
	group sync.WaitGroup

	lock  sync.Mutex           // guards acked
	acked map[string]time.Time // when
}

func (w *real) writers() *writers {
	ctx, stop := context.WithCancel(w.Context())
	l := &writers{w: w, stop: stop, acked: map[string]time.Time{}}
	for i := range 4 {
		l.group.Go(func() { l.write(ctx, fmt.Sprintf("w%d-%d/", i, time.Now().UnixNano())) })
	}
	return l
}

func (l *writers) write(ctx context.Context, prefix string) {
	var c *clientv3.Client
	for i := 0; ctx.Err() == nil; i++ {
		if c == nil {
			var err error
			if c, err = clientv3.New(clientv3.Config{Endpoints: l.w.endpoints(), Logger: zap.NewNop()}); err != nil {
				<-time.After(50 * time.Millisecond) // there is no pod
				continue
			}
		}
		key := fmt.Sprintf("%s%08d", prefix, i)
		put, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err := c.Put(put, key, "")
		cancel()
		if err != nil {
			c.Close()
			c = nil
			continue
		}
		l.lock.Lock()
		l.acked[key] = time.Now()
		l.lock.Unlock()
		<-time.After(5 * time.Millisecond)
	}
	if c != nil {
		c.Close()
	}
}

// since returns how many writes were acknowledged after a time, and the first of them.
func (l *writers) since(begin time.Time) (n int, first time.Time) {
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, at := range l.acked {
		if at.After(begin) {
			if n++; first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	return n, first
}

// gone ends the writers, and returns which acknowledged writes are not there.
func (l *writers) gone() (lost []time.Time, of int) {
	l.stop()
	l.group.Wait()
	there := l.w.keys("w")
	for key, at := range l.acked {
		if !there[key] {
			lost = append(lost, at)
		}
	}
	return lost, len(l.acked)
}

// The ways to lose data.
const (
	disks  = "disks"
	claims = "claims"
	nodes  = "nodes"
)

// lose takes the data of members away for good, as fast as it can.
func (w *real) lose(how string, victims []string) (mend func()) {
	core := w.cluster.Client().CoreV1()
	var group sync.WaitGroup
	var lock sync.Mutex // guards errs and stopped
	var errs []error
	var stopped []*processnode.Node
	for _, name := range victims {
		group.Go(func() {
			var err error
			switch how {
			case disks:
				err = w.pool.LoseDisk(w.Context(), w.key(name))
			case claims:
				err = core.PersistentVolumeClaims(w.namespace).Delete(w.Context(), name, metav1.DeleteOptions{})
				if err == nil {
					err = core.Pods(w.namespace).Delete(w.Context(), name,
						metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
				}
			case nodes:
				node := w.nodeOf(name)
				err = errors.Join(node.Stop(w.Context()),
					core.Nodes().Delete(w.Context(), node.Name, metav1.DeleteOptions{}))
				lock.Lock()
				stopped = append(stopped, node)
				lock.Unlock()
			}
			lock.Lock()
			defer lock.Unlock()
			errs = append(errs, err)
		})
	}
	group.Wait()
	require.NoError(w, errors.Join(errs...))
	return func() {
		for _, node := range stopped {
			require.NoError(w, node.Start(w.Context()))
		}
	}
}

// frozen freezes all members but some for a while, and returns them as they are: frozen.
func (w *real) frozen(d time.Duration, but []string) (names []string) {
	if d == 0 {
		return nil
	}
	for _, name := range w.members() {
		if !slices.Contains(but, name) {
			names = append(names, name)
			require.NoError(w, w.pool.Freeze(w.Context(), w.key(name), container))
		}
	}
	<-time.After(d)
	return names
}

func (w *real) nodeOf(pod string) *processnode.Node {
	o, err := w.pods.In(w.namespace).Get(w.Context(), pod, metav1.GetOptions{})
	require.NoError(w, err)
	all := w.pool.Nodes()
	return all[slices.IndexFunc(all, func(n *processnode.Node) bool { return n.Name == o.Spec.NodeName })]
}

// uids are those of all pods and claims.
func (w *real) uids() (uids []types.UID) {
	core := w.cluster.Client().CoreV1()
	pods, err := core.Pods(w.namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for _, pod := range pods.Items {
		uids = append(uids, pod.UID)
	}
	claims, err := core.PersistentVolumeClaims(w.namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for _, claim := range claims.Items {
		uids = append(uids, claim.UID)
	}
	return uids
}

// loses takes the data of members away while clients write, and waits until the cluster is whole again. It returns a
// row of the README's table. If behind is set, all others are frozen for so long before, and then go on.
func (w *real) loses(how string, victims []string, leader bool, behind time.Duration, before func()) string {
	l := w.writers()
	require.Eventually(w, func() bool { n, _ := l.since(time.Time{}); return n > 300 }, time.Minute,
		20*time.Millisecond)
	frozen := w.frozen(behind, victims)
	begin := time.Now()
	mend := w.lose(how, victims)
	for _, name := range frozen {
		require.NoError(w, w.pool.Thaw(w.Context(), w.key(name), container))
	}
	before()
	<-time.After(time.Second) // answers that were on their way have come
	permitted := time.Now()
	var first time.Time
	if !within(w, func() bool { _, first = l.since(permitted); return !first.IsZero() }) {
		w.settles("service after a lost quorum") // says what it waits for
		w.Fatal("no write succeeds")
	}
	var now *v1.EtcdCluster
	require.Eventually(w, func() bool {
		var err error
		now, err = w.clusters.In(w.namespace).Get(w.Context(), "a", metav1.GetOptions{})
		c := metav1.Condition{}
		if err == nil {
			c, _ = objects.FindCondition(now.Status.Conditions, v1.QuorumLost)
		}
		return c.Reason == v1.ReasonRecovered
	}, 3*time.Minute, 50*time.Millisecond, "recovered")
	w.settles("whole again after a lost quorum")
	whole := time.Since(begin)
	mend()
	lost, of := l.gone()
	r := now.Status.Recovery
	require.NotContains(w, victims, r.Survivor)
	require.ElementsMatch(w, victims, r.Lost)
	last := time.Duration(0) // how long before the loss was the first write that is lost
	for _, at := range lost {
		require.True(w, at.Before(permitted), "a write that was acknowledged after the recovery is lost")
		last = max(last, begin.Sub(at))
	}
	who := "followers"
	if leader {
		who = "leader among them"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %d, %d | %.1f s | %.1f s | %d of %d | %.0f ms |",
		strings.Join(victims, ", "),
		who, how, r.Survivor, r.Revision, r.ServedRevision, first.Sub(begin).Seconds(), whole.Seconds(), len(lost), of,
		float64(last.Microseconds())/1000)
}

// within waits up to 4 minutes.
func within(w *real, is func() bool) bool {
	for begin := time.Now(); time.Since(begin) < 4*time.Minute; <-time.After(20 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return false
}

// TestQuorumLostForGood loses the disks of two of three members, the leader's among them. Without permission nothing is
// touched, and with it the third member goes on, and gets two new ones.
func TestQuorumLostForGood(t *testing.T) {
	t.Parallel()
	w := newReal(t, *lossVersion)
	w.create(3, v1.Version(*lossVersion))
	w.settles("three members")
	names := w.members()
	t.Log(w.loses(disks, names[:2], true, 0, func() {
		w.condition(v1.QuorumLost, v1.ReasonManual)
		before := w.uids()
		<-time.After(3 * time.Second)
		require.Equal(t, before, w.uids(), "nothing is touched without permission")
		w.patch(`{"spec":{"quorumLoss":{"policy":"Recover","afterSeconds":10}}}`)
	}))
	require.Contains(t, w.members(), names[2])
}

// TestEachQuorumLost loses each pair of three members and each triple of five, in three ways. It writes the table of
// the README.
func TestEachQuorumLost(t *testing.T) {
	if !*everyLoss {
		return
	}
	w := newStage(t, nil, 6, *lossVersion)
	w.operate()
	w.create(3, v1.Version(*lossVersion))
	w.patch(`{"spec":{"quorumLoss":{"policy":"Recover","afterSeconds":10}}}`)
	w.settles("three members")
	var rows []string
	for _, size := range []int{3, 5} {
		w.patch(fmt.Sprintf(`{"spec":{"size":%d}}`, size))
		w.settles(fmt.Sprintf("%d members", size))
		for i, places := range combinations(size, plan.Quorum(size)) {
			members := w.members()
			var victims []string
			for _, place := range places {
				victims = append(victims, members[place])
			}
			how := []string{disks, claims, nodes}[i%3]
			row := w.loses(how, victims, places[0] == 0, 0, func() {})
			rows = append(rows, fmt.Sprintf("| %d of %d %s", len(victims), size, row))
			t.Log(rows[len(rows)-1])
		}
	}
	w.patch(`{"spec":{"size":3}}`)
	w.settles("three members")
	row := w.loses(disks, w.members()[:2], true, 3*time.Second, func() {})
	rows = append(rows, "| 2 of 3, the third frozen for 3 s before "+row)
	t.Logf("etcd %s\n%s", *lossVersion, strings.Join(rows, "\n"))
}

// combinations returns all choices of k of the numbers below n.
func combinations(n, k int) (all [][]int) {
	for mask := range 1 << n {
		var chosen []int
		for i := range n {
			if mask>>i&1 == 1 {
				chosen = append(chosen, i)
			}
		}
		if len(chosen) == k {
			all = append(all, chosen)
		}
	}
	slices.SortFunc(all, slices.Compare[[]int])
	return all
}
