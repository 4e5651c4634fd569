package main

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// What happens when the Deployment is scaled in the middle of a rollout?
//
// All ReplicaSets with pods grow or shrink in proportion. Otherwise a Deployment that is scaled up would get pods of
// the new template only, and a bad template would get more of the traffic. Each ReplicaSet has an annotation with the
// number of replicas for which it got its size. The rollout goes on when all have the present number.

// sizesOf returns the annotations that a ReplicaSet gets together with a size: the replicas and maxPods of d.
func sizesOf(d *appsv1.Deployment) map[string]string {
	return map[string]string{desiredAnnotation: strconv.Itoa(wanted(d)), maxAnnotation: strconv.Itoa(maxPods(d))}
}

// count reads an annotation that is a number of replicas.
func count(set *appsv1.ReplicaSet, annotation string) (n int, ok bool) {
	u, err := strconv.ParseUint(set.Annotations[annotation], 10, 31)
	return int(u), err == nil
}

// noted reports whether a ReplicaSet has the annotations of sizesOf.
func noted(d *appsv1.Deployment, set *appsv1.ReplicaSet) bool {
	for annotation, value := range sizesOf(d) {
		if set.Annotations[annotation] != value {
			return false
		}
	}
	return true
}

// outdated reports whether a ReplicaSet got its size for another number of replicas than the present one.
func outdated(d *appsv1.Deployment, set *appsv1.ReplicaSet) bool {
	n, ok := count(set, desiredAnnotation)
	return ok && n != wanted(d)
}

// scaled reports whether the Deployment was scaled since its ReplicaSets got their sizes. Those without pods do not
// count.
func scaled(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(active(sets), func(set *appsv1.ReplicaSet) bool { return outdated(d, set) })
}

// proportional returns the sizes that ReplicaSets should have after the Deployment was scaled, or while it is paused.
// If the annotations are outdated it returns also a size that does not change, to have them written: otherwise every
// further run would find a Deployment that was scaled, and no rollout would go on.
func proportional(d *appsv1.Deployment, new *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) (step []resize) {
	all := slices.Clone(old)
	if new != nil {
		all = append(all, new)
	}
	switch sets := active(all); {
	case len(all) == 0:
		return nil
	case len(sets) == 0: // from zero: the new one, or the latest
		return []resize{{set: all[len(all)-1], to: wanted(d)}}
	case len(sets) == 1:
		return []resize{{set: sets[0], to: wanted(d), note: outdated(d, sets[0])}}
	case new != nil && saturated(d, new): // the rollout is over, and an old one was adopted, or is left
		for _, set := range active(old) {
			step = append(step, resize{set: set, to: 0})
		}
		return step
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType: // the rollout shrinks the old ones to nothing
		for _, set := range sets {
			step = append(step, resize{set: set, to: size(set), note: outdated(d, set)})
		}
		return step
	default:
		return spread(d, sets)
	}
}

// saturated reports whether a ReplicaSet has all pods of the Deployment, available, and was meant to have them.
func saturated(d *appsv1.Deployment, set *appsv1.ReplicaSet) bool {
	n, ok := count(set, desiredAnnotation)
	return ok && n == wanted(d) && size(set) == wanted(d) && int(set.Status.AvailableReplicas) == wanted(d)
}

// spread gives each ReplicaSet its share of what may be added, or has to go, the largest first. What rounding leaves
// over is the largest one's.
//
// No ReplicaSet moves in the other direction. One would if its annotations are older than those of the others, because
// an earlier scaling was cut short; what it gained would then have to come from the largest one, which may not have it,
// and all together would want more than maxSurge allows.
func spread(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) []resize {
	total := 0
	if wanted(d) > 0 {
		total = maxPods(d)
	}
	add := total - sum(sets, size)
	younger := 1 // decides between sets of the same size: the younger one grows first, the older one shrinks first
	if add > 0 {
		younger = -1
	}
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), younger*byAge(a, b))
	})
	step, left := make([]resize, len(sets)), add
	for i, set := range sets {
		step[i] = resize{set: set, to: size(set), note: !noted(d, set)}
		part := min(max(portion(d, set), min(left, 0)), max(left, 0))
		step[i].to += part
		left -= part
	}
	step[0].to = max(0, step[0].to+left)
	return step
}

// portion returns by how much a ReplicaSet has to change to keep its part of the whole, which was in its annotations.
func portion(d *appsv1.Deployment, set *appsv1.ReplicaSet) int {
	if wanted(d) == 0 {
		return -size(set)
	}
	before, ok := count(set, maxAnnotation)
	if !ok || before == 0 { // a client has changed it: the status is the best guess
		before = int(d.Status.Replicas)
	}
	if before == 0 {
		return 0
	}
	return int(math.Round(float64(size(set))*float64(maxPods(d))/float64(before))) - size(set)
}

// resizeAll gives ReplicaSets their new sizes, one after the other.
func (r *deploymentReconciler) resizeAll(ctx context.Context, ro *rollout, step []resize) error {
	for _, s := range step {
		if err := r.resize(ctx, ro.deployment, s); err != nil {
			return err
		}
	}
	return nil
}

// resize gives a ReplicaSet its new size, and the annotations of sizesOf.
func (r *deploymentReconciler) resize(ctx context.Context, d *appsv1.Deployment, s resize) error {
	if s.to == size(s.set) && !s.note {
		return nil
	}
	replicas := int32(s.to)
	if _, err := r.apply(ctx, s.set, change{replicas: &replicas, annotations: sizesOf(d)}); err != nil {
		return err
	}
	if s.to != size(s.set) {
		r.tellScaled(d, s.set.Name, size(s.set), s.to)
	}
	return nil
}

func (r *deploymentReconciler) tellScaled(d *appsv1.Deployment, name string, from, to int) {
	direction := "up"
	if to < from {
		direction = "down"
	}
	r.events.Eventf(d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction,
		name, from, to)
}
