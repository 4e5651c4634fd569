package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// check reads the API, and nothing else, and says what is wrong in a namespace in which nothing happens any more.
func check(ctx context.Context, client kubernetes.Interface, namespace string) (wrong []string, err error) {
	sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return complaints(sets.Items, pods.Items), nil
}

// complaints are what is wrong with these ReplicaSets and pods, if they are all that there is.
func complaints(sets []appsv1.ReplicaSet, pods []corev1.Pod) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	living := map[types.UID]bool{}
	for i := range sets {
		living[sets[i].UID] = true
		checkReplicaSet(&sets[i], pods, complain)
	}
	for i := range pods {
		pod := &pods[i]
		owner := metav1.GetControllerOfNoCopy(pod)
		switch {
		case owner != nil && !living[owner.UID]:
			complain("%s belongs to %s, which is not there any more", pod.Name, owner.Name)
		case owner == nil && active(pod):
			for i := range sets {
				if matches(&sets[i], pod) {
					complain("%s is an orphan, and %s has forgotten it", pod.Name, sets[i].Name)
				}
			}
		}
		references := map[types.UID]int{}
		for _, ref := range pod.OwnerReferences {
			if references[ref.UID]++; references[ref.UID] == 2 {
				complain("%s names %s as an owner twice", pod.Name, ref.Name)
			}
		}
	}
	return wrong
}

func checkReplicaSet(set *appsv1.ReplicaSet, pods []corev1.Pod, complain func(string, ...any)) {
	var owned, readyOnes, terminatingOnes int32
	for i := range pods {
		pod := &pods[i]
		if !metav1.IsControlledBy(pod, set) {
			continue
		}
		if isReady, _ := ready(pod); active(pod) && isReady {
			readyOnes++
		}
		switch {
		case active(pod):
			owned++
			if !matches(set, pod) {
				complain("%s belongs to %s, which does not select it", pod.Name, set.Name)
			}
		case !finished(pod) && matches(set, pod):
			terminatingOnes++
		}
	}
	status := set.Status
	if owned != *set.Spec.Replicas {
		complain("%s has %d pods instead of %d", set.Name, owned, *set.Spec.Replicas)
	}
	if status.ObservedGeneration != set.Generation {
		complain("%s: the status tells of generation %d, and there is %d", set.Name, status.ObservedGeneration,
			set.Generation)
	}
	if status.Replicas != owned || status.FullyLabeledReplicas != owned || status.ReadyReplicas != readyOnes ||
		status.AvailableReplicas != readyOnes ||
		status.TerminatingReplicas == nil || *status.TerminatingReplicas != terminatingOnes {
		complain("%s: the status tells of %d pods, %d labelled, %d ready, %d available, and there are %d, of which "+
			"%d are ready, and %d that end", set.Name,
			status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas, owned,
			readyOnes, terminatingOnes)
	}
	if readyOnes != *set.Spec.Replicas {
		complain("%s has %d ready pods instead of %d", set.Name, readyOnes, *set.Spec.Replicas)
	}
	for _, c := range status.Conditions {
		complain("%s still has the condition %s", set.Name, c.Type)
	}
}

func matches(set *appsv1.ReplicaSet, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// Whoever has never complained has proved nothing: each of these is one mistake in a world that is in order.
func TestTheCheckerComplains(t *testing.T) {
	type world struct {
		sets []appsv1.ReplicaSet
		pods []corev1.Pod
	}
	add := func(w *world, uid types.UID, change ...func(*corev1.Pod)) {
		w.pods = append(w.pods, *testPod(uid, change...))
	}
	ours := ownedBy("rs-uid")
	inOrder := func() *world { // two pods, and one that has ended, one on its way out, and a stranger
		two, one := int32(2), int32(1)
		w := &world{sets: []appsv1.ReplicaSet{*testRS(func(rs *appsv1.ReplicaSet) {
			rs.Spec.Replicas = &two
			rs.Status = appsv1.ReplicaSetStatus{
				Replicas: 2, FullyLabeledReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, TerminatingReplicas: &one,
				ObservedGeneration: rs.Generation,
			}
		})}}
		add(w, "a", ours, readyFor(time.Minute))
		add(w, "b", ours, readyFor(time.Minute))
		add(w, "ended", ours, inPhase(corev1.PodFailed))
		add(w, "ending", ours, ending)
		add(w, "stranger", labelled("app", "db"))
		return w
	}
	status := func(change func(*appsv1.ReplicaSetStatus)) func(*world) {
		return func(w *world) { change(&w.sets[0].Status) }
	}
	const tells = "web: the status tells of"
	for name, c := range map[string]struct {
		mistake func(*world)
		want    []string // each is in one complaint, and there are no others
	}{
		"none": {func(*world) {}, nil},
		"an orphan is forgotten": {func(w *world) { add(w, "c") },
			[]string{"pod-c is an orphan, and web has forgotten it"}},
		"an owner has gone": {func(w *world) { add(w, "c", ownedBy("old-uid")) },
			[]string{"pod-c belongs to web, which is not there any more"}},
		"a pod too many": {func(w *world) { add(w, "c", ours, readyFor(time.Minute)) },
			[]string{"web has 3 pods instead of 2", tells, "web has 3 ready pods instead of 2"}},
		"a pod too few": {func(w *world) { w.pods = w.pods[1:] },
			[]string{"web has 1 pods instead of 2", tells, "web has 1 ready pods instead of 2"}},
		"one is not ready": {func(w *world) { w.pods[0].Status.Conditions = nil },
			[]string{tells, "web has 1 ready pods instead of 2"}},
		"one does not match": {func(w *world) { w.pods[0].Labels["app"] = "db" },
			[]string{"pod-a belongs to web, which does not select it"}},
		"an owner twice": {func(w *world) { alsoListing("rs-uid")(&w.pods[0]) },
			[]string{"pod-a names web as an owner twice"}},
		"a controller twice": {func(w *world) { ours(&w.pods[0]) },
			[]string{"pod-a names web as an owner twice"}},
		"a wrong count": {status(func(s *appsv1.ReplicaSetStatus) { s.Replicas++ }), []string{tells}},
		"a wrong count, labelled": {status(func(s *appsv1.ReplicaSetStatus) { s.FullyLabeledReplicas-- }),
			[]string{tells}},
		"a wrong count, ready": {status(func(s *appsv1.ReplicaSetStatus) { s.ReadyReplicas-- }),
			[]string{tells}},
		"a wrong count, available": {status(func(s *appsv1.ReplicaSetStatus) { s.AvailableReplicas-- }),
			[]string{tells}},
		"a wrong count, terminating": {status(func(s *appsv1.ReplicaSetStatus) { *s.TerminatingReplicas = 0 }),
			[]string{tells}},
		"no count of terminating ones": {status(func(s *appsv1.ReplicaSetStatus) { s.TerminatingReplicas = nil }),
			[]string{tells}},
		"an old generation": {status(func(s *appsv1.ReplicaSetStatus) { s.ObservedGeneration-- }),
			[]string{"web: the status tells of generation 6, and there is 7"}},
		"an old condition": {status(func(s *appsv1.ReplicaSetStatus) {
			s.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure}}
		}), []string{"web still has the condition ReplicaFailure"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := inOrder()
			c.mistake(w)
			wrong := complaints(w.sets, w.pods)
			require.Len(t, wrong, len(c.want), "%q", wrong)
			for i, want := range c.want {
				require.Contains(t, wrong[i], want)
			}
		})
	}
}
