package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// These tests call Reconcile themselves, once at a time, against a real API server, and look at the requests that it
// makes.

// stepper is a reconciler whose caches are kept up to date, and that does nothing unless it is told to.
type stepper struct {
	*world
	r *replicaSetReconciler
	*tap
	events *record.FakeRecorder
}

func newStepper(t *testing.T, answer func(request) *http.Response) *stepper {
	cluster := shared(t)
	w := newWorld(t, cluster)
	cfg := cluster.Config()
	s := &stepper{world: w, tap: &tap{answer: answer}, events: record.NewFakeRecorder(10_000)}
	cfg.Wrap(s.tap.wrap)
	cfg.ContentType = "application/json" // so that the bodies can be read
	var err error
	s.r, _, err = newController(cfg, s.events, w.namespace, reconcile.Options{})
	require.NoError(t, err)
	s.r.statusDelay = 0 // what there is to say is said by the run that finds it
	watching(t, s.r)
	return s
}

// watching keeps the caches of r up to date until the test ends.
func watching(t *testing.T, r *replicaSetReconciler) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = r.replicaSets.Run(ctx) })
	done.Go(func() { _ = r.pods.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	require.NoError(t, r.replicaSets.WaitForSync(t.Context()))
	require.NoError(t, r.pods.WaitForSync(t.Context()))
}

// step reconciles once, when the caches show what the API server has.
func (s *stepper) step(name string) (reconcile.Result, error) {
	s.t.Helper()
	s.catchUp()
	return s.r.Reconcile(s.t.Context(), informer.Key{Namespace: s.namespace, Name: name})
}

func (s *stepper) catchUp() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		sets, err := s.client.AppsV1().ReplicaSets(s.namespace).List(s.t.Context(), metav1.ListOptions{})
		require.NoError(s.t, err)
		pods, err := s.client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{})
		require.NoError(s.t, err)
		there, cached := map[types.UID]string{}, map[types.UID]string{}
		for i := range sets.Items {
			there[sets.Items[i].UID] = sets.Items[i].ResourceVersion
		}
		for i := range pods.Items {
			there[pods.Items[i].UID] = pods.Items[i].ResourceVersion
		}
		for rs := range s.r.replicaSets.All() {
			cached[rs.UID] = rs.ResourceVersion
		}
		for pod := range s.r.pods.All() {
			cached[pod.UID] = pod.ResourceVersion
		}
		return fmt.Sprint(there) == fmt.Sprint(cached)
	}, time.Minute, 10*time.Millisecond, "the caches should catch up")
}

// calm gives pods a node that does not exist: the stand-in for a node leaves them alone, so they stay Pending and are
// gone at once when deleted.
func calm(rs *appsv1.ReplicaSet) {
	rs.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "nowhere"}
}

func calmPod(pod *corev1.Pod) {
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "nowhere"}
}

// told are the events so far.
func (s *stepper) told() (events []string) {
	for {
		select {
		case e := <-s.events.Events:
			events = append(events, e)
		default:
			return events
		}
	}
}

// statuses are those that were written, in order.
func (s *stepper) statuses() (all []appsv1.ReplicaSetStatus) {
	s.t.Helper()
	for _, r := range s.sent("PUT replicasets/status") {
		var rs appsv1.ReplicaSet
		require.NoError(s.t, json.Unmarshal([]byte(r.body), &rs))
		all = append(all, rs.Status)
	}
	return all
}

