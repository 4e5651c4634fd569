package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// In these tests people do at random what people do to ReplicaSets and pods, and machines fail. A chronicle is kept all
// along, and checked is what there is in the end.

// chaos is who does it, in one namespace. None of its operations has to succeed: the API server may be away.
type chaos struct {
	*world
	random  *rand.Rand // of the operations; the faults have their own
	names   []string   // of the ReplicaSets; the first two select the same pods
	size    int        // pods of each at first, and at most until the end
	done    map[string]int
	refused int
}

// newChaos creates the ReplicaSets. A seed is the same operations in the same order; what they meet is up to the clock.
func newChaos(t *testing.T, cluster *testcluster.Cluster, sets, size int) (c *chaos, seed uint64) {
	seed = uint64(time.Now().UnixNano())
	if given := os.Getenv("THERMOSTAT_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("THERMOSTAT_SEED=%d", seed)
	w := newFreeWorld(t, cluster)
	c = &chaos{world: w, random: rand.New(rand.NewPCG(seed, 0)), size: size, done: map[string]int{}}
	for i := range sets {
		c.names = append(c.names, fmt.Sprintf("set-%03d", i))
		w.create(c.names[i], int32(size), labelling(c.label(i)))
	}
	_, err := w.client.CoreV1().ResourceQuotas(w.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(
			"100000")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return c, seed
}

func (c *chaos) label(i int) string {
	if i < 2 {
		return "both"
	}
	return c.names[i]
}

// operate does one thing.
func (c *chaos) operate(ctx context.Context) {
	i := c.random.IntN(len(c.names))
	operations := []struct {
		name  string
		share int
		do    func() error
	}{
		{"scale", 30, func() error { return c.tryToScale(ctx, c.names[i], int32(c.random.IntN(c.size+1))) }},
		{"delete pods", 30, func() error {
			return c.some(ctx, i, 3, func(pod string) error {
				return c.client.CoreV1().Pods(c.namespace).Delete(ctx, pod, metav1.DeleteOptions{})
			})
		}},
		{"fail pods", 8, func() error {
			return c.some(ctx, i, 2, func(pod string) error {
				return c.tryToPatch(ctx, pod, `{"metadata":{"annotations":{"standin/outcome":"Failed"}}}`)
			})
		}},
		{"relabel pods", 16, func() error { // some are wanted by another ReplicaSet then, and some by none
			to := []string{"stray", c.label(c.random.IntN(len(c.names)))}[c.random.IntN(2)]
			return c.some(ctx, i, 2, func(pod string) error {
				return c.tryToPatch(ctx, pod, fmt.Sprintf(`{"metadata":{"labels":{"app":%q}}}`, to))
			})
		}},
		{"add orphans", 8, func() error {
			_, err := c.client.CoreV1().Pods(c.namespace).Create(ctx,
				orphan("", map[string]string{"app": "both"}, func(pod *corev1.Pod) { pod.GenerateName = "orphan-" }),
				metav1.CreateOptions{})
			return err
		}},
		{"change the quota", 4, func() error {
			return c.quota(ctx, []int{len(c.names) * c.size / 2, 100_000}[c.random.IntN(2)])
		}},
		{"make a ReplicaSet anew, leaving its pods", 4, func() error {
			leave := metav1.DeletePropagationOrphan
			if err := c.client.AppsV1().ReplicaSets(c.namespace).Delete(ctx, c.names[i],
				metav1.DeleteOptions{PropagationPolicy: &leave}); err != nil {
				return err
			}
			return c.makeAnew(ctx, i)
		}},
	}
	total := 0
	for _, o := range operations {
		total += o.share
	}
	for _, o := range operations {
		if total -= o.share; c.random.IntN(total+o.share) < o.share {
			c.done[o.name]++
			if o.do() != nil {
				c.refused++
			}
			return
		}
	}
}

// some does something to at most n pods with the label of a ReplicaSet, the same ones for the same order of names.
func (c *chaos) some(ctx context.Context, i, n int, do func(pod string) error) error {
	list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + c.label(i)})
	if err != nil {
		return err
	}
	names := namesOfActive(list.Items)
	c.random.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
	for _, pod := range names[:min(n, len(names))] {
		if err := do(pod); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (c *chaos) quota(ctx context.Context, pods int) error {
	_, err := c.client.CoreV1().ResourceQuotas(c.namespace).Patch(ctx, "quota", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"hard":{"pods":"%d"}}}`, pods), metav1.PatchOptions{})
	return err
}

// makeAnew creates a ReplicaSet under the name of one that is about to go.
func (c *chaos) makeAnew(ctx context.Context, i int) (err error) {
	rs := newReplicaSet(c.names[i], int32(c.size), labelling(c.label(i)))
	for range 50 {
		if _, err = c.client.AppsV1().ReplicaSets(c.namespace).Create(ctx, rs,
			metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// calmDown puts right what people have done, and waits until a checker finds nothing wrong.
func (c *chaos) calmDown(within time.Duration, meanwhile func()) {
	ctx, deadline := c.t.Context(), time.Now().Add(within)
	// It counts only when the controller manager has seen it, and the API server that. A ReplicaSet that fails once
	// more now might rest for a quarter of an hour.
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		meanwhile()
		require.NoError(t, c.quota(ctx, 100_000))
		_, err := c.client.CoreV1().Pods(c.namespace).Create(ctx,
			orphan("", map[string]string{"app": "stray"}, func(pod *corev1.Pod) { pod.GenerateName = "stray-" }),
			metav1.CreateOptions{})
		require.NoError(t, err)
	}, time.Until(deadline), 500*time.Millisecond, "the quota is as small as it was")
	for i, name := range c.names {
		require.EventuallyWithT(c.t, func(t *assert.CollectT) {
			meanwhile()
			set, err := c.client.AppsV1().ReplicaSets(c.namespace).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				err = c.makeAnew(ctx, i)
			}
			require.NoError(t, err)
			require.Nil(t, set.DeletionTimestamp, "the last operation may have left it on its way out")
			require.NoError(t, c.tryToScale(ctx, name, int32(c.size)+1)) // a number that it has not had
		}, time.Until(deadline), 500*time.Millisecond, "%s takes no new number", name)
	}
	wrong, err := []string(nil), error(nil)
	for ; time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		meanwhile()
		if wrong, err = check(ctx, c.client, c.namespace); err == nil && len(wrong) == 0 {
			return
		}
	}
	require.NoError(c.t, err)
	require.Empty(c.t, wrong)
}

// crew is two replicas of the command, which fight for a lease, or three that share the work.
type crew struct {
	t       *testing.T
	cluster *testcluster.Cluster
	mu      sync.Mutex
	members map[string]*testcluster.Process // guarded by mu
	revived int                             // guarded by mu
}

func newCrew(t *testing.T, cluster *testcluster.Cluster, gateway *testbed.Gateway) *crew {
	c := &crew{t: t, cluster: cluster, members: map[string]*testcluster.Process{}}
	names, flags := []string{"one", "two"}, []string{"--leader-elect-lease-duration=8s",
		"--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}
	if *sharded {
		names = append(names, "three")
		flags = append(flags, "--shards", "--leader-elect-resource-namespace=kube-system")
	}
	for _, name := range names {
		c.members[name] = startCommand(t, cluster, name, gateway.Kubeconfig,
			append([]string{"--leader-elect-identity=" + name}, flags...)...)
	}
	t.Cleanup(func() {
		for name, p := range c.members {
			if t.Failed() {
				t.Logf("the end of what %s has said:\n%s", name, c.end(p))
			}
		}
	})
	return c
}

// end is the end of what a member has said.
func (c *crew) end(p *testcluster.Process) string {
	log, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-3000):])
}

// leader is who holds the lease, or any of them, as all are if they share the work, and its name.
func (c *crew) leader(random *rand.Rand) (string, *testcluster.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *sharded {
		names := slices.Sorted(maps.Keys(c.members))
		name := names[random.IntN(len(names))]
		return name, c.members[name]
	}
	lease, err := c.cluster.Client().CoordinationV1().Leases("kube-system").Get(c.t.Context(), "thermostat-replicaset",
		metav1.GetOptions{})
	if err == nil && lease.Spec.HolderIdentity != nil && strings.HasPrefix(*lease.Spec.HolderIdentity, "two_") {
		return "two", c.members["two"]
	}
	return "one", c.members["one"]
}

// replaced returns when others have had the time to take over from a frozen member: the Lease of a leader has run out,
// or they have removed that of a replica which shares the work.
func (c *crew) replaced(ctx context.Context, name string) error {
	if !*sharded {
		time.Sleep(10 * time.Second)
		return nil
	}
	const every = 500 * time.Millisecond
	return wait.PollUntilContextTimeout(ctx, every, time.Minute, true, func(ctx context.Context) (bool, error) {
		leases, err := c.cluster.Client().CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{
			LabelSelector: "thermostat-go.github.io/shards=thermostat-replicaset"})
		if err != nil {
			return false, nil
		}
		return !slices.ContainsFunc(leases.Items, func(l coordinationv1.Lease) bool {
			isTable := l.Spec.LeaseDurationSeconds == nil
			return !isTable && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == name
		}), nil
	})
}

// revive starts again who has ended, as a kubelet does. It may have been killed, or have given up with an error, but
// nothing else.
func (c *crew) revive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.members {
		select {
		case <-p.Ended():
			status, err := p.Wait(c.t.Context())
			if status != "signal: killed" {
				c.t.Logf("%s ended by itself: %s\n%s", name, status, c.end(p))
			}
			if status != "signal: killed" && status != "exit status 1" {
				c.t.Errorf("%s ended: %s (%v)", name, status, err)
			}
			again, err := p.Restart(c.t.Context())
			if err != nil {
				c.t.Errorf("restart %s: %v", name, err)
				return
			}
			c.members[name], c.revived = again, c.revived+1
		default:
		}
	}
}

func TestChaos(t *testing.T) {
	t.Parallel()
	cluster := testcluster.New(t, withoutBuiltIn)
	length, sets, size, pause := 50*time.Second, 8, 8, 50*time.Millisecond
	if soak {
		length, sets, size = 10*time.Minute, 100, 30
	}
	cutter := &testbed.Cutter{}
	crew := newCrew(t, cluster, testbed.NewGateway(t, cluster.Config(), testbed.BeLate(200*time.Millisecond),
		cutter.Wrap))
	chronicle, stop := keepChronicle(t, cluster.Client(), "")
	c, seed := newChaos(t, cluster, sets, size)
	doomed := newFreeWorld(t, cluster)
	doomed.create("doomed", int32(size))
	c.settled(c.names[2], int32(size)) // a replica leads

	began := time.Now()
	ctx, end := context.WithTimeout(t.Context(), length)
	defer end()
	faults := map[string]int{}
	var machines sync.WaitGroup
	machines.Go(func() {
		random := rand.New(rand.NewPCG(seed, 1))
		must := func(err error) {
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		kinds := []struct {
			name string
			do   func()
		}{
			{"all watches cut", cutter.Cut},
			{"leader killed", func() {
				_, leader := crew.leader(random)
				_ = leader.Kill(t.Context()) // it may have ended just now; revive looks at how
				waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := leader.Wait(waiting)
				must(err)
			}},
			{"API server killed and away for 2 s", func() {
				must(cluster.Kill(t.Context(), testcluster.APIServer))
				time.Sleep(2 * time.Second)
				must(cluster.Restart(t.Context(), testcluster.APIServer))
			}},
			{"leader frozen until another leads", func() {
				name, leader := crew.leader(random)
				if leader.Stop(t.Context()) == nil { // it may have ended just now
					must(crew.replaced(ctx, name))
					time.Sleep(2 * time.Second)
					must(leader.Continue(t.Context()))
				}
			}},
		}
		for ctx.Err() == nil {
			for _, k := range random.Perm(len(kinds)) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(2+random.IntN(4)) * time.Second):
				}
				kinds[k].do()
				faults[kinds[k].name]++
				crew.revive()
			}
		}
	})
	operations := 0
	for ; ctx.Err() == nil; time.Sleep(pause) {
		c.operate(ctx)
		if operations++; time.Since(began) > length/2 && c.done["delete a namespace"] == 0 {
			if c.client.CoreV1().Namespaces().Delete(ctx, doomed.namespace, metav1.DeleteOptions{}) == nil {
				c.done["delete a namespace"]++
			}
		}
	}
	machines.Wait()
	c.calmDown(5*time.Minute, crew.revive)
	require.NotZero(t, c.done["delete a namespace"])
	require.Eventually(t, func() bool {
		_, err := c.client.CoreV1().Namespaces().Get(t.Context(), doomed.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, 3*time.Minute, 100*time.Millisecond, "the namespace should be gone")
	stop()
	violations := chronicle.judge()
	injected := 0
	for _, n := range faults {
		injected += n
	}
	t.Logf("%.1f minutes, %d operations (%d refused), %d faults, %d pods made for %d ReplicaSets x %d, every watch "+
		"200 ms late, %d replicas of the command revived; %d violations; seed %d",
		time.Since(began).Minutes(), operations, c.refused, injected, chronicle.made(), sets, size, crew.revived,
		len(violations), seed)
	t.Logf("faults: %v", faults)
	t.Logf("operations: %v", c.done)
	require.Empty(t, violations)
	require.Greater(t, chronicle.made(), sets*size, "nothing was seen")
}

// A controller that does not wait for its own writes, behind the same late watches, makes too many pods, and the
// chronicle finds them. No other fault is needed.
func TestChaosWithABrokenController(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	c, _ := newChaos(t, cluster, 4, 8)
	chronicle, stop := keepChronicle(t, c.client, c.namespace)
	stopController := c.controlWith(testbed.BeLate(200 * time.Millisecond)) // and no TrackWrites
	// On a busy machine; it ends when it has found one.
	ctx, end := context.WithTimeout(t.Context(), 3*time.Minute)
	defer end()
	for operations := 0; ctx.Err() == nil && (operations%20 != 0 || len(chronicle.judge()) == 0); operations++ {
		c.operate(ctx)
		time.Sleep(50 * time.Millisecond)
	}
	stopController()
	stop()
	violations := chronicle.judge()
	require.NotEmpty(t, violations, "the checker does not see what it is there to see")
	t.Logf("%d violations, such as: %s", len(violations), violations[0])
}
