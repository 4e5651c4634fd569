package main

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// What is the status?
//
// It describes the pods as they were found, before this run created or deleted any. The caches will show these soon,
// and bring the key back; the status reports them then.

// statusOf counts the pods. now decides which ones are available.
func statusOf(rs *appsv1.ReplicaSet, mine []*corev1.Pod, terminating int32, now time.Time) appsv1.ReplicaSetStatus {
	status := appsv1.ReplicaSetStatus{
		Replicas:            int32(len(mine)),
		TerminatingReplicas: &terminating,
		ObservedGeneration:  rs.Generation,
	}
	template := labels.SelectorFromSet(rs.Spec.Template.Labels)
	for _, pod := range mine {
		if template.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		if isReady, _ := ready(pod); isReady {
			status.ReadyReplicas++
		}
		if untilAvailable(pod, rs.Spec.MinReadySeconds, now) == 0 {
			status.AvailableReplicas++
		}
	}
	return status
}

// conditionsAfter returns the conditions with ReplicaFailure if scaling failed, and without it otherwise; have is how
// many pods there were. The condition describes the first failure, and further ones do not change it. Conditions of
// other types stay.
func conditionsAfter(before []appsv1.ReplicaSetCondition, rs *appsv1.ReplicaSet, have int32, failure error,
	now time.Time) []appsv1.ReplicaSetCondition {
	isFailure := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	switch {
	case failure == nil:
		return slices.DeleteFunc(slices.Clone(before), isFailure)
	case slices.ContainsFunc(before, isFailure):
		return before
	}
	reason := "FailedCreate"
	if int(have) > wanted(rs) {
		reason = "FailedDelete"
	}
	return append(slices.Clone(before), appsv1.ReplicaSetCondition{
		Type:               appsv1.ReplicaSetReplicaFailure,
		Status:             corev1.ConditionTrue,
		Reason:             reason,
		Message:            failure.Error(),
		LastTransitionTime: metav1.NewTime(now),
	})
}

// ready reports whether the pod is Ready, and since when.
func ready(pod *corev1.Pod) (bool, time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// untilAvailable returns how long a pod has to stay Ready until it is available: 0 if it is, negative if it is not
// Ready.
func untilAvailable(pod *corev1.Pod, minReadySeconds int32, now time.Time) time.Duration {
	isReady, since := ready(pod)
	minReady := time.Duration(minReadySeconds) * time.Second
	switch {
	case !isReady:
		return -1
	case minReady == 0:
		return 0
	case since.IsZero():
		return minReady
	default:
		return max(0, since.Add(minReady).Sub(now))
	}
}

// nextAvailable returns how long after later the next pod becomes available of those that were Ready but not available
// at now; no event will announce that. It is 0 if there is none, and positive even if that moment has passed.
func nextAvailable(mine []*corev1.Pod, minReadySeconds int32, now, later time.Time) (next time.Duration) {
	for _, pod := range mine {
		if d := untilAvailable(pod, minReadySeconds, now); d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	if next == 0 {
		return 0
	}
	return max(1, next-later.Sub(now))
}