// One run after the other, from nothing to everything, and no request more than needed.
func TestStepByStep(t *testing.T) {
	t.Parallel()
	s := newStepper(t, nil)
	_, err := s.step("web")
	require.NoError(t, err, "there is no such ReplicaSet")
	require.Empty(t, s.order())

	s.create("web", 3, calm)
	_, err = s.step("web")
	require.NoError(t, err)
	require.Len(t, s.pods("web"), 3)
	require.Len(t, s.told(), 3)
	written := s.statuses()
	require.Len(t, written, 1)
	require.Zero(t, written[0].Replicas, "the status describes what was found, not what was made of it")
	require.EqualValues(t, 1, written[0].ObservedGeneration)
	require.Equal(t, []string{"POST pods", "POST pods", "POST pods", "PUT replicasets/status"}, s.order(),
		"no look at the live ReplicaSet: nothing to adopt")

	_, err = s.step("web")
	require.NoError(t, err)
	require.EqualValues(t, 3, s.statuses()[0].Replicas)
	require.Equal(t, []string{"PUT replicasets/status"}, s.order())

	_, err = s.step("web")
	require.NoError(t, err)
	require.Empty(t, s.order(), "nothing is left to do, and nothing is done")
	require.Empty(t, s.told())

	// A new spec that wants as many as before: nothing to do but to say that it was seen.
	rs := s.get("web")
	rs.Spec.Template.Annotations = map[string]string{"new": "yes"}
	_, err = s.client.AppsV1().ReplicaSets(s.namespace).Update(t.Context(), rs, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = s.step("web")
	require.NoError(t, err)
	require.EqualValues(t, 2, s.statuses()[0].ObservedGeneration)
	require.Equal(t, []string{"PUT replicasets/status"}, s.order())
}

// The first adoption of a run asks whether the ReplicaSet still lives; the others go by the same answer.
func TestAdoptionAsksOnce(t *testing.T) {
	t.Parallel()
	s := newStepper(t, nil)
	for i := range 3 {
		s.createPod(orphan(fmt.Sprintf("orphan-%d", i), map[string]string{"app": "web"}, calmPod))
	}
	s.create("web", 3, calm)
	_, err := s.step("web")
	require.NoError(t, err)
	require.Equal(t, []string{"GET replicasets", "PATCH pods", "PATCH pods", "PATCH pods", "PUT replicasets/status"},
		s.order())
	require.Len(t, s.pods("web"), 3)
	require.Empty(t, s.told(), "an adoption is no event")

	// Released and refilled in one run, and that is no event either.
	s.patch("orphan-0", `{"metadata":{"labels":{"app":"debug"}}}`)
	_, err = s.step("web")
	require.NoError(t, err)
	require.Equal(t, []string{"PATCH pods", "POST pods", "PUT replicasets/status"}, s.order())
	require.Len(t, s.told(), 1)
	require.Nil(t, metav1.GetControllerOf(s.pod("orphan-0")))
}

// Whoever does not know what he has makes nothing and says nothing; but every candidate had its turn.
func TestAFailedClaimEndsTheRun(t *testing.T) {
	t.Parallel()
	s := newStepper(t, func(r request) *http.Response {
		if r.what == "PATCH pods" && r.name != "orphan-1" {
			return refuse(http.StatusInternalServerError)
		}
		return nil
	})
	for i := range 3 {
		s.createPod(orphan(fmt.Sprintf("orphan-%d", i), map[string]string{"app": "web"}, calmPod))
	}
	s.create("web", 5, calm)
	_, err := s.step("web")
	require.ErrorContains(t, err, "orphan-0")
	require.ErrorContains(t, err, "orphan-2")
	require.Equal(t, []string{"GET replicasets", "PATCH pods", "PATCH pods", "PATCH pods"}, s.order())
	require.Len(t, s.pods("web"), 1)
}

// The adoption of an orphan fails if another controller has just adopted it. Once the cache shows that, the pod is left
// alone.
func TestAnAdoptionThatCameTooLate(t *testing.T) {
	t.Parallel()
	var s *stepper
	var other *appsv1.ReplicaSet
	s = newStepper(t, func(r request) *http.Response {
		if r.what == "PATCH pods" {
			ref, err := json.Marshal(controllerRef(other))
			require.NoError(t, err)
			s.patch(r.name, fmt.Sprintf(`{"metadata":{"ownerReferences":[%s]}}`, ref))
		}
		return nil
	})
	other = s.create("other", 1, calm)
	s.createPod(orphan("orphan", map[string]string{"app": "web"}, calmPod))
	s.create("web", 1, calm)
	_, err := s.step("web")
	require.ErrorContains(t, err, "orphan")
	require.Equal(t, []string{"GET replicasets", "PATCH pods"}, s.order())
	_, err = s.step("web")
	require.NoError(t, err)
	require.Equal(t, []string{"POST pods", "PUT replicasets/status"}, s.order())
	require.Equal(t, other.UID, metav1.GetControllerOf(s.pod("orphan")).UID)
}

// The ReplicaSet changes between the look at it and the status. The status goes onto the newest version, and says for
// which one it holds.
func TestStatusMeetsAConflict(t *testing.T) {
	t.Parallel()
	var s *stepper
	var once sync.Once
	s = newStepper(t, func(r request) *http.Response {
		if r.what == "PUT replicasets/status" {
			once.Do(func() { s.scale("web", 9) })
		}
		return nil
	})
	s.create("web", 2, calm)
	_, err := s.step("web")
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1}, []int64{s.statuses()[0].ObservedGeneration, s.statuses()[1].ObservedGeneration})
	require.Equal(t, []string{"POST pods", "POST pods", "PUT replicasets/status", "GET replicasets",
		"PUT replicasets/status"}, s.order())
	rs := s.get("web")
	require.EqualValues(t, 2, rs.Generation)
	require.EqualValues(t, 1, rs.Status.ObservedGeneration)
}

