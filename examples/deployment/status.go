package main

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// What is the status?
//
// It adds up what the ReplicaSets had reported before this run resized any. Their next reports start the next run.

// statusOf adds up the statuses of the ReplicaSets, and sets the condition Available.
func (ro *rollout) statusOf() appsv1.DeploymentStatus {
	d := ro.deployment
	status := appsv1.DeploymentStatus{
		ObservedGeneration:  d.Generation,
		TerminatingReplicas: terminating(ro.seen),
		CollisionCount:      ro.collisions,
	}
	for _, set := range ro.seen {
		status.Replicas += set.Status.Replicas
		status.ReadyReplicas += set.Status.ReadyReplicas
		status.AvailableReplicas += set.Status.AvailableReplicas
		if ro.new != nil && set.UID == ro.new.UID {
			status.UpdatedReplicas = set.Status.Replicas
		}
	}
	// While ReplicaSets shrink, more pods may be available than they want.
	status.UnavailableReplicas = int32(max(0, sum(ro.seen, size)-int(status.AvailableReplicas)))
	if int(status.AvailableReplicas) >= minAvailable(d) {
		ro.setCondition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable",
			"Deployment has minimum availability.")
	} else {
		ro.setCondition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable",
			"Deployment does not have minimum availability.")
	}
	return status
}

// terminating adds up the pods that are being deleted. It returns nil if the ReplicaSet controller does not count them.
func terminating(sets []*appsv1.ReplicaSet) *int32 {
	total := new(int32)
	for _, set := range sets {
		switch {
		case set.Status.TerminatingReplicas != nil:
			*total += *set.Status.TerminatingReplicas
		case set.Status.ObservedGeneration > 0:
			return nil
		}
	}
	return total
}

// complete reports whether a status says that all pods are of the new template and available, and no others are there.
func complete(d *appsv1.Deployment, status appsv1.DeploymentStatus) bool {
	return int(status.UpdatedReplicas) == wanted(d) && int(status.Replicas) == wanted(d) &&
		int(status.AvailableReplicas) == wanted(d) && status.ObservedGeneration >= d.Generation
}

// report writes the status and the revision, if they have changed.
func (r *deploymentReconciler) report(ctx context.Context, ro *rollout) error {
	d := ro.deployment
	status := ro.statusOf()
	if ro.rolling {
		ro.judgeProgress(status)
		ro.passOnFailure()
	}
	status.Conditions = ro.conditions
	_, err := objects.UpdateStatus(ctx, r.server.deployments.In(d.Namespace), d,
		func(newest *appsv1.Deployment) error {
			newest.Status = status
			if ro.new != nil && ro.new.Annotations[revisionAnnotation] != "" {
				if newest.Annotations == nil {
					newest.Annotations = map[string]string{}
				}
				// The API server takes annotations along with a status.
				newest.Annotations[revisionAnnotation] = ro.new.Annotations[revisionAnnotation]
			}
			return nil
		})
	if errors.Is(err, objects.ErrGone) {
		return nil // the cache will show that soon
	}
	return err
}
