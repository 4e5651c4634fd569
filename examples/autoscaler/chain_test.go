package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// In this test the HPA, Deployment and ReplicaSet controllers are all ours, two replicas of each, and Kubernetes' own
// do not run. Loads change, users do what users do, and machines fail. The ledger of chainledger_test.go has what the
// HPA controller did, and what it was allowed to do at that time.

// soak is set for the long variants.
var soak = os.Getenv("THERMOSTAT_SOAK") != ""

const (
	chainWindow = 10 * time.Second // before an HPA shrinks
	chainTarget = 70               // percent of one CPU
)

// chain is the Deployments of a namespace, each with an HPA of its name, and those who use them.
type chain struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	names     []string
	random    *rand.Rand // of the operations; the faults have their own
	ledger    *chainLedger
	images    int
	done      map[string]int
	refused   int

	mu    sync.Mutex
	loads map[string]int64 // guarded by mu; in thousandths of a CPU
}

func (c *chain) setLoad(name string, load int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads[name] = load
}

// create makes a Deployment, and its HPA.
func (c *chain) create(ctx context.Context, name string) error {
	replicas, grace, history := int32(3), int64(1), int32(2)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	d.Spec.Replicas, d.Spec.RevisionHistoryLimit = &replicas, &history
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
	_, err := c.client.AppsV1().Deployments(c.namespace).Create(ctx, d, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return c.follow(ctx, name, 1, 8)
}

// follow creates the HPA of a Deployment, or gives it other bounds.
func (c *chain) follow(ctx context.Context, name string, least, most int32) error {
	took := c.ledger.allow(name, least, most)
	window := int32(chainWindow / time.Second)
	hpas := c.client.AutoscalingV2().HorizontalPodAutoscalers(c.namespace)
	_, err := hpas.Create(ctx, hpa(name, least, most, with(cpu(chainTarget)),
		func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window}}
		}), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = hpas.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil,
			`{"spec":{"minReplicas":%d,"maxReplicas":%d}}`, least, most), metav1.PatchOptions{})
	}
	if err == nil {
		took()
	}
	return err
}

// serve spreads the loads over the pods that run, as load balancers would, and counts pods, until ctx ends.
func (c *chain) serve(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		_ = c.spread(ctx) // the API server may be away, and a pod gone by now
	}
}

