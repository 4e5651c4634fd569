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

// How many are missing or too much, and how are they made and deleted?

// burst bounds what one run creates or deletes, so that one huge ReplicaSet does not hold its worker for minutes.
const burst = 500

// wanted is the set-point. The API server fills it in, so nil is only seen in tests.
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
			return nil // the ReplicaSet goes the same way soon: nothing to retry, nobody to tell
		}
		return err
	case missing < 0:
		return r.deletePods(ctx, rs, victims(mine, min(-missing, burst), r.crowd(rs), now))
	}
	return nil
}

func (r *replicaSetReconciler) createPod(ctx context.Context, rs *appsv1.ReplicaSet, owner *objects.Owner) error {
	pod, err := podFor(rs, owner)
	if err != nil {
		return err
	}
	created, err := r.client.CoreV1().Pods(rs.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	switch {
	case err == nil:
		r.events.Eventf(rs, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", created.Name)
	case !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		r.events.Eventf(rs, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
	}
	return err
}

// deletePods deletes them all at once. A deletion that fails says nothing about the next one, so there is no slow
// start.
func (r *replicaSetReconciler) deletePods(ctx context.Context, rs *appsv1.ReplicaSet, pods []*corev1.Pod) error {
	failures := make([]error, len(pods)) // each deletion has its own place
	var deletions sync.WaitGroup
	for i, pod := range pods {
		deletions.Go(func() { failures[i] = r.deletePod(ctx, rs, pod) })
	}
	deletions.Wait()
	if err := cmp.Or(failures...); err != nil { // one will do: they are alike, or the next run meets the others
		return fmt.Errorf("unable to delete pods: %w", err)
	}
	return nil
}

func (r *replicaSetReconciler) deletePod(ctx context.Context, rs *appsv1.ReplicaSet, pod *corev1.Pod) error {
	err := r.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
	switch {
	case err == nil:
		r.events.Eventf(rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
		return nil
	case apierrors.IsNotFound(err):
		return nil // somebody was faster
	default:
		r.events.Eventf(rs, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return err
	}
}

// podFor is the pod that the template describes, owned by rs and named by the API server.
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

// crowd counts the active pods on each node that serve the same end as those of rs: the pods of every ReplicaSet
// with the same controller, which for a Deployment are all its revisions. Without a controller nothing is related.
func (r *replicaSetReconciler) crowd(rs *appsv1.ReplicaSet) map[string]int {
	if metav1.GetControllerOfNoCopy(rs) == nil {
		return nil
	}
	var selectors []labels.Selector
	for sibling := range r.replicaSetsByOwner.Get(placeOf(rs)[0]) {
		if selector, err := selectorOf(sibling); err == nil {
			selectors = append(selectors, selector)
		}
	}
	crowd := map[string]int{}
	for pod := range r.podsByNamespace.Get(rs.Namespace) {
		for _, selector := range selectors {
			if active(pod) && selector.Matches(labels.Set(pod.Labels)) {
				crowd[pod.Spec.NodeName]++
				break
			}
		}
	}
	return crowd
}
