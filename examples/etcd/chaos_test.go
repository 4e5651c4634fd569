package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/load"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

var (
	chaosFor  = flag.Duration("chaos", 15*time.Second, "how long TestChaos causes faults")
	chaosSeed = flag.Uint64("seed", 1, "which faults TestChaos causes")
)

// chaos causes faults while clients read and write, and people change the spec.
type chaos struct {
	*wired
	random   *rand.Rand
	oracle   *oracle
	began    time.Time
	versions [2]v1.Version
	damaged  map[uint64]bool // voters whose disks are lost
	faults   map[string]int
	group    sync.WaitGroup // faults that last

	lock   sync.Mutex // guards busy and killed
	busy   map[string]bool
	killed map[string]time.Time // pods that the test has deleted
}

// TestChaos breaks members, nodes, operators, networks and the API server for a while, at random. Then the cluster must
// become as its spec says. No acknowledged write may be lost, no read may go back, and the operator may have done
// nothing that could have cost a quorum.
func TestChaos(t *testing.T) {
	versions := [][2]v1.Version{{"3.6.16", "3.7.3"}, {"3.5.35", "3.6.16"}}[(*chaosSeed+1)%2]
	c := &chaos{wired: newWired(t, 5, 2, string(versions[0]), string(versions[1])), versions: versions,
		random: rand.New(rand.NewPCG(*chaosSeed, 22)), damaged: map[uint64]bool{}, faults: map[string]int{},
		busy: map[string]bool{}, killed: map[string]time.Time{}}
	c.oracle = &oracle{w: c.real, own: c.own, clusters: map[uint64]bool{}}
	_, err := c.clusters.In(c.namespace).Create(t.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.EtcdClusterSpec{Size: 3, Version: versions[0], Image: "etcd", ReplaceAfterSeconds: 10}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	c.settles("three members")
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() { defer close(watched); c.oracle.watch(ctx) }()
	kept := make(chan struct{})
	go func() { defer close(kept); c.keep(ctx) }()
	require.Eventually(t, func() bool { return len(c.oracle.voters()) == 3 }, time.Minute, 50*time.Millisecond)
	clients := load.Start(ctx, load.Options{Endpoints: c.oracle.endpoints})
	c.began = time.Now()
	for time.Since(c.began) < *chaosFor {
		c.fault(ctx)
		<-time.After(time.Duration(1000+c.random.IntN(4000)) * time.Millisecond)
	}
	c.group.Wait()
	c.patch(`{"spec":{"size":3}}`)
	if !eventually(5*time.Minute, c.whole) {
		c.describe()
		t.Fatal("there should be three voters that answer, and no other one")
	}
	c.settles("three members, after the faults")
	before := clients.Report().Writes.Done
	require.Eventually(t, func() bool { return clients.Report().Writes.Done > before+100 }, time.Minute,
		50*time.Millisecond, "clients are served")
	report := clients.Stop()
	stop()
	<-watched
	<-kept
	c.conclude(report, clients.Judge(t.Context(), 10*time.Minute))
}

func eventually(limit time.Duration, is func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if is() {
			return true
		}
		<-time.After(300 * time.Millisecond)
	}
	return false
}

// describe logs what the cluster, its members and their pods are like.
func (c *chaos) describe() {
	if now, err := c.clusters.In(c.namespace).Get(c.Context(), "a", metav1.GetOptions{}); err == nil {
		text, _ := json.MarshalIndent(now, "", " ")
		c.Logf("%s", text)
	}
	for _, m := range c.oracle.voters() {
		c.Logf("%+v: damaged: %v, healthy: %v", m, c.damaged[m.ID], c.oracle.healthy(m.ID))
	}
	pods, err := c.pods.In(c.namespace).List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	for _, pod := range pods.Items {
		text, _ := json.Marshal(pod.Status)
		c.Logf("%s on %s, deleted %v: %s", pod.Name, pod.Spec.NodeName, pod.DeletionTimestamp, text)
	}
}

// whole reports whether the cluster is as the spec says, as the oracle sees it.
func (c *chaos) whole() bool {
	voters := c.oracle.voters()
	for _, m := range voters {
		if c.damaged[m.ID] || !c.oracle.healthy(m.ID) {
			return false
		}
	}
	return len(voters) == 3
}

func (c *chaos) conclude(report load.Report, verdict load.Verdict) {
	deeds := c.deeds()
	wrong := c.oracle.judge(deeds)
	total := 0
	for _, n := range c.faults {
		total += n
	}
	c.Logf("seed %d, %.0f s: %d faults: %s", *chaosSeed, time.Since(c.began).Seconds(), total, tally(c.faults))
	c.Logf("the operator asked etcd for %d changes: %s", len(deeds), actions(deeds))
	c.Logf("it restarted or deleted pods %d times: %s", len(c.oracle.restarts), actions(c.oracle.restarts))
	for what, n := range map[string]load.Count{"writes": report.Writes, "reads": report.Reads} {
		c.Logf("%s: %d, %d failed; longest time without one: %.2f s, from second %.1f on", what, n.Done, n.Failed,
			n.Gap.Seconds(), n.GapAt.Sub(c.began).Seconds())
	}
	c.Log(verdict)
	require.Empty(c, report.Wrong)
	require.Empty(c, verdict.Wrong)
	require.Empty(c, wrong)
	require.NotZero(c, report.Writes.Done)
}