func (c *chain) spread(ctx context.Context) error {
	pods := c.client.CoreV1().Pods(c.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deployments, err := c.client.AppsV1().Deployments(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	running, alive := map[string][]corev1.Pod{}, map[string]map[string]int{} // by app and ReplicaSet
	for _, pod := range list.Items {
		app := pod.Labels["app"]
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if alive[app] == nil {
			alive[app] = map[string]int{}
		}
		alive[app][pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]]++
		if pod.Status.Phase == corev1.PodRunning {
			running[app] = append(running[app], pod)
		}
	}
	for _, d := range deployments.Items {
		c.ledger.count(d.Name, int(*d.Spec.Replicas), slices.Max(append(slices.Collect(maps.Values(alive[d.Name])), 0)))
	}
	for app, some := range running {
		c.mu.Lock()
		usage := fmt.Sprintf("cpu=%dm", c.loads[app]/int64(len(some)))
		c.mu.Unlock()
		for _, pod := range some {
			if pod.Annotations["standin/usage"] == usage {
				continue
			}
			_, err := pods.Patch(ctx, pod.Name, types.MergePatchType, fmt.Appendf(nil,
				`{"metadata":{"annotations":{"standin/usage":%q}}}`, usage), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// operate does one thing at random.
func (c *chain) operate(ctx context.Context) {
	name := c.names[c.random.IntN(len(c.names))]
	deployments := c.client.AppsV1().Deployments(c.namespace)
	operations := []struct {
		name  string
		share int
		do    func() error
	}{
		{"load", 40, func() error {
			load := 100 + c.random.IntN(7000)
			c.ledger.happened(name, "load %d", load)
			c.setLoad(name, int64(load))
			return nil
		}},
		{"scale by hand", 12, func() error {
			size := 1 + c.random.IntN(12)
			c.ledger.count(name, size, 0)
			c.ledger.happened(name, "by hand %d", size)
			_, err := deployments.UpdateScale(ctx, name, &autoscalingv1.Scale{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace},
				Spec:       autoscalingv1.ScaleSpec{Replicas: int32(size)}}, metav1.UpdateOptions{})
			return err
		}},
		{"bounds", 10, func() error {
			least := int32(1 + c.random.IntN(4))
			return c.follow(ctx, name, least, least+int32(c.random.IntN(8)))
		}},
		{"image", 12, func() error {
			c.images++
			_, err := deployments.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil,
				`{"spec":{"template":{"metadata":{"annotations":{"image":"%d"}}}}}`, c.images), metav1.PatchOptions{})
			return err
		}},
		{"delete a pod", 12, func() error {
			list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
			if err != nil || len(list.Items) == 0 {
				return err
			}
			return c.client.CoreV1().Pods(c.namespace).Delete(ctx, list.Items[c.random.IntN(len(list.Items))].Name,
				metav1.DeleteOptions{})
		}},
		{"delete the HPA", 4, func() error {
			c.ledger.happened(name, "the HPA is deleted")
			return c.client.AutoscalingV2().HorizontalPodAutoscalers(c.namespace).Delete(ctx, name,
				metav1.DeleteOptions{})
		}},
		{"create what is missing", 10, func() error { return c.create(ctx, name) }},
	}
	total := 0
	for _, o := range operations {
		total += o.share
	}
	at := c.random.IntN(total)
	for _, o := range operations {
		if at -= o.share; at < 0 {
			c.done[o.name]++
			if o.do() != nil {
				c.refused++
			}
			return
		}
	}
}

// away is the fault that the API server is away, of which the ledger is told.
func (c *chain) away(crew *testbed.Crew) testbed.Fault {
	fault := crew.Away()
	return testbed.Fault{Name: fault.Name, Do: func() error {
		defer c.ledger.away()()
		return fault.Do()
	}}
}

// without is the fault that there are no metrics for a while: nobody serves metrics.k8s.io.
func (c *chain) without(cluster *testcluster.Cluster) testbed.Fault {
	return testbed.Fault{Name: "no metrics for 10 s", Do: func() error {
		const api = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
		err := c.client.Discovery().RESTClient().Delete().AbsPath(api).Do(c.t.Context()).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			return nil // the API server has just come back: another time
		}
		time.Sleep(10 * time.Second)
		return cluster.Restart(c.t.Context(), testcluster.Node)
	}}
}

// grow waits until all controllers have a leader, and lets each HPA grow once.
func (c *chain) grow(within time.Duration) {
	deadline := time.Now().Add(within)
	for _, size := range []int{3, 6} {
		for _, name := range c.names {
			c.setLoad(name, int64(size)*chainTarget*10)
		}
		for _, name := range c.names {
			require.EventuallyWithT(c.t, func(t *assert.CollectT) { c.check(t, name, size) }, time.Until(deadline),
				200*time.Millisecond)
		}
	}
}

// calmDown gives each Deployment a load for 1 to 5 pods, and waits until all are as the formula says, and nothing is
// written any more.
func (c *chain) calmDown(within time.Duration, meanwhile func()) {
	ctx, deadline := c.t.Context(), time.Now().Add(within)
	want := map[string]int{}
	for i, name := range c.names {
		want[name] = 1 + i%5
		c.setLoad(name, int64(want[name])*chainTarget*10)
		require.EventuallyWithT(c.t, func(t *assert.CollectT) {
			meanwhile()
			require.NoError(t, c.create(ctx, name)) // and the bounds are 1 and 8 again
		}, time.Until(deadline), 500*time.Millisecond)
	}
	versions := func(t require.TestingT) (all []string) {
		for _, name := range c.names {
			all = append(all, c.check(t, name, want[name])...)
		}
		return all
	}
	var before []string
	since := time.Now()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		meanwhile()
		now := versions(t)
		if !slices.Equal(before, now) {
			before, since = now, time.Now()
		}
		require.Greater(t, time.Since(since), 10*time.Second, "something is still being written")
	}, time.Until(deadline), time.Second)
}

