package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// How are all pods replaced at once?
//
// With the strategy Recreate no two templates run at the same time: the new ReplicaSet gets its size when the last pod
// of the old ones has ended.

// podFacts is all that the cache holds of a pod.
type podFacts struct {
	namespace string
	owner     metav1.OwnerReference // the controller; empty if there is none
	ended     bool
}

func factsOf(pod *corev1.Pod) (podFacts, error) {
	facts := podFacts{namespace: pod.Namespace,
		ended: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		facts.owner = metav1.OwnerReference{Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
	}
	return facts, nil
}

// recreate makes one step: it shrinks the old ReplicaSets to nothing, waits for their pods to end, and then gives the
// new one its size.
func (r *deploymentReconciler) recreate(ctx context.Context, ro *rollout, owner *objects.Owner) error {
	var step []resize
	for _, set := range active(ro.old) {
		step = append(step, resize{set: set, to: 0})
	}
	if len(step) > 0 || r.oldPodsRun(ro) {
		ro.rolling = true
		return r.resizeAll(ctx, ro, step) // the end of the last pod starts the next run
	}
	if ro.new == nil {
		if err := r.createNew(ctx, ro, owner); err != nil || ro.new == nil {
			return err
		}
	}
	ro.rolling = true
	if err := r.resizeAll(ctx, ro, []resize{{set: ro.new, to: wanted(ro.deployment)}}); err != nil {
		return err
	}
	if complete(ro.deployment, ro.deployment.Status) {
		return r.cleanUp(ctx, ro)
	}
	return nil
}

// oldPodsRun reports whether an old ReplicaSet may have pods, by its status or by the pods themselves. A pod that is
// being deleted still runs.
func (r *deploymentReconciler) oldPodsRun(ro *rollout) bool {
	for _, set := range ro.old {
		if set.Status.Replicas > 0 || set.Status.ObservedGeneration < set.Generation {
			return true
		}
		for pod := range r.podsByOwner.Get(set.UID) {
			if !pod.ended {
				return true
			}
		}
	}
	return false
}

// recreating returns the key of the Deployment that owns a pod, by its ReplicaSet, if the strategy is Recreate. With
// another strategy the reports of the ReplicaSets suffice.
func (r *deploymentReconciler) recreating(pod podFacts) []informer.Key {
	if pod.owner.Kind != "ReplicaSet" {
		return nil
	}
	set, ok := r.replicaSets.Get(informer.Key{Namespace: pod.namespace, Name: pod.owner.Name})
	if !ok {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(set)
	if owner == nil || owner.Kind != kind.Kind {
		return nil
	}
	key := informer.Key{Namespace: pod.namespace, Name: owner.Name}
	if d, ok := r.deployments.Get(key); !ok || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	return []informer.Key{key}
}
