package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/transport"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A change that a client may wait for is written at once.
func TestUrgent(t *testing.T) {
	status := func(generation int64, replicas, ready, available int32,
		conditions ...appsv1.ReplicaSetCondition) appsv1.ReplicaSetStatus {
		return appsv1.ReplicaSetStatus{ObservedGeneration: generation, Replicas: replicas, ReadyReplicas: ready,
			AvailableReplicas: available, Conditions: conditions}
	}
	failure := appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure}
	for name, c := range map[string]struct {
		before, after appsv1.ReplicaSetStatus // 3 are wanted, in generation 7
		want          bool
	}{
		"the first look":                      {status(0, 0, 0, 0), status(7, 0, 0, 0), false},
		"the pods are there":                  {status(7, 0, 0, 0), status(7, 3, 0, 0), false},
		"one is ready":                        {status(7, 3, 0, 0), status(7, 3, 1, 0), false},
		"one is available":                    {status(7, 3, 1, 0), status(7, 3, 1, 1), false},
		"all are ready":                       {status(7, 3, 2, 0), status(7, 3, 3, 0), false},
		"all are available":                   {status(7, 3, 3, 2), status(7, 3, 3, 3), true},
		"all have been, and one ends":         {status(7, 3, 3, 3), status(7, 3, 3, 3), false},
		"the new spec wants as many":          {status(6, 3, 3, 3), status(7, 3, 3, 3), true},
		"the new spec wants fewer":            {status(6, 5, 5, 5), status(7, 5, 5, 5), false},
		"what was too much goes":              {status(7, 5, 5, 5), status(7, 3, 3, 3), true},
		"what was too much was not ready":     {status(7, 5, 3, 3), status(7, 3, 3, 3), true},
		"one goes":                            {status(7, 3, 3, 3), status(7, 2, 2, 2), true},
		"one goes that was not available":     {status(7, 3, 3, 2), status(7, 2, 2, 2), false},
		"one is not ready any more":           {status(7, 3, 3, 3), status(7, 3, 2, 2), true},
		"scaling begins to fail":              {status(7, 0, 0, 0), status(7, 0, 0, 0, failure), true},
		"scaling goes on failing":             {status(7, 0, 0, 0, failure), status(7, 1, 0, 0, failure), false},
		"scaling works again, others to come": {status(7, 1, 1, 1, failure), status(7, 1, 1, 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			rs := testRS()
			rs.Status = c.before
			require.Equal(t, c.want, urgent(rs, c.after))
		})
	}
}

func TestSooner(t *testing.T) {
	for _, c := range [][3]time.Duration{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {5, 7, 5}, {7, 5, 5}} {
		require.Equal(t, c[2], sooner(c[0], c[1]))
	}
}

// clockwork is the whole controller in virtual time, with a watch that notes what it writes and when.
type clockwork struct {
	t      *testing.T
	client kubernetes.Interface
	began  time.Time

	mu       sync.Mutex
	statuses []string // guarded by mu
}

func newClockwork(t *testing.T, wrap ...transport.WrapperFunc) *clockwork {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	c := &clockwork{t: t, client: kubernetes.NewForConfigOrDie(server.Config()), began: time.Now()}
	own := server.Link().Config()
	for _, f := range append(wrap, reconcile.TrackWrites) {
		own.Wrap(f)
	}
	_, controller, err := newController(own, record.NewFakeRecorder(1000), metav1.NamespaceAll, reconcile.Options{})
	require.NoError(t, err)
	manager, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{controller}})
	require.NoError(t, err)
	seen, err := c.client.AppsV1().ReplicaSets("default").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := manager.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	done.Go(func() {
		last := appsv1.ReplicaSetStatus{}
		for event := range seen.ResultChan() {
			if rs, ok := event.Object.(*appsv1.ReplicaSet); ok && rs.Status.String() != last.String() {
				last = rs.Status
				c.note(rs)
			}
		}
	})
	t.Cleanup(func() { cancel(); seen.Stop(); done.Wait() })
	synctest.Wait() // it waits for changes
	return c
}

