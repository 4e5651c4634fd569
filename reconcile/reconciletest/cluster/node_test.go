package cluster_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// These tests run a node of their own beside the one that every cluster has.

type world struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	node      string
}

func newWorld(t *testing.T, flags ...string) *world {
	c := cluster.Shared(t)
	programs, err := cluster.Assets(t.Context())
	require.NoError(t, err)
	w := &world{t: t, client: c.Client(), namespace: c.Namespace(t), node: strings.ToLower(t.Name())}
	node, err := c.Run(t.Context(), cluster.Command{
		Name: w.node, Path: filepath.Join(programs, "controlplane"),
		Args: append([]string{"node", "--kubeconfig", c.Kubeconfig(), "--name", w.node}, flags...),
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := w.client.CoreV1().Nodes().Get(t.Context(), w.node, metav1.GetOptions{})
		return err == nil
	}, time.Minute, 10*time.Millisecond, "the node should register itself")
	t.Cleanup(func() {
		require.NoError(t, node.Terminate(context.Background()))
		status, err := node.Wait(context.Background())
		require.NoError(t, err)
		require.Equal(t, "exit status 0", status)
		require.NoError(t, w.client.CoreV1().Nodes().Delete(context.Background(), w.node, metav1.DeleteOptions{}))
	})
	return w
}

// create makes a pod for our node.
func (w *world) create(name string, annotations map[string]string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: w.node},
			Containers:   []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) eventually(what string, ok func(pod *corev1.Pod) bool, pod string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		p, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), pod, metav1.GetOptions{})
		return err == nil && ok(p)
	}, time.Minute, 10*time.Millisecond, what)
}

func (w *world) gone(pod string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		_, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), pod, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, time.Minute, 10*time.Millisecond, "%s should go", pod)
}

func (w *world) delete(pod string) {
	w.t.Helper()
	require.NoError(w.t, w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), pod, metav1.DeleteOptions{}))
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func isNodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func TestNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var first *corev1.Node
	ready := func() bool {
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), w.node, metav1.GetOptions{})
		first = node
		return err == nil && isNodeReady(node) && len(node.Spec.Taints) == 0
	}
	require.Eventually(t, ready, time.Minute, 20*time.Millisecond,
		"ready, and the node controller has taken the taint of new nodes away")
	require.Eventually(t, func() bool {
		lease, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), w.node,
			metav1.GetOptions{})
		return err == nil && time.Since(lease.Spec.RenewTime.Time) < 15*time.Second
	}, time.Minute, 20*time.Millisecond)

	// Somebody declares it dead, or deletes it: neither lasts.
	before := first.UID
	_, err := w.client.CoreV1().Nodes().PatchStatus(t.Context(), w.node,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`))
	require.NoError(t, err)
	require.Eventually(t, ready, time.Minute, 20*time.Millisecond)
	require.NoError(t, w.client.CoreV1().Nodes().Delete(t.Context(), w.node, metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return ready() && first.UID != before }, time.Minute, 20*time.Millisecond)
}

func TestPodLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("plain", nil)
	w.eventually("Running and Ready", func(p *corev1.Pod) bool {
		return p.Spec.NodeName == w.node && p.Status.Phase == corev1.PodRunning && isPodReady(p) &&
			p.Status.PodIP != "" &&
			len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
	}, "plain")
	w.delete("plain")
	w.gone("plain")

	// It is Ready for up to a second less than that, and a busy machine takes its time for a look.
	w.create("failing", map[string]string{"standin/outcome": "Failed", "standin/outcome-after": "15s"})
	w.eventually("Ready first", isPodReady, "failing")
	w.eventually("Failed in the end", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed &&
			!isPodReady(p)
	}, "failing")
	w.delete("failing")
	w.gone("failing")

	w.create("mistaken", map[string]string{"standin/ready-after": "soon"})
	w.create("finishing", map[string]string{"standin/outcome": "Succeeded", "standin/ready-after": "never"})
	w.eventually("Succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }, "finishing")
	w.eventually("left alone", func(p *corev1.Pod) bool { return p.Spec.NodeName == "" }, "mistaken")
}

func TestSlowNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--start-after=2s", "--ready-after=2s", "--end-after=3s")
	// The states last seconds: a busy machine may look too late for one, and a watch shows it all the same.
	states, err := w.client.CoreV1().Pods(w.namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=slow"})
	require.NoError(t, err)
	defer states.Stop()
	next := func(state string, is func(*corev1.Pod) bool) {
		t.Helper()
		for {
			select {
			case event := <-states.ResultChan():
				pod, ok := event.Object.(*corev1.Pod)
				require.True(t, ok, "%s: the watch sent %v", state, event)
				require.NotEqual(t, watch.Deleted, event.Type, state)
				if is(pod) {
					return
				}
			case <-time.After(time.Minute):
				require.FailNow(t, "no event for a minute", state)
			}
		}
	}
	began := time.Now()
	w.create("slow", nil)
	w.create("quick", map[string]string{"standin/start-after": "0s", "standin/ready-after": "0s",
		"standin/end-after": "0s"})
	w.eventually("an annotation goes before the flags", isPodReady, "quick")
	next("bound at once", func(p *corev1.Pod) bool {
		return p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending
	})
	next("Running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && !isPodReady(p) })
	next("Ready", isPodReady)
	require.Greater(t, time.Since(began), 2*time.Second, "up to a second early at each of two steps")

	began = time.Now()
	w.delete("slow")
	next("ending", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	w.gone("slow")
	require.Greater(t, time.Since(began), 1900*time.Millisecond)
}

// Whoever holds a finalizer on a pod learns of its end, and the pod goes when the finalizer does.
func TestFinalizer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("held", nil)
	w.eventually("Ready", isPodReady, "held")
	pods := w.client.CoreV1().Pods(w.namespace)
	patch := func(finalizers string) {
		_, err := pods.Patch(t.Context(), "held", "application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	patch(`["example.com/hold"]`)
	w.delete("held")
	w.eventually("Failed and let go", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed && p.DeletionGracePeriodSeconds != nil &&
			*p.DeletionGracePeriodSeconds == 0
	}, "held")
	patch(`null`)
	w.gone("held")
}

// Pods that may run anywhere are bound once, whoever is faster. No other test runs beside it: its node would take some
// of the pods, and go with them.
func TestTwoNodes(t *testing.T) {
	w := newWorld(t)
	ready := map[string]int{}
	allReady := func(n int) bool {
		list, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		clear(ready)
		all := 0
		for i := range list.Items {
			if pod := &list.Items[i]; isPodReady(pod) {
				ready[pod.Spec.NodeName]++
				all++
			}
		}
		return all == n
	}
	for made := 0; len(ready) < 2 && made < 200; { // one of the nodes may get no processor for a while
		for range 20 {
			_, err := w.client.CoreV1().Pods(w.namespace).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "any-"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		made += 20
		require.Eventually(t, func() bool { return allReady(made) }, 2*time.Minute, 20*time.Millisecond)
	}
	require.Len(t, ready, 2, "the scheduler should use both nodes: %v", ready)
}
