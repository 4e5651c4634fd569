package plan_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestAHealthyWorldGivesADaemonSetItsPods is on a real control plane, since the server in memory has no DaemonSets.
func TestAHealthyWorldGivesADaemonSetItsPods(t *testing.T) {
	c := audited(t)
	namespace, ctx := c.Namespace(t), t.Context()
	disk := map[string]string{"disk": namespace}
	for n := range 2 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(namespace, "-", n), Labels: disk}}
		_, err := c.Client().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, c.Client().CoreV1().Nodes().Delete(context.WithoutCancel(ctx), node.Name,
				metav1.DeleteOptions{}))
		})
	}
	h := newHealthy(t, c.reader)
	sets := h.AppsV1().DaemonSets(namespace)
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: podLabels}, Template: template("agent:1")}}
	set.Spec.Template.Spec.NodeSelector = disk
	_, err := sets.Create(ctx, set, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, repeat(2, "agent-* agent:1"), h.settleIn(namespace))
	set, err = sets.Get(ctx, "agent", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, set.Status.NumberReady)
	set.Spec.Template.Spec.Containers[0].Image = "agent:2"
	_, err = sets.Update(ctx, set, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, repeat(2, "agent-* agent:2"), h.settleIn(namespace))
	pods, err := h.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.NoError(t, h.CoreV1().Pods(namespace).Delete(ctx, pods.Items[0].Name, metav1.DeleteOptions{}))
	require.Equal(t, repeat(2, "agent-* agent:2"), h.settleIn(namespace))
	c.requireNoWrites(t)
}

// TestASetThatIsMadeAnewKeepsItsPods does on a fork, and then on the cluster, what operators do that change what may
// not change: they delete a set without its pods, and make it anew.
func TestASetThatIsMadeAnewKeepsItsPods(t *testing.T) {
	c := audited(t)
	namespace := c.Namespace(t)
	node := readyNode(t, c.Client())
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: podLabels}, Template: template("db:1")}}
	agent := map[string]string{"app": "agent"}
	each := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: agent}, Template: template("agent:1")}}
	each.Spec.Template.Labels = agent
	each.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	s := &sets{t, c.Client(), namespace}
	_, err1 := s.AppsV1().StatefulSets(namespace).Create(t.Context(), set, metav1.CreateOptions{})
	_, err2 := s.AppsV1().DaemonSets(namespace).Create(t.Context(), each, metav1.CreateOptions{})
	require.NoError(t, first(err1, err2))
	s.rolledOut()
	s.changeImages(":2")
	s.rolledOut()
	h := newHealthy(t, c.reader)
	makeAnewInTurn(t, &sets{t, h, namespace}, func(s *sets) map[types.UID]string {
		h.settleIn(namespace)
		return s.pods()
	})
	makeAnewInTurn(t, s, (*sets).rolledOut)
	c.requireNoWrites(t)
}

// makeAnewInTurn makes sets anew as they are, as they were before, and as they never were, and says which pods stay.
func makeAnewInTurn(t *testing.T, s *sets, settle func(*sets) map[types.UID]string) {
	t.Helper()
	before := s.pods()
	for _, turn := range []struct {
		tag   string
		stays []string
	}{
		{"", []string{"agent", "web", "web"}},
		{":1", nil},
		{":3", []string{"agent"}}, // the templates of both DaemonSets have the number 1, by which pods are known
	} {
		s.makeAnew(turn.tag)
		after := settle(s)
		require.Equal(t, turn.stays, inBoth(before, after), turn.tag)
		before = after
	}
}

// sets are the StatefulSet db and the DaemonSet agent of a namespace, on a cluster or a fork.
type sets struct {
	*testing.T
	kubernetes.Interface
	namespace string
}