// A status that cannot be written is an error, so that it is tried again; and what failed to be made is reported before
// it is tried again, which may be after a long time: then nothing waits.
func TestStatusIsWrittenAlsoWhenScalingFails(t *testing.T) {
	t.Parallel()
	room, broken := 0, false
	s := newStepper(t, func(r request) *http.Response {
		switch {
		case r.what == "POST pods":
			if room--; room < 0 {
				return refuse(http.StatusInternalServerError)
			}
		case r.what == "PUT replicasets/status" && broken:
			return refuse(http.StatusInternalServerError)
		}
		return nil
	})
	s.r.statusDelay = time.Hour
	s.create("web", 2, calm)
	_, err := s.step("web")
	require.ErrorContains(t, err, "refused by the test")
	require.Equal(t, []string{"POST pods", "PUT replicasets/status"}, s.order())
	condition := s.get("web").Status.Conditions[0]
	require.Equal(t, "FailedCreate", condition.Reason)
	require.Len(t, s.told(), 1)

	room = 1
	_, err = s.step("web")
	require.Error(t, err)
	require.Equal(t, []string{"POST pods", "POST pods"}, s.order(),
		"the condition stays as it was, so there is nothing to write")
	room = 0
	_, err = s.step("web")
	require.Error(t, err)
	require.Equal(t, []string{"POST pods", "PUT replicasets/status"}, s.order())
	require.EqualValues(t, 1, s.get("web").Status.Replicas)

	s.told()
	room, broken = 1, true
	_, err = s.step("web")
	require.ErrorContains(t, err, "update the status")
	require.Len(t, s.pods("web"), 2)
	require.Len(t, s.told(), 1, "of the pod, and none of the status")
}

// No deletion waits for another: each of them is answered only when all have been asked for.
func TestPodsAreDeletedAllAtOnce(t *testing.T) {
	t.Parallel()
	const n = 4
	var asked sync.WaitGroup
	asked.Add(n)
	s := newStepper(t, func(r request) *http.Response {
		if r.what == "DELETE pods" {
			asked.Done()
			all := make(chan struct{})
			go func() { asked.Wait(); close(all) }()
			select {
			case <-all:
			case <-time.After(time.Minute):
				return refuse(http.StatusInternalServerError)
			}
		}
		return nil
	})
	s.create("web", n, calm)
	_, err := s.step("web")
	require.NoError(t, err)
	s.scale("web", 0)
	_, err = s.step("web")
	require.NoError(t, err)
	require.Empty(t, s.pods("web"))
}

// A ReplicaSet that is on its way out is only reported on: its pods are the garbage collector's.
func TestForegroundDeletion(t *testing.T) {
	t.Parallel()
	s := newStepper(t, nil)
	// A finalizer keeps the first pod, and with it the ReplicaSet, until this test lets go.
	s.create("web", 2, calm, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Finalizers = []string{"example.com/test"} })
	_, err := s.step("web")
	require.NoError(t, err)
	pods := s.pods("web")
	t.Cleanup(func() {
		for _, pod := range pods {
			s.letGo(pod.Name)
		}
	})
	foreground := metav1.DeletePropagationForeground
	require.NoError(t, s.client.AppsV1().ReplicaSets(s.namespace).Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: &foreground}))
	require.Eventually(t, func() bool { return len(s.pods("web")) == 0 }, time.Minute, 20*time.Millisecond,
		"the garbage collector deletes them")
	s.createPod(orphan("orphan", map[string]string{"app": "web"}, calmPod))
	s.patch(pods[0].Name, `{"metadata":{"labels":{"app":"debug"}}}`)
	s.order()

	_, err = s.step("web")
	require.NoError(t, err)
	require.EqualValues(t, 2, s.get("web").Status.ObservedGeneration, "a deletion is a new generation")
	require.Equal(t, []string{"PUT replicasets/status"}, s.order(),
		"neither created, nor deleted, nor adopted, nor released")
}

