package main

import (
	"context"
	"iter"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// Which pods are mine?
//
// Labels tell which pods a ReplicaSet wants, and controller references which ones it has. Where the two disagree,
// objects.Claim changes the reference: it adopts a pod that matches and has no controller, and releases a pod of ours
// that no longer matches. It never touches a pod of another controller.

// claim returns the active pods of rs. After an error some may be unknown, so the caller must neither scale nor report.
func (r *replicaSetReconciler) claim(ctx context.Context, rs *appsv1.ReplicaSet, owner *objects.Owner,
	selector labels.Selector,
	candidates map[types.UID]*corev1.Pod,
) ([]*corev1.Pod, error) {
	matches := func(pod *corev1.Pod) bool { return selector.Matches(labels.Set(pod.Labels)) }
	return objects.Claim(ctx, owner, r.server.pods.In(rs.Namespace), activeOnes(maps.Values(candidates)),
		matches)
}

// candidates looks up the pods of rs and the orphans of its namespace. It looks up the orphans first: a pod that is
// adopted between the two lookups is then found twice, and its newer version counts. The other way round it would be
// missed, and created again.
func candidates(rs *appsv1.ReplicaSet, in func(ownerKey) iter.Seq[*corev1.Pod]) map[types.UID]*corev1.Pod {
	found := map[types.UID]*corev1.Pod{}
	for _, p := range []ownerKey{{namespace: rs.Namespace}, {rs.Namespace, kind.Kind, rs.Name, rs.UID}} {
		for pod := range in(p) {
			found[pod.UID] = pod
		}
	}
	return found
}

// active reports whether a pod counts as a replica. A pod that is being deleted or has ended does not: it is neither
// adopted nor released.
func active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && !finished(pod)
}

func activeOnes(pods iter.Seq[*corev1.Pod]) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for pod := range pods {
			if active(pod) && !yield(pod) {
				return
			}
		}
	}
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// terminating counts the pods of rs that are being deleted and have not ended yet.
func terminating(rs *appsv1.ReplicaSet, selector labels.Selector, candidates map[types.UID]*corev1.Pod) (n int32) {
	for _, pod := range candidates {
		if metav1.IsControlledBy(pod, rs) && selector.Matches(labels.Set(pod.Labels)) &&
			pod.DeletionTimestamp != nil && !finished(pod) {
			n++
		}
	}
	return n
}
