package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// What is the next step of a rolling update?
//
// The new ReplicaSet grows as far as maxSurge allows. The old ones shrink by the pods that are not available, and then
// as far as maxUnavailable allows. What one gives up makes room for the other.

// resize is a new size for a ReplicaSet.
type resize struct {
	set  *appsv1.ReplicaSet
	to   int
	note bool // write the annotations of sizesOf even if the size stays
}

// roll makes one step: it grows the new ReplicaSet or, if that cannot grow, shrinks old ones or, if there are none
// left, cleans up.
func (r *deploymentReconciler) roll(ctx context.Context, ro *rollout, owner *objects.Owner) error {
	if ro.new == nil {
		if err := r.createNew(ctx, ro, owner); err != nil || ro.new == nil {
			return err
		}
	}
	ro.rolling = true
	if to := grown(ro.deployment, ro.new, ro.old); to != size(ro.new) {
		return r.resizeAll(ctx, ro, []resize{{set: ro.new, to: to}})
	}
	if step := shrunk(ro.deployment, ro.new, ro.old); len(step) > 0 {
		return r.resizeAll(ctx, ro, step)
	}
	if complete(ro.deployment, ro.deployment.Status) {
		return r.cleanUp(ctx, ro)
	}
	return nil
}

// grown returns the size that the new ReplicaSet should have.
func grown(d *appsv1.Deployment, new *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) int {
	if size(new) >= wanted(d) || d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return wanted(d)
	}
	room := max(0, maxPods(d)-sum(old, size)-size(new))
	return min(size(new)+room, wanted(d))
}

// shrunk returns the sizes that old ReplicaSets should have, for those that change. The oldest shrink first.
//
// A pod that its ReplicaSet has still to delete does not count as available. Until a ReplicaSet has reported on its
// present size, the number of available pods that it will keep is unknown, and nothing shrinks; its report starts the
// next run.
func shrunk(d *appsv1.Deployment, new *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) (step []resize) {
	all := append([]*appsv1.ReplicaSet{new}, old...)
	for _, set := range all {
		if set.Status.AvailableReplicas > 0 && set.Status.ObservedGeneration < set.Generation {
			return nil
		}
	}
	// Pods of the new ReplicaSet that are not available yet must not be counted on.
	spare := sum(all, size) - minAvailable(d) - (size(new) - available(new))
	if spare <= 0 {
		return nil
	}
	to := make([]int, len(old))
	for i, set := range old { // by the pods that are not available
		unhealthy := min(size(set)-available(set), spare)
		to[i] = size(set) - unhealthy
		spare -= unhealthy
	}
	spare = sum(all, available) - minAvailable(d)
	for i, set := range old { // by available pods
		healthy := max(0, min(to[i], spare))
		to[i] -= healthy
		spare -= healthy
		if to[i] != size(set) {
			step = append(step, resize{set: set, to: to[i]})
		}
	}
	return step
}

// available returns how many pods of a ReplicaSet are available and will not be deleted.
func available(set *appsv1.ReplicaSet) int {
	return min(int(set.Status.AvailableReplicas), size(set))
}
