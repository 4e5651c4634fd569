package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// How many pods are missing or surplus, and how are they created and deleted?

// burst bounds what one run creates or deletes, so that one huge ReplicaSet does not hold its worker for minutes.
const burst = 500

// wanted returns spec.replicas. The API server sets a default, so it is nil only in tests.
func wanted(rs *appsv1.ReplicaSet) int {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return int(*rs.Spec.Replicas)
}

// scale moves the number of pods towards the wanted one.
func (r *replicaSetReconciler) scale(ctx context.Context, rs *appsv1.ReplicaSet, owner *objects.Owner,
	mine []*corev1.Pod, now time.Time) error {
	switch missing := wanted(rs) - len(mine); {
	case missing > 0:
		_, err := objects.SlowStart(ctx, min(missing, burst), func(int) error { return r.createPod(ctx, rs, owner) })
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // the ReplicaSet will be deleted, too: no retry, no event
		}
		return err
	case missing < 0:
		return r.deletePods(ctx, rs, victims(mine, min(-missing, burst), r.podsPerNode(rs), now))
	}
	return nil
}

func (r *replicaSetReconciler) createPod(ctx context.Context, rs *appsv1.ReplicaSet, owner *objects.Owner) error {
	pod, err := podFor(rs, owner)
	if err != nil {
		return err
	}
	created, err := r.server.pods.In(rs.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	switch {
	case err == nil:
		r.events.Eventf(rs, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", created.Name)
	case !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		r.events.Eventf(rs, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
	}
	return err
}

// deletePods deletes all pods in parallel. It needs no slow start: one failed deletion does not mean that the others
// fail.
func (r *replicaSetReconciler) deletePods(ctx context.Context, rs *appsv1.ReplicaSet, pods []*corev1.Pod) error {
	failures := make([]error, len(pods)) // of each deletion
	var deletions sync.WaitGroup
	for i, pod := range pods {
		deletions.Go(func() { failures[i] = r.deletePod(ctx, rs, pod) })
	}
	deletions.Wait()
	if err := cmp.Or(failures...); err != nil { // one is enough; the next run reports the others
		return fmt.Errorf("unable to delete pods: %w", err)
	}
	return nil
}

func (r *replicaSetReconciler) deletePod(ctx context.Context, rs *appsv1.ReplicaSet, pod *corev1.Pod) error {
	err := r.server.pods.In(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
	switch {
	case err == nil:
		r.events.Eventf(rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
		return nil
	case apierrors.IsNotFound(err):
		return nil // it is gone already
	default:
		r.events.Eventf(rs, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return err
	}
}

// podFor returns a pod made from the template, owned by rs. The API server completes its name.
func podFor(rs *appsv1.ReplicaSet, owner *objects.Owner) (*corev1.Pod, error) {
	template := rs.Spec.Template.DeepCopy()
	if len(template.Labels) == 0 {
		return nil, errors.New("the pod template has no labels: a pod made from it could not be found again")
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    rs.Name + "-",
			Namespace:       rs.Namespace,
			Labels:          template.Labels,
			Annotations:     template.Annotations,
			Finalizers:      template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{owner.Reference()},
		},
		Spec: template.Spec,
	}, nil
}

// podsPerNode counts on each node the active pods that are related to those of rs: the pods of every ReplicaSet with
// the same controller, which for a Deployment are all its revisions. Without a controller there are none.
func (r *replicaSetReconciler) podsPerNode(rs *appsv1.ReplicaSet) map[string]int {
	if metav1.GetControllerOfNoCopy(rs) == nil {
		return nil
	}
	var selectors []labels.Selector
	for sibling := range r.replicaSetsByOwner.Get(ownerKeyOf(rs)) {
		if selector, err := selectorOf(sibling); err == nil {
			selectors = append(selectors, selector)
		}
	}
	podsPerNode := map[string]int{}
	for pod := range r.podsByNamespace.Get(rs.Namespace) {
		for _, selector := range selectors {
			if active(pod) && selector.Matches(labels.Set(pod.Labels)) {
				podsPerNode[pod.Spec.NodeName]++
				break
			}
		}
	}
	return podsPerNode
}
