package plan_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// healthy is a fork whose world goes on.
type healthy struct {
	*testing.T
	kubernetes.Interface
	fork *plan.Server
}

func newHealthy(t *testing.T, cfg *rest.Config) *healthy {
	fork, err := plan.Fork(t.Context(), cfg, plan.Options{World: plan.Healthy})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fork.Close()) })
	return &healthy{t, kubernetes.NewForConfigOrDie(fork.Config()), fork}
}

// settle waits until everything has been carried out, and returns the pods as NAME IMAGE, with * for what was drawn.
func (h *healthy) settle() (pods []string) {
	h.Helper()
	return h.settleIn("default")
}

func (h *healthy) settleIn(namespace string) (pods []string) {
	h.Helper()
	report, err := h.fork.Settle(h.Context(), still)
	require.NoError(h, err)
	for _, a := range report.Approximate {
		require.NotContains(h, a.Why, "could not be carried out")
	}
	list, err := h.CoreV1().Pods(namespace).List(h.Context(), metav1.ListOptions{})
	require.NoError(h, err)
	for _, p := range list.Items {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		require.True(h, ready && p.DeletionTimestamp == nil && p.Status.ContainerStatuses[0].Ready, p.Name)
		name := p.Name
		if p.GenerateName != "" {
			name = p.GenerateName + "*"
			if i := strings.LastIndex(strings.TrimSuffix(p.GenerateName, "-"), "-"); i > 0 {
				name = p.GenerateName[:i] + "-*"
			}
		}
		pods = append(pods, name+" "+p.Spec.Containers[0].Image)
	}
	slices.Sort(pods)
	return pods
}

func repeat(n int, s string) (all []string) {
	for range n {
		all = append(all, s)
	}
	return all
}

func TestAHealthyWorldRollsADeploymentOut(t *testing.T) {
	h := newHealthy(t, newWorld(t, reconciletest.Options{}).link.Config())
	c, ctx := h.AppsV1().Deployments("default"), t.Context()
	d, err := c.Create(ctx, deployment(2), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, repeat(2, "web-* web:1"), h.settle())
	first, err := c.Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "1", first.Annotations["deployment.kubernetes.io/revision"])
	change := func(f func(*appsv1.Deployment)) {
		d, err = c.Get(ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		f(d)
		_, err = c.Update(ctx, d, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "web:2" })
	require.Equal(t, repeat(2, "web-* web:2"), h.settle())
	change(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(3)) })
	require.Equal(t, repeat(3, "web-* web:2"), h.settle())
	change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "web:1" })
	require.Equal(t, repeat(3, "web-* web:1"), h.settle())
	sets, err := h.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, sets.Items, 2, "the first one is used again")
	for _, set := range sets.Items {
		require.Equal(t, *set.Spec.Replicas, set.Status.AvailableReplicas)
		require.Equal(t, set.Generation, set.Status.ObservedGeneration)
	}
	require.NoError(t, c.Delete(ctx, "web", metav1.DeleteOptions{}))
	require.Empty(t, h.settle(), "the garbage collector takes them")
}

func TestAHealthyWorldKeepsTheReplicaSetOfTheCluster(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	w.rolledOut(2)
	h := newHealthy(t, w.link.Config())
	d, err := h.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	d.Labels = map[string]string{"one": "more"}
	d.Spec.Replicas = new(int32(3))
	_, err = h.AppsV1().Deployments("default").Update(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = h.fork.Settle(t.Context(), still)
	require.NoError(t, err)
	sets, err := h.AppsV1().ReplicaSets("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, sets.Items, 1)
	require.Equal(t, "web-1", sets.Items[0].Name)
	pods, err := h.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 3)
}

func TestAHealthyWorldGivesAStatefulSetItsPods(t *testing.T) {
	h := newHealthy(t, newWorld(t, reconciletest.Options{}).link.Config())
	c, ctx := h.AppsV1().StatefulSets("default"), t.Context()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(3)), ServiceName: "db", Selector: &metav1.LabelSelector{MatchLabels: podLabels},
		Template: template("db:1"), VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim()}}}
	_, err := c.Create(ctx, set, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"db-0 db:1", "db-1 db:1", "db-2 db:1"}, h.settle())
	for n := range 3 {
		claim, err := h.CoreV1().PersistentVolumeClaims("default").Get(ctx, fmt.Sprint("data-db-", n),
			metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, corev1.ClaimBound, claim.Status.Phase)
	}
	change := func(f func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		set, err := c.Get(ctx, "db", metav1.GetOptions{})
		require.NoError(t, err)
		f(set)
		_, err = c.Update(ctx, set, metav1.UpdateOptions{})
		require.NoError(t, err)
		h.settle()
		set, err = c.Get(ctx, "db", metav1.GetOptions{})
		require.NoError(t, err)
		return set
	}
	set = change(func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}
		s.Spec.Template.Spec.Containers[0].Image = "db:2"
	})
	require.Equal(t, []string{"db-0 db:1", "db-1 db:1", "db-2 db:2"}, h.settle())
	require.NotEqual(t, set.Status.CurrentRevision, set.Status.UpdateRevision)
	require.Equal(t, [2]int32{1, 2}, [2]int32{set.Status.UpdatedReplicas, set.Status.CurrentReplicas})
	pod, err := h.CoreV1().Pods("default").Get(ctx, "db-2", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, set.Status.UpdateRevision, pod.Labels[appsv1.StatefulSetRevisionLabel])
	require.Equal(t, [2]string{"db-2", "db"}, [2]string{pod.Spec.Hostname, pod.Spec.Subdomain})

	change(func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		s.Spec.Template.Spec.Containers[0].Image = "db:3"
	})
	require.Equal(t, []string{"db-0 db:1", "db-1 db:1", "db-2 db:2"}, h.settle())
	require.NoError(t, h.CoreV1().Pods("default").Delete(ctx, "db-0", metav1.DeleteOptions{}))
	require.Equal(t, []string{"db-0 db:3", "db-1 db:1", "db-2 db:2"}, h.settle())
	change(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(1)) })
	require.Equal(t, []string{"db-0 db:3"}, h.settle())
}

