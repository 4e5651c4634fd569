package main

import (
	"context"
	"fmt"
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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// In this test users do at random what users do to Deployments, and machines fail, while both the Deployment controller
// and the ReplicaSet controller are ours. A chronicle is kept all along, and the end is checked.

// chaos is who does it, in one namespace. None of its operations has to succeed: the API server may be away.
type chaos struct {
	*side
	t       *testing.T
	random  *rand.Rand // of the operations; the faults have their own
	names   []string
	size    int
	images  int
	done    map[string]int
	refused int
}

// operate does one thing.
func (c *chaos) operate(ctx context.Context) {
	name := c.names[c.random.IntN(len(c.names))]
	target := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	image := func(kind, ready string) func() error {
		return func() error {
			c.images++
			return c.patch(ctx, target, `{"spec":{"template":{"metadata":{"annotations":{"standin/ready-after":%q}},`+
				`"spec":{"containers":[{"name":"c","image":"%s-%d"}]}}}}`, ready, kind, c.images)
		}
	}
	strategies := []strategy{{"1", "0"}, {"0", "1"}, {"25%", "25%"}, {"2", "2"}, {}}
	operations := []struct {
		name  string
		share int
		do    func() error
	}{
		{"a good image", 25, image("good", "100ms")},
		{"a bad image", 12, image("bad", "never")},
		{"undo", 12, func() error { return c.onCurrent(ctx, name, c.undo) }},
		{"scale", 20, func() error {
			return c.patch(ctx, target, `{"spec":{"replicas":%d}}`,
				c.random.IntN(c.size+1))
		}},
		{"pause or resume", 8, func() error {
			return c.patch(ctx, target, `{"spec":{"paused":%t}}`,
				c.random.IntN(3) == 0)
		}},
		{"strategy", 8, func() error {
			return c.patch(ctx, target, `{"spec":{"strategy":%s}}`, strategies[c.random.IntN(len(strategies))].patch())
		}},
		{"delete pods", 10, func() error { return c.hurt(ctx, target, step{do: "delete pods", n: 2}) }},
		{"fail pods", 4, func() error { return c.hurt(ctx, target, step{do: "fail pods", n: 2}) }},
		{"delete a Deployment and create it again", 3, func() error {
			background := metav1.DeletePropagationBackground
			err := c.client.AppsV1().Deployments(c.namespace).Delete(ctx, name,
				metav1.DeleteOptions{PropagationPolicy: &background})
			if err != nil {
				return err
			}
			return c.create(ctx, name)
		}},
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

func (c *chaos) create(ctx context.Context, name string) error {
	limit, grace := int32(3), int64(1)
	_, err := c.client.AppsV1().Deployments(c.namespace).Create(ctx, deployment(name, int32(c.size), "good-0",
		func(d *appsv1.Deployment) {
			d.Spec.RevisionHistoryLimit = &limit
			d.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
		}), metav1.CreateOptions{})
	return err
}

// onCurrent does something to a Deployment and its ReplicaSets as the API server has them.
func (c *chaos) onCurrent(ctx context.Context, name string,
	do func(context.Context, *appsv1.Deployment, []*appsv1.ReplicaSet) error) error {
	d, sets, err := c.current(ctx, name)
	if err != nil {
		return err
	}
	return do(ctx, d, sets)
}

func (c *chaos) current(ctx context.Context, name string) (*appsv1.Deployment, []*appsv1.ReplicaSet, error) {
	d, err := c.client.AppsV1().Deployments(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	list, err := c.client.AppsV1().ReplicaSets(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, nil, err
	}
	var sets []*appsv1.ReplicaSet
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], d) {
			sets = append(sets, &list.Items[i])
		}
	}
	return d, sets, nil
}

// calmDown puts right what users have done, and waits until a checker finds nothing wrong.
func (c *chaos) calmDown(within time.Duration, meanwhile func()) {
	ctx, deadline := c.t.Context(), time.Now().Add(within)
	for _, name := range c.names {
		require.EventuallyWithT(c.t, func(t *assert.CollectT) {
			meanwhile()
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
			err := c.patch(ctx, d, `{"spec":{"paused":false,"replicas":%d,"template":{"metadata":{"annotations":`+
				`{"standin/ready-after":"0s"}},"spec":{"containers":[{"name":"c","image":"good-end"}]}}}}`, c.size+1)
			if apierrors.IsNotFound(err) {
				err = c.create(ctx, name)
				require.NoError(t, err)
				require.Fail(t, "it is there again")
			}
			require.NoError(t, err)
		}, time.Until(deadline), 500*time.Millisecond, "%s takes no template", name)
	}
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		meanwhile()
		for _, name := range c.names {
			c.check(t, name)
		}
	}, time.Until(deadline), time.Second)
}