func (c *clockwork) note(rs *appsv1.ReplicaSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statuses = append(c.statuses, fmt.Sprintf("%v: generation %d, %d pods, %d available, %d end", time.Since(c.began),
		rs.Status.ObservedGeneration, rs.Status.Replicas, rs.Status.AvailableReplicas, *rs.Status.TerminatingReplicas))
}

// written are the statuses since the last call, when nothing more happens now. The time begins anew.
func (c *clockwork) written() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	written := c.statuses
	c.statuses, c.began = nil, time.Now()
	return written
}

func (c *clockwork) create(n int32) {
	rs := testRS(func(rs *appsv1.ReplicaSet) {
		rs.ObjectMeta, rs.Status = metav1.ObjectMeta{Name: "web"}, appsv1.ReplicaSetStatus{}
		rs.Spec.Replicas = &n
	})
	_, err := c.client.AppsV1().ReplicaSets("default").Create(c.t.Context(), rs, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func (c *clockwork) pods() []corev1.Pod {
	list, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	return list.Items
}

func (c *clockwork) patch(pod corev1.Pod, patch string, subresources ...string) {
	_, err := c.client.CoreV1().Pods("default").Patch(c.t.Context(), pod.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	require.NoError(c.t, err)
}

// ready and end do what a kubelet does. A finalizer stands for the time that a pod takes to end: there is no node.
func (c *clockwork) ready(pod corev1.Pod) {
	c.patch(pod, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, "status")
}

func (c *clockwork) takesTimeToEnd(pod corev1.Pod) {
	c.patch(pod, `{"metadata":{"finalizers":["example.com/test"]}}`)
}

func (c *clockwork) end(pod corev1.Pod) {
	c.patch(pod, `{"metadata":{"finalizers":null}}`)
}

// What is on its way waits, from the first change on and not from the last; where it ends is told at once, and so is a
// loss.
func TestOneStatusTellsOfManyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.create(10)
		time.Sleep(time.Second)
		require.Equal(t, []string{"50ms: generation 1, 10 pods, 0 available, 0 end"}, c.written())

		for _, pod := range c.pods() {
			c.takesTimeToEnd(pod)
		}
		for _, pod := range c.pods() {
			time.Sleep(7 * time.Millisecond)
			c.ready(pod)
		}
		time.Sleep(time.Second)
		require.Equal(t, []string{"57ms: generation 1, 10 pods, 8 available, 0 end",
			"70ms: generation 1, 10 pods, 10 available, 0 end"}, c.written())

		lost := c.pods()[0]
		require.NoError(t, c.client.CoreV1().Pods("default").Delete(t.Context(), lost.Name, metav1.DeleteOptions{}))
		time.Sleep(7 * time.Millisecond)
		c.end(lost)
		for _, pod := range c.pods() {
			c.takesTimeToEnd(pod)
			c.ready(pod)
		}
		time.Sleep(time.Second)
		require.Equal(t, []string{"0s: generation 1, 9 pods, 9 available, 1 end",
			"7ms: generation 1, 10 pods, 10 available, 0 end"}, c.written())

		_, err := c.client.AppsV1().ReplicaSets("default").Patch(t.Context(), "web", types.MergePatchType,
			[]byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		for _, pod := range c.pods() {
			time.Sleep(7 * time.Millisecond)
			c.end(pod)
		}
		time.Sleep(time.Second)
		require.Equal(t, []string{
			"0s: generation 2, 0 pods, 0 available, 10 end", "57ms: generation 2, 0 pods, 0 available, 2 end",
			"113ms: generation 2, 0 pods, 0 available, 0 end",
		}, c.written(), "the run that deletes says nothing, as the next one is about to")
	})
}

// A status that cannot be written is tried again after a time that grows, as all that fails is: having waited is no
// success.
func TestAStatusThatIsRefusedRestsLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &tap{answer: func(r request) *http.Response {
			if r.what == "PUT replicasets/status" {
				return refuse(http.StatusForbidden) // which says that nothing was written
			}
			return nil
		}}
		c := newClockwork(t, refused.wrap)
		c.create(3)
		time.Sleep(time.Minute)
		require.Empty(t, c.written())
		tries := len(refused.sent("PUT replicasets/status"))
		require.InDelta(t, 14, tries, 1, "the last one came after 5 ms, doubled 13 times")
	})
}
