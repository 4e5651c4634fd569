package main

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// What is new, and what is old?
//
// A Deployment has one ReplicaSet for each template that it has had. The one with the current template is the new one,
// the others are old.

// rollout is what one run knows about a Deployment, and what the run adds to its status. The objects come from the
// caches, or from the server's answers to the writes of this run; no function changes them.
type rollout struct {
	deployment *appsv1.Deployment
	new        *appsv1.ReplicaSet   // nil: there is none yet
	old        []*appsv1.ReplicaSet // the oldest first
	now        time.Time

	seen       []*appsv1.ReplicaSet         // all, as they were before this run changed any
	conditions []appsv1.DeploymentCondition // those of the Deployment, as this run changes them
	collisions *int32                       // status.collisionCount, as this run changes it: see hash.go
	rolling    bool                         // this run is a step of a rollout: its progress is judged
}

func newRollout(d *appsv1.Deployment, mine []*appsv1.ReplicaSet, now time.Time) *rollout {
	slices.SortFunc(mine, byAge)
	ro := &rollout{deployment: d, now: now, seen: slices.Clone(mine),
		conditions: slices.Clone(d.Status.Conditions), collisions: d.Status.CollisionCount}
	for _, set := range mine {
		// If two sets have the same template, for instance after one was adopted, the older one is the new one.
		if ro.new == nil && sameTemplate(&set.Spec.Template, &d.Spec.Template) {
			ro.new = set
			continue
		}
		ro.old = append(ro.old, set)
	}
	return ro
}

// sets returns all ReplicaSets, the new one last.
func (ro *rollout) sets() []*appsv1.ReplicaSet {
	if ro.new == nil {
		return ro.old
	}
	return append(slices.Clone(ro.old), ro.new)
}

// sameTemplate reports whether two templates make the same pods. The hash is left out: a Deployment's template has
// none, and the same template may have had another hash, from another controller or after a collision.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return apiequality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, ok := t.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !ok {
		return t
	}
	bare := t.DeepCopy()
	delete(bare.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return bare
}

// byAge orders the oldest first. Creation times have whole seconds, so the revision decides between equal ones.
func byAge(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(revisionOf(a), revisionOf(b)),
		cmp.Compare(a.Name, b.Name))
}

// wanted returns spec.replicas of a Deployment. The API server sets a default, so it is nil only in tests.
func wanted(d *appsv1.Deployment) int {
	if d.Spec.Replicas == nil {
		return 1
	}
	return int(*d.Spec.Replicas)
}

// size returns spec.replicas of a ReplicaSet.
func size(set *appsv1.ReplicaSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// active returns the sets that want pods.
func active(sets []*appsv1.ReplicaSet) (found []*appsv1.ReplicaSet) {
	for _, set := range sets {
		if size(set) > 0 {
			found = append(found, set)
		}
	}
	return found
}

// sum adds up a number of each set.
func sum(sets []*appsv1.ReplicaSet, number func(*appsv1.ReplicaSet) int) (total int) {
	for _, set := range sets {
		total += number(set)
	}
	return total
}