// check looks at a Deployment, its ReplicaSets and its pods, by the API server's word.
func (c *chaos) check(t *assert.CollectT, name string) {
	d, sets, err := c.current(c.t.Context(), name)
	require.NoError(t, err)
	pods, err := c.client.CoreV1().Pods(c.namespace).List(c.t.Context(),
		metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(t, err)
	require.True(t, complete(d, d.Status), "%s: %+v", name, d.Status)
	require.Equal(t, "NewReplicaSetAvailable", find(d.Status.Conditions, progressing).Reason, name)
	require.Equal(t, corev1.ConditionTrue, find(d.Status.Conditions, appsv1.DeploymentAvailable).Status, name)
	ro := newRollout(d, sets, time.Now())
	require.NotNil(t, ro.new, name)
	require.Equal(t, c.size+1, size(ro.new), name)
	require.Empty(t, active(ro.old), name)
	require.LessOrEqual(t, len(ro.old), 3, "%s: the limit of its history", name)
	require.Equal(t, d.Annotations[revisionAnnotation], ro.new.Annotations[revisionAnnotation], name)
	running := 0
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodFailed:
		case metav1.IsControlledBy(pod, ro.new):
			running++
		default: // perhaps of a Deployment that is gone: then the garbage collector has still to come
			owned := slices.ContainsFunc(ro.old,
				func(set *appsv1.ReplicaSet) bool { return metav1.IsControlledBy(pod, set) })
			require.False(t, owned, "%s: %s", name, pod.Name)
		}
	}
	require.Equal(t, c.size+1, running, name)
}

func TestChaos(t *testing.T) {
	t.Parallel()
	cluster := testcluster.New(t, testcluster.Options{
		Controllers: []string{"*", "-deployment-controller", "-replicaset-controller"}})
	length, deployments, size, pause := 40*time.Second, 6, 6, 100*time.Millisecond
	if soak {
		length, deployments, size = 10*time.Minute, 40, 12
	}
	seed := testbed.Seed(t)
	cutter := &testbed.Cutter{}
	gateway := testbed.NewGateway(t, cluster.Config(), testbed.BeLate(200*time.Millisecond), cutter.Wrap)
	crew := testbed.NewCrew(t, cluster, gateway.Kubeconfig, testbed.Member{Name: "deployment", Path: os.Args[0]},
		testbed.Member{Name: "replicaset", Path: testbed.Build(t, "replicaset")})
	c := &chaos{side: newSide(t, cluster, "chaos"), t: t, random: rand.New(rand.NewPCG(seed, 0)), size: size,
		done: map[string]int{}}
	chronicle, stop := keepChronicle(t, c.client, c.namespace)
	for i := range deployments {
		c.names = append(c.names, fmt.Sprintf("web-%02d", i))
		require.NoError(t, c.create(t.Context(), c.names[i]))
	}
	require.Eventually(t, func() bool {
		d, _, err := c.current(t.Context(), c.names[0])
		return err == nil && complete(d, d.Status)
	}, 3*time.Minute, 50*time.Millisecond, "both controllers have a leader")

	began := time.Now()
	ctx, end := context.WithTimeout(t.Context(), length)
	defer end()
	var faults map[string]int
	var machines sync.WaitGroup
	machines.Go(func() {
		faults = crew.Suffer(ctx, rand.New(rand.NewPCG(seed, 1)), cutter.All(), crew.Killed("deployment"),
			crew.Killed("replicaset"), crew.Away(), crew.Frozen("deployment"))
	})
	operations := 0
	for ; ctx.Err() == nil; time.Sleep(pause) {
		c.operate(ctx)
		operations++
	}
	machines.Wait()
	c.calmDown(5*time.Minute, crew.Revive)
	stop()
	violations := chronicle.judge()
	injected := 0
	for _, n := range faults {
		injected += n
	}
	t.Logf("%.1f minutes, %d operations (%d refused), %d faults, %d ReplicaSets and %d changes of their sizes for %d "+
		"Deployments x %d, every watch 200 ms late, %d processes revived; %d violations; seed %d",
		time.Since(began).Minutes(), operations, c.refused, injected, chronicle.created(), chronicle.resized(),
		deployments, size, crew.Revived(), len(violations), seed)
	t.Logf("faults: %v", faults)
	t.Logf("operations: %v", c.done)
	require.Empty(t, strings.Join(violations, "\n"))
	require.Greater(t, chronicle.created(), 2*deployments, "nothing was seen")
}

// A controller that does not wait for its own writes, behind the same late watches, breaks the promises, and the
// chronicle tells. There is no need for any fault.
func TestChaosWithABrokenController(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	c := &chaos{side: newSide(t, cluster, "broken"), t: t, random: rand.New(rand.NewPCG(1, 0)), size: 6,
		done: map[string]int{}}
	chronicle, stop := keepChronicle(t, c.client, c.namespace)
	stopController := runWith(t, cluster, c.namespace, testbed.BeLate(200*time.Millisecond)) // and no TrackWrites
	for i := range 4 {
		c.names = append(c.names, fmt.Sprintf("web-%d", i))
		require.NoError(t, c.create(t.Context(), c.names[i]))
	}
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