// The pods of all revisions of one Deployment count together per node; those of others do
// not.
func TestPodsPerNode(t *testing.T) {
	t.Parallel()
	s := newStepper(t, nil)
	// It does not matter what the owner is, but it has to exist: the garbage collector looks.
	owner := func(name string) func(*appsv1.ReplicaSet) {
		o, err := s.client.CoreV1().ConfigMaps(s.namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		return func(rs *appsv1.ReplicaSet) {
			rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o,
				corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
		}
	}
	on := func(node, app string, i int, change ...func(*corev1.Pod)) {
		s.createPod(orphan(fmt.Sprintf("%s-%s-%d", node, app, i), map[string]string{"app": app},
			append(change, func(pod *corev1.Pod) { pod.Spec.NodeName = node })...))
	}
	deployment := owner("deployment")
	s.create("old", 0, deployment)
	s.create("new", 0, deployment)
	s.create("old-again", 0, deployment, labelling("old")) // it matches what "old" does: a pod counts once for all that
	s.create("stranger", 0, owner("another"))
	s.create("single", 0)
	for i := range 3 {
		on("busy", "old", i)
	}
	on("busy", "new", 0)
	on("calm", "new", 0)
	on("calm", "stranger", 0)
	on("calm", "single", 0)
	on("calm", "old", 9, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/test"} })
	zero := int64(0)
	require.NoError(t, s.client.CoreV1().Pods(s.namespace).Delete(t.Context(), "calm-old-9",
		metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	t.Cleanup(func() { s.letGo("calm-old-9") })
	s.catchUp()
	require.Equal(t, map[string]int{"busy": 4, "calm": 1}, s.r.podsPerNode(s.get("old")))
	require.Equal(t, map[string]int{"busy": 4, "calm": 1}, s.r.podsPerNode(s.get("new")))
	require.Equal(t, map[string]int{"calm": 1}, s.r.podsPerNode(s.get("stranger")))
	require.Nil(t, s.r.podsPerNode(s.get("single")), "without a Deployment there are no related pods")
}

// letGo takes a pod's finalizers away, also after the test.
func (w *world) letGo(pod string) {
	require.NoError(w.t, w.tryToPatch(context.Background(), pod, `{"metadata":{"finalizers":null}}`))
}

// Whom a pod concerns: its controller by name, whatever that turns out to be, or all that want an orphan.
func TestConcerned(t *testing.T) {
	t.Parallel()
	s := newStepper(t, nil)
	s.create("one", 0, labelling("same"))
	s.create("two", 0, labelling("same"))
	s.create("other", 0)
	s.catchUp()
	here := func(pod *corev1.Pod) { pod.Namespace = s.namespace }
	name := func(pod *corev1.Pod) (names []string) {
		for _, key := range s.r.concerned(pod) {
			require.Equal(t, s.namespace, key.Namespace)
			names = append(names, key.Name)
		}
		return names
	}
	require.ElementsMatch(t, []string{"one", "two"}, name(testPod("p", here, labelled("app", "same"))))
	require.Empty(t, name(testPod("p", here, labelled("app", "none"))))
	require.Empty(t, name(testPod("p", here, func(pod *corev1.Pod) { pod.Labels = nil })))
	require.Equal(t, []string{"web"}, name(testPod("p", here, labelled("app", "same"), ownedBy("any"))))
	require.Empty(t, name(testPod("p", here, labelled("app", "same"), ownedBy("any"),
		func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "Job" })))
}

// An API server lets no invalid selector in; should there be one, nothing is done, and it is not tried again.
func TestAnInvalidSelectorIsLeftAlone(t *testing.T) {
	api := inMemory(t)
	api.createRS(testRS(func(rs *appsv1.ReplicaSet) {
		rs.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app",
			Operator: metav1.LabelSelectorOpExists}}}
	}))
	cfg := api.link.Config()
	cfg.ContentType = "application/json"
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &misreading{next, `"Exists"`, `"Nearby"`} })
	cfg.Wrap(api.wrap)
	r, _, err := newController(cfg, record.NewFakeRecorder(10), "ns", reconcile.Options{})
	require.NoError(t, err)
	watching(t, r)
	_, err = r.Reconcile(t.Context(), informer.Key{Namespace: "ns", Name: "web"})
	require.ErrorContains(t, err, "selector")
	require.IsType(t, reconcile.Terminal(err), err)
	require.Empty(t, api.order())
}
