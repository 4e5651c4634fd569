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
// Labels say which pods a ReplicaSet wants, the controller owner reference says which ones it has. Where the two
// disagree one of them has to move, and objects.Claim moves it: a pod that matches and belongs to nobody is adopted,
// a pod that belongs to us and no longer matches is released. A pod of somebody else is never touched.

// claim returns the active pods of rs. With an error nothing is known for sure, so the caller must neither scale nor
// report.
func (r *replicaSetReconciler) claim(ctx context.Context, rs *appsv1.ReplicaSet, owner *objects.Owner,
	selector labels.Selector,
	candidates map[types.UID]*corev1.Pod,
) ([]*corev1.Pod, error) {
	matches := func(pod *corev1.Pod) bool { return selector.Matches(labels.Set(pod.Labels)) }
	return objects.Claim(ctx, owner, r.client.CoreV1().Pods(rs.Namespace), activeOnes(maps.Values(candidates)),
		matches)
}

// candidates are the pods that rs has and the ones that nobody has, at the places where in looks. Orphans are looked up
// first: a pod that is adopted between the two lookups is then found twice, not missed and made again, and its newer
// version counts.
func candidates(rs *appsv1.ReplicaSet, in func(place) iter.Seq[*corev1.Pod]) map[types.UID]*corev1.Pod {
	found := map[types.UID]*corev1.Pod{}
	for _, p := range []place{{namespace: rs.Namespace}, {rs.Namespace, kind.Kind, rs.Name, rs.UID}} {
		for pod := range in(p) {
			found[pod.UID] = pod
		}
	}
	return found
}

// active pods do the work that replicas are counted for. The others are on their way out or have ended: they are
// neither taken nor let go, and stay whose they are.
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

// terminating counts the pods of rs that were told to end and have not ended yet.
func terminating(rs *appsv1.ReplicaSet, selector labels.Selector, candidates map[types.UID]*corev1.Pod) (n int32) {
	for _, pod := range candidates {
		if metav1.IsControlledBy(pod, rs) && selector.Matches(labels.Set(pod.Labels)) &&
			pod.DeletionTimestamp != nil && !finished(pod) {
			n++
		}
	}
	return n
}
