package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// These tests run the controller against a real API server. Each has a namespace, a controller and an overseer of its
// own.

func TestPodsAreMadeAndReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	rs := w.create("web", 5, func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Annotations = map[string]string{"note": "from the template"}
	})
	w.settled("web", 5)

	for _, pod := range w.pods("web") {
		require.Equal(t, "web-", pod.GenerateName)
		require.Equal(t, "from the template", pod.Annotations["note"])
		require.Equal(t, []metav1.OwnerReference{controllerRef(rs)}, pod.OwnerReferences)
	}
	status := w.get("web").Status
	require.EqualValues(t, 5, status.FullyLabeledReplicas)
	require.EqualValues(t, 5, status.ReadyReplicas)
	require.NotNil(t, status.TerminatingReplicas)
	require.Empty(t, status.Conditions)

	require.Eventually(t, func() bool {
		events, err := w.client.CoreV1().Events(w.namespace).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=SuccessfulCreate"})
		require.NoError(t, err)
		return len(events.Items) == 5 && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Source.Component != "replicaset-controller" || e.ReportingController != "replicaset-controller" ||
				e.InvolvedObject.UID != rs.UID || e.Type != corev1.EventTypeNormal ||
				!strings.HasPrefix(e.Message, "Created pod: web-")
		})
	}, time.Minute, 50*time.Millisecond, "an event for each pod, in the controller's name")
}

func TestDeletedPodIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 3)
	w.settled("web", 3)

	var slowest time.Duration
	for range 5 {
		before := w.pods("web")
		deleted := time.Now()
		w.delete(before[0].Name)
		require.Eventually(t, func() bool {
			after := w.pods("web")
			return len(after) == 3 && !slices.ContainsFunc(after,
				func(p *corev1.Pod) bool { return p.UID == before[0].UID })
		}, time.Minute, 5*time.Millisecond)
		slowest = max(slowest, time.Since(deleted))
		w.settled("web", 3)
	}
	t.Logf("the slowest of 5 replacements took %v", slowest)
}

func TestScale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 2)
	w.settled("web", 2)
	for _, n := range []int32{30, 7, 8, 0, 1} {
		w.scale("web", n)
		w.settled("web", n)
	}

	// No pod changes, but a client may wait for the report that the new spec was seen.
	rs := w.get("web")
	rs.Spec.Template.Annotations = map[string]string{"new": "yes"}
	_, err := w.client.AppsV1().ReplicaSets(w.namespace).Update(t.Context(), rs, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.settled("web", 1)
}

func TestRelabelledPodIsReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 3)
	w.settled("web", 3)
	pod := w.pods("web")[0]

	w.patch(pod.Name, `{"metadata":{"labels":{"app":"debug"}}}`)
	w.settled("web", 3)
	require.Eventually(t, func() bool { return metav1.GetControllerOf(w.pod(pod.Name)) == nil }, time.Minute,
		20*time.Millisecond)
	require.Nil(t, w.pod(pod.Name).DeletionTimestamp, "released, not deleted")

	// It comes back, and there is no room for it any more: one of the four has to go.
	w.overseer.allow("web", 4)
	w.patch(pod.Name, `{"metadata":{"labels":{"app":"web"}}}`)
	require.Eventually(t, func() bool { // by the label: until it is adopted, the ReplicaSet has three pods as before
		list, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		require.NoError(t, err)
		return len(namesOfActive(list.Items)) == 3
	}, time.Minute, 20*time.Millisecond)
	w.settled("web", 3)
}

func controllerRef(rs *appsv1.ReplicaSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(rs, kind)
}

