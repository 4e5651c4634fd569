package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// What is the status?
//
// It describes the pods as they were found, before this run created or deleted any: those show up in the caches
// soon, wake the key, and are reported then. Reporting them now would be a guess.

// statusOf computes the status of rs. now decides who is available; failure is what went wrong while scaling.
func statusOf(rs *appsv1.ReplicaSet, mine []*corev1.Pod, terminating int32, failure error, now time.Time) appsv1.ReplicaSetStatus {
	status := appsv1.ReplicaSetStatus{
		Replicas:            int32(len(mine)),
		TerminatingReplicas: &terminating,
		ObservedGeneration:  rs.Generation,
		Conditions:          conditionsOf(rs, len(mine), failure, now),
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

// conditionsOf keeps ReplicaFailure for as long as scaling fails. It tells how the trouble began, so a failure that
// goes on does not rewrite it. Conditions of other types belong to others.
func conditionsOf(rs *appsv1.ReplicaSet, have int, failure error, now time.Time) []appsv1.ReplicaSetCondition {
	isFailure := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	present := slices.ContainsFunc(rs.Status.Conditions, isFailure)
	switch {
	case failure == nil && present:
		return slices.DeleteFunc(slices.Clone(rs.Status.Conditions), isFailure)
	case failure == nil || present:
		return rs.Status.Conditions
	}
	reason := "FailedCreate"
	if have > wanted(rs) {
		reason = "FailedDelete"
	}
	return append(slices.Clone(rs.Status.Conditions), appsv1.ReplicaSetCondition{
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

// untilAvailable is how long a pod has to stay Ready to be available: 0 if it is, negative if waiting does not help.
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

// nextAvailable is when to look again, because then a Ready pod becomes available and no event will tell: 0 if none.
func nextAvailable(mine []*corev1.Pod, minReadySeconds int32, now time.Time) (next time.Duration) {
	for _, pod := range mine {
		if d := untilAvailable(pod, minReadySeconds, now); d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	return next
}

// report writes the status, unless the API server has it already.
func (r *replicaSetReconciler) report(ctx context.Context, rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) error {
	if apiequality.Semantic.DeepEqual(rs.Status, status) {
		return nil
	}
	put := func(on *appsv1.ReplicaSet) error {
		update := on.DeepCopy() // a cached object is shared with everybody
		update.Status = status
		_, err := r.client.AppsV1().ReplicaSets(rs.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
		return err
	}
	if put(rs) == nil {
		return nil
	}
	// Most likely somebody changed the ReplicaSet since we looked. The pods were counted all the same, and
	// observedGeneration says for which spec: so the same status goes on top of the newest version, once.
	live, err := r.client.AppsV1().ReplicaSets(rs.Namespace).Get(ctx, rs.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("write status: look up the newest version: %w", err)
	}
	if live.UID != rs.UID {
		return nil // a namesake; the one that this status describes is gone
	}
	if err := put(live); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}