// own reports whether the test has deleted a pod.
func (c *chaos) own(pod string) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	return time.Since(c.killed[pod]) < 15*time.Second
}

// fault does one of the things that happen. What cannot happen now does not.
func (c *chaos) fault(ctx context.Context) {
	voters := c.oracle.voters()
	victim := voters[c.random.IntN(len(voters))]
	pod := c.key(victim.Name)
	switch n := c.random.IntN(130); {
	case n < 22:
		c.happens("kill -9 of a member", pod.Name, c.pool.Kill(ctx, pod, container))
	case n < 26:
		var errs []error
		for _, m := range voters {
			errs = append(errs, c.pool.Kill(ctx, c.key(m.Name), container))
		}
		c.happens("kill -9 of all members", "", errors.Join(errs...))
	case n < 42:
		c.lasts("a member frozen", pod.Name, time.Duration(1+c.random.IntN(15))*time.Second,
			func() error { return c.pool.Freeze(ctx, pod, container) },
			func() error { return c.pool.Thaw(ctx, pod, container) })
	case n < 54:
		c.loseDisk(ctx, pod, victim.ID, voters)
	case n < 62:
		node := c.pool.Nodes()[c.random.IntN(5)]
		c.lasts("a node lost", "node", time.Duration(5+c.random.IntN(20))*time.Second,
			func() error { return node.Stop(ctx) }, func() error { return node.Start(ctx) })
	case n < 67:
		c.lock.Lock()
		c.killed[pod.Name] = time.Now()
		c.lock.Unlock()
		c.happens("a pod deleted", pod.Name, c.pods.In(c.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	case n < 75:
		i := c.random.IntN(len(c.operators))
		c.happens("kill -9 of an operator", string(c.operator(i)), c.restart(ctx, i))
	case n < 80:
		i := c.random.IntN(len(c.operators))
		c.starting.Lock()
		operator := c.operators[i]
		c.starting.Unlock()
		c.lasts("an operator frozen", "operator", time.Duration(5+c.random.IntN(15))*time.Second,
			func() error { return operator.Stop(ctx) }, func() error { _ = operator.Continue(ctx); return nil })
	case n < 84:
		c.happens("the API server killed and restarted", "", c.cluster.Restart(ctx, cluster.APIServer))
	case n < 92:
		c.change("a new size", fmt.Sprintf(`{"spec":{"size":%d}}`, []int{3, 4, 5}[c.random.IntN(3)]))
	case n < 100:
		c.change("a new version", fmt.Sprintf(`{"spec":{"version":%q}}`, c.versions[c.random.IntN(2)]))
	default:
		c.network(victim.Name, voters)
	}
}

// loseDisk loses no disk whose data no quorum of the other voters has: an operator could not mend that.
func (c *chaos) loseDisk(ctx context.Context, claim types.NamespacedName, id uint64, voters []members.Listed) {
	intact := 0
	for _, m := range voters {
		if !c.damaged[m.ID] && m.ID != id {
			intact++
		}
	}
	if intact < plan.Quorum(len(voters)) {
		return
	}
	c.damaged[id] = true
	c.happens("a disk lost", claim.Name, c.pool.LoseDisk(ctx, claim))
}

func (c *chaos) change(what, patch string) {
	_, err := c.clusters.In(c.namespace).Patch(c.Context(), "a", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	c.happens(what, patch, err)
}

// happens counts a fault. A member that does not run just now cannot be killed.
func (c *chaos) happens(what, whom string, err error) {
	if err != nil {
		c.Logf("%6.1f s: no %s, %s: %v", time.Since(c.began).Seconds(), what, whom, err)
		return
	}
	c.Logf("%6.1f s: %s, %s", time.Since(c.began).Seconds(), what, whom)
	c.faults[what]++
}

// lasts begins a fault that ends later. Only one at a time can be about the same thing.
func (c *chaos) lasts(what, whom string, d time.Duration, begin, end func() error) {
	c.lock.Lock()
	busy := c.busy[whom]
	c.busy[whom] = true
	c.lock.Unlock()
	if busy {
		return
	}
	c.happens(what, fmt.Sprintf("%s for %s", whom, d), begin())
	c.group.Go(func() {
		<-time.After(d)
		_ = end() // a member that was thawed may be gone
		c.lock.Lock()
		defer c.lock.Unlock()
		c.busy[whom] = false
	})
}
