package main

import (
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
)

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
func (r *replicaSetReconciler) scale(ctx context.Context, rs *appsv1.ReplicaSet, mine []*corev1.Pod, now time.Time) error {
	switch missing := wanted(rs) - len(mine); {
	case missing > 0:
		err := slowStart(min(missing, burst), func() error { return r.createPod(ctx, rs) })
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // the ReplicaSet goes the same way soon: nothing to retry, nobody to tell
		}
		return err
	case missing < 0:
		doomed := victims(mine, min(-missing, burst), r.crowd(rs), now)
		if err := atOnce(len(doomed), func(i int) error { return r.deletePod(ctx, rs, doomed[i]) }); err != nil {
			return fmt.Errorf("unable to delete pods: %w", err)
		}
	}
	return nil
}

// slowStart makes n calls in batches of 1, 2, 4, 8, ... and stops after the first batch with a failure. What is
// wrong with one pod is usually wrong with all of them (a quota, a webhook), and this way a ReplicaSet of 500 finds
// out with one request.
func slowStart(n int, call func() error) error {
	for size := 1; n > 0; size *= 2 {
		batch := min(size, n)
		if err := atOnce(batch, func(int) error { return call() }); err != nil {
			return err
		}
		n -= batch
	}
	return nil
}

// atOnce makes n calls in parallel, waits for all of them and returns an error of one that failed.
func atOnce(n int, call func(i int) error) error {
	var calls sync.WaitGroup
	failures := make(chan error, n) // room for all: no call waits for a reader
	for i := range n {
		calls.Go(func() {
			if err := call(i); err != nil {
				failures <- err
			}
		})
	}
	calls.Wait()
	close(failures)
	return <-failures
}

func (r *replicaSetReconciler) createPod(ctx context.Context, rs *appsv1.ReplicaSet) error {
	pod, err := podFor(rs)
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
func podFor(rs *appsv1.ReplicaSet) (*corev1.Pod, error) {
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
			OwnerReferences: []metav1.OwnerReference{*controllerRef(rs)},
		},
		Spec: template.Spec,
	}, nil
}

// crowd counts the active pods on each node that serve the same end as those of rs: the pods of every ReplicaSet
// with the same controller, which for a Deployment are all its revisions. Without a controller nothing is related.
func (r *replicaSetReconciler) crowd(rs *appsv1.ReplicaSet) map[string]int {
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil {
		return nil
	}
	var selectors []labels.Selector
	for sibling := range r.replicaSetsByOwner.Get(place{rs.Namespace, owner.UID}) {
		if selector, err := metav1.LabelSelectorAsSelector(sibling.Spec.Selector); err == nil {
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