// rolledOut waits until all pods are of the newest templates and ready, and returns them.
func (s *sets) rolledOut() map[types.UID]string {
	s.Helper()
	require.Eventually(s, func() bool {
		db, err1 := s.AppsV1().StatefulSets(s.namespace).Get(s.Context(), "db", metav1.GetOptions{})
		agent, err2 := s.AppsV1().DaemonSets(s.namespace).Get(s.Context(), "agent", metav1.GetOptions{})
		return first(err1, err2) == nil && db.Status.ObservedGeneration == db.Generation &&
			db.Status.ReadyReplicas == 2 && db.Status.UpdatedReplicas == 2 &&
			db.Status.CurrentRevision == db.Status.UpdateRevision &&
			agent.Status.ObservedGeneration == agent.Generation && agent.Status.NumberReady == 1 &&
			agent.Status.UpdatedNumberScheduled == 1
	}, 2*time.Minute, 100*time.Millisecond)
	return s.pods()
}

func (s *sets) pods() map[types.UID]string {
	list, err := s.CoreV1().Pods(s.namespace).List(s.Context(), metav1.ListOptions{})
	require.NoError(s, err)
	all := map[types.UID]string{}
	for _, p := range list.Items {
		all[p.UID] = p.Labels["app"]
	}
	return all
}

// changeImages gives the templates the image of a tag.
func (s *sets) changeImages(tag string) {
	db, err1 := s.AppsV1().StatefulSets(s.namespace).Get(s.Context(), "db", metav1.GetOptions{})
	agent, err2 := s.AppsV1().DaemonSets(s.namespace).Get(s.Context(), "agent", metav1.GetOptions{})
	require.NoError(s, first(err1, err2))
	db.Spec.Template.Spec.Containers[0].Image = "db" + tag
	agent.Spec.Template.Spec.Containers[0].Image = "agent" + tag
	_, err1 = s.AppsV1().StatefulSets(s.namespace).Update(s.Context(), db, metav1.UpdateOptions{})
	_, err2 = s.AppsV1().DaemonSets(s.namespace).Update(s.Context(), agent, metav1.UpdateOptions{})
	require.NoError(s, first(err1, err2))
}

// makeAnew deletes both without their pods, and makes them anew: with the image of another tag, unless it is empty.
func (s *sets) makeAnew(tag string) {
	s.Helper()
	ctx, leave := s.Context(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}
	statefulSets, daemonSets := s.AppsV1().StatefulSets(s.namespace), s.AppsV1().DaemonSets(s.namespace)
	db, err1 := statefulSets.Get(ctx, "db", metav1.GetOptions{})
	agent, err2 := daemonSets.Get(ctx, "agent", metav1.GetOptions{})
	require.NoError(s, first(err1, err2))
	require.NoError(s, first(statefulSets.Delete(ctx, "db", leave), daemonSets.Delete(ctx, "agent", leave)))
	require.Eventually(s, func() bool {
		_, err1 := statefulSets.Get(ctx, "db", metav1.GetOptions{})
		_, err2 := daemonSets.Get(ctx, "agent", metav1.GetOptions{})
		return apierrors.IsNotFound(err1) && apierrors.IsNotFound(err2)
	}, time.Minute, 50*time.Millisecond)
	if tag != "" {
		db.Spec.Template.Spec.Containers[0].Image = "db" + tag
		agent.Spec.Template.Spec.Containers[0].Image = "agent" + tag
	}
	_, err1 = statefulSets.Create(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: db.Spec},
		metav1.CreateOptions{})
	_, err2 = daemonSets.Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: agent.Spec},
		metav1.CreateOptions{})
	require.NoError(s, first(err1, err2))
}

// inBoth returns the pods that are in both.
func inBoth(a, b map[types.UID]string) (both []string) {
	for uid, name := range a {
		if _, ok := b[uid]; ok {
			both = append(both, name)
		}
	}
	slices.Sort(both)
	return both
}

// readyNode returns the name of the node that runs pods.
func readyNode(t *testing.T, c kubernetes.Interface) string {
	nodes, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return node.Name
			}
		}
	}
	t.Fatal("no node is ready")
	return ""
}