func orphan(name string, labels map[string]string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func (w *world) createPod(pod *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	created, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return created
}

func TestOrphansAreAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	stop := w.control()
	before := w.createPod(orphan("before", map[string]string{"app": "web"}))
	other := w.createPod(orphan("other", map[string]string{"app": "db"}))
	rs := w.create("web", 3)
	w.settled("web", 3)
	require.Equal(t, []metav1.OwnerReference{controllerRef(rs)}, w.pod(before.Name).OwnerReferences,
		"adopted, and only two were made")
	require.Empty(t, w.pod(other.Name).OwnerReferences)

	// An orphan of which we are a mere owner: that entry is turned into the controller's, and the other owner stays. It
	// comes while no controller runs and finds its place free, or it would be the first to go: it has no node yet.
	stop()
	settings, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	foreign := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: settings.Name, UID: settings.UID}
	mere := controllerRef(rs)
	mere.Controller, mere.BlockOwnerDeletion = nil, nil
	w.createPod(orphan("after", map[string]string{"app": "web"}, func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{foreign, mere}
	}))
	w.scale("web", 4)
	w.control()
	w.settled("web", 4)
	require.ElementsMatch(t, []metav1.OwnerReference{foreign, controllerRef(rs)}, w.pod("after").OwnerReferences)
}

// Two ReplicaSets that want the same pods end up with their number each, and do not take pods from each other.
func TestOverlappingSelectors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	for i := range 4 {
		w.createPod(orphan(fmt.Sprintf("orphan-%d", i), map[string]string{"app": "same"}))
	}
	// Both may adopt all four orphans before they delete what they have too much of.
	w.create("one", 3, labelling("same"), func(*appsv1.ReplicaSet) { w.overseer.allow("one", 4) })
	w.create("two", 3, labelling("same"), func(*appsv1.ReplicaSet) { w.overseer.allow("two", 4) })
	w.settled("one", 3)
	w.settled("two", 3)
}

// neverEnd are annotations of pods that stay on their way out until they are patched with letEnd.
var neverEnd = map[string]string{"standin/end-after": "never"}

const letEnd = `{"metadata":{"annotations":{"standin/end-after":"0s"}}}`

// A finished pod is not counted, not deleted, and keeps its owner; a terminating one is replaced without waiting for
// it.
func TestFinishedAndTerminatingPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 2, func(rs *appsv1.ReplicaSet) {
		grace := int64(60)
		rs.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
		rs.Spec.Template.Annotations = neverEnd
	})
	w.settled("web", 2)
	pods := w.pods("web")

	w.patch(pods[0].Name, `{"metadata":{"annotations":{"standin/outcome":"Failed"}}}`)
	require.Eventually(t, func() bool { return finished(w.pod(pods[0].Name)) }, time.Minute, 20*time.Millisecond)
	w.settled("web", 2)
	failed := w.pod(pods[0].Name)
	require.True(t, metav1.IsControlledBy(failed, w.get("web")))
	require.Nil(t, failed.DeletionTimestamp)

	w.delete(pods[1].Name)
	w.settled("web", 2)
	require.NotNil(t, w.pod(pods[1].Name).DeletionTimestamp, "it is still there, and replaced")
	require.Eventually(t, func() bool { return *w.get("web").Status.TerminatingReplicas == 1 }, time.Minute,
		10*time.Millisecond)
	w.patch(pods[1].Name, letEnd)
	require.Eventually(t, func() bool { return *w.get("web").Status.TerminatingReplicas == 0 }, time.Minute,
		20*time.Millisecond)
}

func TestMinReadySeconds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 2, func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 20 })
	var first appsv1.ReplicaSetStatus
	require.Eventually(t, func() bool {
		first = w.get("web").Status
		return first.ReadyReplicas == 2
	}, time.Minute, 20*time.Millisecond)
	require.Zero(t, first.AvailableReplicas, "ready, but not for long enough")
	w.settled("web", 2) // nothing happens that would wake the key: it has to come back by itself
}

