package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Which old ReplicaSets are deleted?
//
// Old ReplicaSets without pods are kept for rollbacks, as many as revisionHistoryLimit says.

// cleanUp deletes the old ReplicaSets that are too many.
func (r *deploymentReconciler) cleanUp(ctx context.Context, ro *rollout) error {
	for _, set := range surplus(ro.deployment, ro.old) {
		// The preconditions spare another set of this name, and a set that was scaled up meanwhile.
		err := r.server.replicaSets.In(set.Namespace).Delete(ctx, set.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &set.UID, ResourceVersion: &set.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete ReplicaSet %s: %w", set.Name, err)
		}
	}
	return nil
}

// surplus returns the old ReplicaSets beyond the limit, the lowest revisions first. A ReplicaSet is kept if it has
// pods, wants some, or has not reported since its size was changed.
func surplus(d *appsv1.Deployment, old []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	limit := d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	sets := slices.DeleteFunc(slices.Clone(old), func(s *appsv1.ReplicaSet) bool { return s.DeletionTimestamp != nil })
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(revisionOf(a), revisionOf(b)), byAge(a, b))
	})
	sets = sets[:max(0, len(sets)-int(*limit))]
	return slices.DeleteFunc(sets, func(s *appsv1.ReplicaSet) bool {
		return s.Status.Replicas != 0 || size(s) != 0 || s.Generation > s.Status.ObservedGeneration
	})
}
