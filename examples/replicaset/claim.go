package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
)

// Which pods are mine?
//
// Labels say which pods a ReplicaSet wants, the controller owner reference says which ones it has. Where the two
// disagree one of them has to move: a pod that matches and belongs to nobody is adopted, a pod that belongs to us
// and no longer matches is released. A pod of somebody else is never touched, whatever its labels say.

type verdict int

const (
	ignored  verdict = iota // not ours, and not our business
	kept                    // ours already
	adopted                 // an orphan that we want
	released                // ours, but no longer wanted
)

// judge decides about one pod. A finished or terminating pod is neither taken nor let go: it stays whose it is. A
// ReplicaSet that is being deleted changes no owners, because the garbage collector goes by the references it finds.
func judge(rs *appsv1.ReplicaSet, selector labels.Selector, pod *corev1.Pod) verdict {
	owner := metav1.GetControllerOfNoCopy(pod)
	matches := selector.Matches(labels.Set(pod.Labels))
	deleting := rs.DeletionTimestamp != nil
	switch {
	case !active(pod):
		return ignored
	case owner != nil && owner.UID != rs.UID:
		return ignored
	case owner != nil && matches:
		return kept
	case owner != nil && !deleting:
		return released
	case owner == nil && matches && !deleting:
		return adopted
	default:
		return ignored
	}
}

// active pods do the work that replicas are counted for. The others are on their way out or have ended.
func active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && !finished(pod)
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// terminating counts the pods of rs that were told to end and have not ended yet.
func terminating(rs *appsv1.ReplicaSet, selector labels.Selector, candidates []*corev1.Pod) (n int32) {
	for _, pod := range candidates {
		if metav1.IsControlledBy(pod, rs) && selector.Matches(labels.Set(pod.Labels)) &&
			pod.DeletionTimestamp != nil && !finished(pod) {
			n++
		}
	}
	return n
}

// claim acts on the verdicts and returns the active pods of rs. Every candidate gets its turn, even if an earlier
// one failed; but with any error the result is not to be counted on, so the caller must neither scale nor report.
func (r *replicaSetReconciler) claim(ctx context.Context, rs *appsv1.ReplicaSet, selector labels.Selector, candidates []*corev1.Pod) ([]*corev1.Pod, error) {
	var (
		mine     []*corev1.Pod
		failures []error
	)
	// The cache may still show a ReplicaSet that is gone: whoever adopts for the dead hands its pods to the garbage
	// collector. So the first adoption of a run asks the API server, once.
	stillThere := sync.OnceValue(func() error { return r.recheck(ctx, rs) })

	for _, pod := range candidates {
		switch judge(rs, selector, pod) {
		case kept:
			mine = append(mine, pod)
		case adopted:
			err := stillThere()
			if err == nil {
				err = r.patchOwner(ctx, pod, controllerRef(rs))
			}
			switch {
			case err == nil:
				mine = append(mine, pod)
			case !apierrors.IsNotFound(err): // a pod that is gone needs no owner
				failures = append(failures, fmt.Errorf("adopt pod %s: %w", klog.KObj(pod), err))
			}
		case released:
			err := r.patchOwner(ctx, pod, map[string]any{"$patch": "delete", "uid": rs.UID})
			// Invalid is the API server's answer to a UID that does not fit: another pod has the name now.
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
				failures = append(failures, fmt.Errorf("release pod %s: %w", klog.KObj(pod), err))
			}
		}
	}
	return mine, utilerrors.NewAggregate(failures)
}

// recheck asks the API server whether rs is alive. Its NotFound is not wrapped, as it is not the pod that is gone.
func (r *replicaSetReconciler) recheck(ctx context.Context, rs *appsv1.ReplicaSet) error {
	live, err := r.client.AppsV1().ReplicaSets(rs.Namespace).Get(ctx, rs.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("look up the live ReplicaSet first: %v", err)
	case live.UID != rs.UID:
		return fmt.Errorf("the ReplicaSet was deleted and made anew: UID %s is now %s", rs.UID, live.UID)
	case live.DeletionTimestamp != nil:
		return fmt.Errorf("the ReplicaSet is being deleted since %s", live.DeletionTimestamp)
	}
	return nil
}

// patchOwner merges one entry into the pod's owner references; entries are told apart by their uid. The pod's own
// UID goes along as a precondition, so that a namesake made in the meantime stays untouched.
func (r *replicaSetReconciler) patchOwner(ctx context.Context, pod *corev1.Pod, entry any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "ownerReferences": []any{entry}},
	})
	if err != nil {
		return err
	}
	_, err = r.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

func controllerRef(rs *appsv1.ReplicaSet) *metav1.OwnerReference {
	return metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
}