// A quota stops the second batch. The status says why, one doomed request is made at a time, and it is over once there
// is room.
func TestQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	_, err := w.client.CoreV1().ResourceQuotas(w.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		q, err := w.client.CoreV1().ResourceQuotas(w.namespace).Get(t.Context(), "q", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	}, time.Minute, 50*time.Millisecond, "the quota controller has to begin")
	w.control()
	w.create("web", 20)
	failure := func() *appsv1.ReplicaSetCondition {
		for _, c := range w.get("web").Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				return &c
			}
		}
		return nil
	}
	require.Eventually(t, func() bool { return failure() != nil && w.get("web").Status.Replicas == 2 }, time.Minute,
		50*time.Millisecond)
	require.Equal(t, "FailedCreate", failure().Reason)
	require.Contains(t, failure().Message, "exceeded quota")
	require.Eventually(t, func() bool {
		events, err := w.client.CoreV1().Events(w.namespace).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
		require.NoError(t, err)
		return len(events.Items) > 0 && strings.HasPrefix(events.Items[0].Message, "Error creating: pods ") &&
			events.Items[0].Type == corev1.EventTypeWarning
	}, time.Minute, 50*time.Millisecond)

	_, err = w.client.CoreV1().ResourceQuotas(w.namespace).Patch(t.Context(), "q", types.MergePatchType,
		[]byte(`{"spec":{"hard":{"pods":"100"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.settled("web", 20)
	require.Eventually(t, func() bool { return failure() == nil }, time.Minute, 50*time.Millisecond)
}

// More events than people can read become one.
func TestManyEventsAreCombined(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 20)
	w.settled("web", 20)
	require.Eventually(t, func() bool {
		events, err := w.client.CoreV1().Events(w.namespace).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=SuccessfulCreate"})
		require.NoError(t, err)
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return strings.HasPrefix(e.Message, "(combined from similar events): Created pod: web-") && e.Count > 1
		})
	}, time.Minute, 50*time.Millisecond)
}

// Where a pod changes hands, both hands notice.
func TestAPodChangesHands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("from", 2)
	to := w.create("to", 2, func(rs *appsv1.ReplicaSet) {
		// The pods of "from" will do for "to": what it is given it may keep.
		rs.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app",
			Operator: metav1.LabelSelectorOpIn, Values: []string{"to", "from"}}}}
	})
	w.settled("from", 2)
	w.settled("to", 2)
	w.overseer.allow("to", 3)
	ref, err := json.Marshal(controllerRef(to))
	require.NoError(t, err)
	w.patch(w.pods("from")[0].Name, fmt.Sprintf(`{"metadata":{"ownerReferences":[%s]}}`, ref))
	w.settled("from", 2)
	require.Eventually(t, func() bool { return len(w.pods("to")) == 2 }, time.Minute, 20*time.Millisecond)
	w.settled("to", 2)
}

// A ReplicaSet that is made anew under the name of one that has gone begins from nothing: the pods of the old one are
// not its own.
func TestMadeAnewUnderTheSameName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 3)
	w.settled("web", 3)
	before := w.pods("web")
	w.overseer.allow("web", 3+4) // the pods of both, and both have the name
	background := metav1.DeletePropagationBackground
	require.NoError(t, w.client.AppsV1().ReplicaSets(w.namespace).Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: &background}))
	w.create("web", 4, func(*appsv1.ReplicaSet) { w.overseer.allow("web", 3+4) })
	w.settled("web", 4)
	for _, uid := range uidsOf(before) {
		require.NotContains(t, uidsOf(w.pods("web")), uid)
	}
}

// A controller that starts while pods are on their way out neither counts them nor waits for them.
func TestStartedWhilePodsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	stop := w.control()
	w.create("web", 5, func(rs *appsv1.ReplicaSet) {
		grace := int64(60)
		rs.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
		rs.Spec.Template.Annotations = neverEnd
	})
	w.settled("web", 5)
	stop()
	ending := w.pods("web")[:3]
	for _, pod := range ending {
		w.delete(pod.Name)
	}
	w.control()
	w.settled("web", 5)
	require.Eventually(t, func() bool { return *w.get("web").Status.TerminatingReplicas == 3 }, time.Minute,
		10*time.Millisecond)
	for _, pod := range ending {
		w.patch(pod.Name, letEnd)
	}
	require.Eventually(t, func() bool { return *w.get("web").Status.TerminatingReplicas == 0 }, time.Minute,
		20*time.Millisecond)
	w.settled("web", 5)
}

// Whoever scales may do it by the scale subresource, and reads there what the controller has reported.
func TestScaleSubresource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 1)
	w.settled("web", 1)
	w.overseer.allow("web", 4)
	sets := w.client.AppsV1().ReplicaSets(w.namespace)
	scale, err := sets.GetScale(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, scale.Status.Replicas)
	require.Equal(t, "app=web", scale.Status.Selector)
	scale.Spec.Replicas = 4
	_, err = sets.UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.settled("web", 4)
	scale, err = sets.GetScale(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 4, scale.Status.Replicas)
}

// A pod that no node has taken yet is gone the moment it is deleted, without a time on its way out.
func TestPodsWithoutANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 5, calm)
	has := func(n int32) {
		t.Helper()
		require.Eventually(t, func() bool { return w.get("web").Status.Replicas == n && len(w.pods("web")) == int(n) },
			time.Minute, 20*time.Millisecond)
	}
	has(5)
	w.delete(w.pods("web")[0].Name)
	has(5)
	w.scale("web", 2)
	has(2)
	w.scale("web", 0)
	has(0)
}

// The longest name that a ReplicaSet may have still makes names for pods, dash included.
func TestTheLongestName(t *testing.T) {
	t.Parallel()
	s := newStepper(t, nil)
	name := strings.Repeat("a", 253)
	s.create(name, 1, calm, labelling("web"))
	_, err := s.step(name)
	require.NoError(t, err)
	require.Len(t, s.pods(name), 1)
}

// A ReplicaSet that is deleted with its pods orphaned leaves them to the next one that wants them.
func TestOrphanedPodsFindANewOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control()
	w.create("web", 3)
	w.settled("web", 3)
	before := w.pods("web")

	orphanThem := metav1.DeletePropagationOrphan
	require.NoError(t, w.client.AppsV1().ReplicaSets(w.namespace).Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: &orphanThem}))
	require.Eventually(t, func() bool {
		_, err := w.client.AppsV1().ReplicaSets(w.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, time.Minute, 50*time.Millisecond)

	w.create("web", 3)
	w.settled("web", 3)
	require.ElementsMatch(t, uidsOf(before), uidsOf(w.pods("web")))
}

func uidsOf(pods []*corev1.Pod) (uids []types.UID) {
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	return uids
}

// While the namespace goes, no pod can be made in it; that is not worth an event or a condition.
func TestNamespaceGoes(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	w := &world{t: t, cluster: cluster, client: cluster.Client()}
	var err error
	w.namespace, err = cluster.CreateNamespace(t.Context(), t.Name())
	require.NoError(t, err)
	w.overseer = oversee(t, w.client, w.namespace)
	w.control()
	w.create("web", 3)
	w.settled("web", 3)
	require.NoError(t, w.client.CoreV1().Namespaces().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := w.client.CoreV1().Namespaces().Get(t.Context(), w.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, 3*time.Minute, 100*time.Millisecond)
}

// A controller that is asked to end finishes what it has begun.
func TestStoppedInMidScale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	stop := w.control(slowPosts(50 * time.Millisecond))
	w.create("web", 120)
	require.Eventually(t, func() bool { return len(w.pods("web")) > 0 }, time.Minute, 2*time.Millisecond)
	stop()
	require.Len(t, w.pods("web"), 120)
	w.control()
	w.settled("web", 120)
}

// One controller after the other is killed while it makes pods. The next one makes neither one too many nor one too
// few.
func TestKilledInMidScale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.create("web", 120)
	killed := 0
	for made := 0; made < 100; killed++ {
		// So slow that the first one is not done before it is killed.
		cmd := newProcess(t.Context(), "--kubeconfig", w.cluster.Kubeconfig(), "--namespace", w.namespace,
			"--leader-elect=false", "--kube-api-qps=10", "--kube-api-burst=10")
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return len(w.pods("web")) > made+10 }, time.Minute, 2*time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		made = len(w.pods("web"))
	}
	require.Greater(t, killed, 1)
	t.Logf("%d controllers were killed", killed)
	w.control()
	w.settled("web", 120)
}
