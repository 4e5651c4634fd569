package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Does the rollout make progress?
//
// The condition Progressing says what happened last and, in lastUpdateTime, when. If nothing happens for
// progressDeadlineSeconds, it becomes False: that is when kubectl rollout status gives up. Nothing is undone.

const (
	reasonAvailable = "NewReplicaSetAvailable"
	reasonTimedOut  = "ProgressDeadlineExceeded"
	reasonPaused    = "DeploymentPaused"
)

// hasDeadline reports whether the Deployment's progress is judged. The highest number means no deadline.
func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

// find returns the condition of a type, or nil.
func find(conditions []appsv1.DeploymentCondition,
	t appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	i := slices.IndexFunc(conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

// setCondition replaces a condition, unless the present one has the same status and reason.
func (ro *rollout) setCondition(t appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason,
	message string) {
	if old := find(ro.conditions, t); old != nil && old.Status == status && old.Reason == reason {
		return
	}
	ro.renewCondition(t, status, reason, message)
}

// renewCondition replaces a condition, also one with the same status and reason: lastUpdateTime is the time of the last
// progress. lastTransitionTime changes only with the status.
func (ro *rollout) renewCondition(t appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason,
	message string) {
	now := metav1.NewTime(ro.now)
	c := appsv1.DeploymentCondition{Type: t, Status: status, Reason: reason, Message: message, LastUpdateTime: now,
		LastTransitionTime: now}
	if old := find(ro.conditions, t); old != nil && old.Status == status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	ro.removeCondition(t)
	ro.conditions = append(ro.conditions, c)
}

func (ro *rollout) removeCondition(t appsv1.DeploymentConditionType) {
	ro.conditions = slices.DeleteFunc(ro.conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == t })
}

// notePause sets the condition when the Deployment is paused or resumed. The deadline counts anew from there, so the
// time of a pause does not count.
func (ro *rollout) notePause() {
	d := ro.deployment
	condition := find(ro.conditions, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || condition != nil && condition.Reason == reasonTimedOut {
		return
	}
	noted := condition != nil && condition.Reason == reasonPaused
	switch {
	case d.Spec.Paused && !noted:
		ro.setCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
	case !d.Spec.Paused && noted:
		ro.setCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentResumed",
			"Deployment is resumed")
	}
}

// noteNew sets the condition when the new ReplicaSet was there already: an adopted one, the one of a rollback, or one
// whose creation could not be reported. Otherwise the success of the last rollout would be taken for that of this one,
// which would then have no deadline.
func (ro *rollout) noteNew() {
	d := ro.deployment
	condition := find(ro.conditions, appsv1.DeploymentProgressing)
	reported := d.Annotations[revisionAnnotation] == ro.new.Annotations[revisionAnnotation]
	if hasDeadline(d) && (condition == nil || condition.Reason == reasonAvailable && !reported) {
		ro.setCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "FoundNewReplicaSet",
			fmt.Sprintf("Found new replica set %q", ro.new.Name))
	}
}

// judgeProgress compares the status with the one before, and the time of the last progress with the deadline.
func (ro *rollout) judgeProgress(status appsv1.DeploymentStatus) {
	d := ro.deployment
	const progressing = appsv1.DeploymentProgressing
	if !hasDeadline(d) {
		ro.removeCondition(progressing)
		return
	}
	condition := find(ro.conditions, progressing)
	what := fmt.Sprintf("Deployment %q", d.Name)
	if ro.new != nil {
		what = fmt.Sprintf("ReplicaSet %q", ro.new.Name)
	}
	switch {
	case condition != nil && condition.Reason == reasonAvailable && status.Replicas == status.UpdatedReplicas:
		// The rollout is over. Pods that end afterwards are not judged.
	case complete(d, status):
		ro.setCondition(progressing, corev1.ConditionTrue, reasonAvailable, what+" has successfully progressed.")
	case progressed(d.Status, status):
		ro.renewCondition(progressing, corev1.ConditionTrue, "ReplicaSetUpdated", what+" is progressing.")
	case condition == nil || condition.Reason == reasonAvailable:
		// There is no time to count from.
	case condition.Reason == reasonTimedOut || ro.now.After(ro.deadline(condition)):
		ro.setCondition(progressing, corev1.ConditionFalse, reasonTimedOut, what+" has timed out progressing.")
	}
}

// progressed reports whether there are more updated, ready or available pods than before, or fewer old ones.
func progressed(before, after appsv1.DeploymentStatus) bool {
	return after.UpdatedReplicas > before.UpdatedReplicas ||
		after.Replicas-after.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		after.ReadyReplicas > before.ReadyReplicas || after.AvailableReplicas > before.AvailableReplicas
}

func (ro *rollout) deadline(progressing *appsv1.DeploymentCondition) time.Time {
	return progressing.LastUpdateTime.Add(time.Duration(*ro.deployment.Spec.ProgressDeadlineSeconds) * time.Second)
}

// untilDeadline returns after which time to look again, since no event tells that a deadline has passed; 0 means never.
func (ro *rollout) untilDeadline() time.Duration {
	condition := find(ro.conditions, appsv1.DeploymentProgressing)
	if !ro.rolling || !hasDeadline(ro.deployment) || condition == nil ||
		condition.Reason == reasonAvailable || condition.Reason == reasonTimedOut {
		return 0
	}
	return max(0, ro.deadline(condition).Sub(ro.now)) + time.Second // the API server cuts times to whole seconds
}

// passOnFailure copies the condition ReplicaFailure from a ReplicaSet that has it, the new one first.
func (ro *rollout) passOnFailure() {
	sets := slices.Clone(ro.seen)
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		switch {
		case ro.new == nil || a.UID == b.UID:
			return 0
		case a.UID == ro.new.UID:
			return -1
		case b.UID == ro.new.UID:
			return 1
		}
		return 0
	})
	for _, set := range sets {
		for _, c := range set.Status.Conditions {
			if c.Type != appsv1.ReplicaSetReplicaFailure {
				continue
			}
			old := find(ro.conditions, appsv1.DeploymentReplicaFailure)
			if old != nil && old.Status == c.Status && old.Reason == c.Reason {
				return
			}
			ro.removeCondition(appsv1.DeploymentReplicaFailure)
			ro.conditions = append(ro.conditions, appsv1.DeploymentCondition{
				Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
				LastUpdateTime: c.LastTransitionTime, LastTransitionTime: c.LastTransitionTime,
			})
			return
		}
	}
	ro.removeCondition(appsv1.DeploymentReplicaFailure)
}
