package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func minReady(seconds int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = seconds }
}

func fullyLabelled(pod *corev1.Pod) {
	pod.Labels = map[string]string{"app": "web", "tier": "front", "more": "yes"}
}

func TestStatusCounts(t *testing.T) {
	pods := []*corev1.Pod{
		testPod("1", fullyLabelled, readyFor(time.Hour)),
		testPod("2", fullyLabelled, readyFor(10*time.Second)),
		testPod("3", readyFor(9*time.Second)),
		testPod("4", notReadyFor(time.Hour)),
		testPod("5", readySince(time.Time{})),
		testPod("6"),
	}
	status := statusOf(testRS(minReady(10)), pods, 2, testNow)
	two := int32(2)
	require.Equal(t, appsv1.ReplicaSetStatus{
		Replicas: 6, FullyLabeledReplicas: 2, ReadyReplicas: 4, AvailableReplicas: 2, TerminatingReplicas: &two,
		ObservedGeneration: 7,
	}, status)

	status = statusOf(testRS(), pods, 0, testNow)
	require.EqualValues(t, 4, status.AvailableReplicas, "without minReadySeconds, ready is available")
	require.NotNil(t, status.TerminatingReplicas, "none terminating is 0, not unknown")
	require.Zero(t, *status.TerminatingReplicas)
}

func TestReplicaFailure(t *testing.T) {
	foreign := appsv1.ReplicaSetCondition{Type: "Weather", Status: corev1.ConditionTrue, Message: "fine"}
	old := appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
		Message: "as it began", LastTransitionTime: metav1.NewTime(testNow.Add(-time.Hour)),
	}
	fresh := func(reason string) appsv1.ReplicaSetCondition {
		return appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason,
			Message: "no room", LastTransitionTime: metav1.NewTime(testNow),
		}
	}
	type conditions = []appsv1.ReplicaSetCondition
	for name, c := range map[string]struct {
		before  conditions
		pods    int32 // 3 are wanted
		failure error
		want    conditions
	}{
		"all is well":                     {nil, 3, nil, nil},
		"all is well, others keep theirs": {conditions{foreign}, 3, nil, conditions{foreign}},
		"too few, and creating fails": {conditions{foreign}, 1, errors.New("no room"),
			conditions{foreign, fresh("FailedCreate")}},
		"too many, and deleting fails": {nil, 5, errors.New("no room"), conditions{fresh("FailedDelete")}},
		"goes on failing: how it began stays": {conditions{old, foreign}, 1, errors.New("no room"),
			conditions{old, foreign}},
		"over": {conditions{old, foreign}, 3, nil, conditions{foreign}},
	} {
		t.Run(name, func(t *testing.T) {
			rs := testRS()
			rs.Status.Conditions = c.before
			cached := rs.DeepCopy()
			got := conditionsAfter(rs.Status.Conditions, rs, c.pods, c.failure, testNow)
			require.Equal(t, c.want, append(conditions(nil), got...))
			require.Equal(t, cached, rs, "the cached object stays as it was")
		})
	}
}

func TestNextAvailable(t *testing.T) {
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want time.Duration
	}{
		"no pods": {nil, 0},
		"all available": {[]*corev1.Pod{testPod("1", readyFor(time.Hour)),
			testPod("2", readyFor(10*time.Second))}, 0},
		"none ready": {[]*corev1.Pod{testPod("1"), testPod("2", notReadyFor(time.Second))}, 0},
		"the nearest": {[]*corev1.Pod{testPod("1", readyFor(3*time.Second)),
			testPod("2", readyFor(6*time.Second)), testPod("3", readyFor(0))}, 4 * time.Second},
		"since an unknown time":  {[]*corev1.Pod{testPod("1", readySince(time.Time{}))}, 10 * time.Second},
		"since a time in future": {[]*corev1.Pod{testPod("1", readyFor(-5*time.Second))}, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, nextAvailable(c.pods, 10, testNow, testNow)) })
	}
	one := []*corev1.Pod{testPod("1", readyFor(time.Second))}
	require.Zero(t, nextAvailable(one, 0, testNow, testNow), "nothing to wait for without minReadySeconds")
	require.Equal(t, 5*time.Second, nextAvailable(one, 10, testNow, testNow.Add(4*time.Second)),
		"the run took four seconds of the nine")
	require.Positive(t, nextAvailable(one, 10, testNow, testNow.Add(time.Minute)),
		"it has become available during the run, and nobody has reported it")
}