// check looks at a Deployment and its HPA by the API server's word, and returns their versions.
func (c *chain) check(t require.TestingT, name string, want int) []string {
	d, err := c.client.AppsV1().Deployments(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	h, err := c.client.AutoscalingV2().HorizontalPodAutoscalers(c.namespace).Get(c.t.Context(), name,
		metav1.GetOptions{})
	require.NoError(t, err)
	status := fmt.Sprintf("%d, %d of %d ready, %d updated; HPA %d of %d", *d.Spec.Replicas, d.Status.ReadyReplicas,
		d.Status.Replicas, d.Status.UpdatedReplicas, h.Status.CurrentReplicas, h.Status.DesiredReplicas)
	for _, condition := range h.Status.Conditions {
		if condition.Type != autoscalingv2.ScaledToZero { // is there only after another one
			status += " " + condition.Reason
		}
	}
	require.Equal(t, fmt.Sprintf("%d, %d of %d ready, %d updated; HPA %d of %d ReadyForNewScale ValidMetricFound "+
		"DesiredWithinRange", want, want, want, want, want, want), status, name)
	return []string{d.ResourceVersion, h.ResourceVersion}
}

func TestChain(t *testing.T) {
	t.Parallel()
	cluster := testcluster.New(t, testcluster.Options{Metrics: true, Controllers: []string{"*",
		"-horizontal-pod-autoscaler-controller", "-deployment-controller", "-replicaset-controller"}})
	length, deployments, pause := 30*time.Second, 4, 200*time.Millisecond
	if soak {
		length, deployments = 10*time.Minute, 12
	}
	seed := testbed.Seed(t)
	c := &chain{t: t, client: cluster.Client(), namespace: cluster.Namespace(t), ledger: newChainLedger(),
		random: rand.New(rand.NewPCG(seed, 0)), done: map[string]int{}, loads: map[string]int64{}}
	cutter := &testbed.Cutter{}
	gateway := testbed.NewGateway(t, cluster.Config(), testbed.BeLate(200*time.Millisecond), cutter.Wrap,
		c.ledger.Wrap)
	crew := testbed.NewCrew(t, cluster, gateway.Kubeconfig,
		testbed.Member{Name: "autoscaler", Path: os.Args[0], Flags: []string{
			"--horizontal-pod-autoscaler-sync-period=1s"}},
		testbed.Member{Name: "deployment", Path: testbed.Build(t, "deployment")},
		testbed.Member{Name: "replicaset", Path: testbed.Build(t, "replicaset")})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for i := range deployments {
		c.names = append(c.names, fmt.Sprintf("web-%02d", i))
		c.setLoad(c.names[i], 3*chainTarget*10)
		require.NoError(t, c.create(ctx, c.names[i]))
	}
	var others sync.WaitGroup
	defer others.Wait()
	defer end()
	others.Go(func() { c.serve(ctx) })
	c.grow(5 * time.Minute)

	began := time.Now()
	trouble, over := context.WithTimeout(ctx, length)
	defer over()
	var faults map[string]int
	var machines sync.WaitGroup
	machines.Go(func() {
		faults = crew.Suffer(trouble, rand.New(rand.NewPCG(seed, 1)), cutter.All(), crew.Killed("autoscaler"),
			crew.Killed("deployment"), crew.Killed("replicaset"), c.away(crew), crew.Frozen("autoscaler"),
			c.without(cluster))
	})
	operations := 0
	for ; trouble.Err() == nil; time.Sleep(pause) {
		c.operate(trouble)
		operations++
	}
	machines.Wait()
	require.NoError(t, cluster.Restart(t.Context(), testcluster.Node)) // which serves the metrics anew
	c.calmDown(5*time.Minute, crew.Revive)
	end()
	others.Wait()
	violations, up, down := c.ledger.judge()
	injected := 0
	for _, n := range faults {
		injected += n
	}
	t.Logf("%.1f minutes, %d operations (%d refused), %d faults, %d times up and %d times down by %d HPAs, every "+
		"watch 200 ms late, %d processes revived; %d violations; seed %d", time.Since(began).Minutes(), operations,
		c.refused, injected, up, down, deployments, crew.Revived(), len(violations), seed)
	t.Logf("faults: %v", faults)
	t.Logf("operations: %v", c.done)
	require.Empty(t, strings.Join(violations, "\n"))
	require.GreaterOrEqual(t, up, deployments, "each has grown once before the faults")
	require.Greater(t, down, 0, "nothing was seen")
}