// TestAHealthyWorldGivesWorkloadsThePodsThatWereLeft has a Deployment and a StatefulSet that are deleted without their
// pods and made anew with another image.
func TestAHealthyWorldGivesWorkloadsThePodsThatWereLeft(t *testing.T) {
	h := newHealthy(t, newWorld(t, reconciletest.Options{}).link.Config())
	ctx, deployments, sets := t.Context(), h.AppsV1().Deployments("default"), h.AppsV1().StatefulSets("default")
	db := map[string]string{"app": "db"}
	set := func(image string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: db}, Template: template(image)}}
		s.Spec.Template.Labels = db
		return s
	}
	_, err1 := deployments.Create(ctx, deployment(2), metav1.CreateOptions{})
	_, err2 := sets.Create(ctx, set("db:1"), metav1.CreateOptions{})
	require.NoError(t, first(err1, err2))
	require.Equal(t, []string{"db-0 db:1", "db-1 db:1", "web-* web:1", "web-* web:1"}, h.settle())
	leave := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}
	require.NoError(t, first(deployments.Delete(ctx, "web", leave), sets.Delete(ctx, "db", leave)))
	require.Equal(t, []string{"db-0 db:1", "db-1 db:1", "web-* web:1", "web-* web:1"}, h.settle(), "they are left")
	web := deployment(2)
	web.Spec.Template.Spec.Containers[0].Image = "web:2"
	_, err1 = deployments.Create(ctx, web, metav1.CreateOptions{})
	_, err2 = sets.Create(ctx, set("db:2"), metav1.CreateOptions{})
	require.NoError(t, first(err1, err2))
	require.Equal(t, []string{"db-0 db:2", "db-1 db:2", "web-* web:2", "web-* web:2"}, h.settle())
	report, err := h.fork.Report()
	require.NoError(t, err)
	require.Subset(t, verbs(report), []string{"create Deployment default/web restarts 2",
		"create StatefulSet default/db restarts 2"})
}

// TestAProgramThatRestartsPodByPodComesToItsEnd has an operator that deletes each pod of an older revision, and waits
// until the next one is ready.
func TestAProgramThatRestartsPodByPodComesToItsEnd(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	h := newHealthy(t, w.link.Config())
	ctx := t.Context()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: podLabels}, Template: template("db:1"),
		UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}}}
	_, err := h.AppsV1().StatefulSets("default").Create(ctx, set, metav1.CreateOptions{})
	require.NoError(t, err)
	h.settle()
	set, err = h.AppsV1().StatefulSets("default").Get(ctx, "db", metav1.GetOptions{})
	require.NoError(t, err)
	set.Spec.Template.Spec.Containers[0].Image = "db:2"
	_, err = h.AppsV1().StatefulSets("default").Update(ctx, set, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, restartPodByPod(ctx, h, "db"))
	require.Equal(t, []string{"db-0 db:2", "db-1 db:2", "db-2 db:2"}, h.settle())
	report, err := h.fork.Report()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"create StatefulSet default/db", "update StatefulSet default/db restarts 3",
		"delete Pod default/db-0 restarts 1", "delete Pod default/db-1 restarts 1",
		"delete Pod default/db-2 restarts 1"}, verbs(report), "in however many waves")
}

func restartPodByPod(ctx context.Context, c kubernetes.Interface, name string) error {
	pods := c.CoreV1().Pods("default")
	ofPods, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer ofPods.Stop()
	ofSets, err := c.AppsV1().StatefulSets("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer ofSets.Stop()
	waiting := ""
	for n := 0; n < 3; {
		set, err := c.AppsV1().StatefulSets("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod, err := pods.Get(ctx, fmt.Sprintf("%s-%d", name, n), metav1.GetOptions{})
		outdated := err == nil && pod.Labels[appsv1.StatefulSetRevisionLabel] != set.Status.UpdateRevision
		ready := err == nil && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].Ready
		switch {
		case set.Status.ObservedGeneration != set.Generation:
		case outdated && waiting != pod.Name:
			waiting = pod.Name
			if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		case ready && !outdated:
			n++
			continue
		}
		select {
		case <-ofPods.ResultChan():
		case <-ofSets.ResultChan():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
