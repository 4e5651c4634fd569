package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// check reads the API, and nothing else, and says what is wrong in a namespace in which nothing happens any more.
func check(ctx context.Context, client kubernetes.Interface, namespace string) (wrong []string, err error) {
	sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	living := map[types.UID]bool{}
	for i := range sets.Items {
		living[sets.Items[i].UID] = true
		checkReplicaSet(&sets.Items[i], pods.Items, complain)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOfNoCopy(pod)
		switch {
		case owner != nil && !living[owner.UID]:
			complain("%s belongs to %s, which is not there any more", pod.Name, owner.Name)
		case owner == nil && active(pod):
			for _, set := range sets.Items {
				if matches(&set, pod) {
					complain("%s is an orphan, and %s has forgotten it", pod.Name, set.Name)
				}
			}
		}
	}
	return wrong, nil
}

func checkReplicaSet(set *appsv1.ReplicaSet, pods []corev1.Pod, complain func(string, ...any)) {
	var owned, readyOnes, terminatingOnes int32
	for i := range pods {
		pod := &pods[i]
		if !metav1.IsControlledBy(pod, set) {
			continue
		}
		if isReady, _ := ready(pod); active(pod) && isReady {
			readyOnes++
		}
		switch {
		case active(pod):
			owned++
			if !matches(set, pod) {
				complain("%s belongs to %s, which does not select it", pod.Name, set.Name)
			}
		case !finished(pod) && matches(set, pod):
			terminatingOnes++
		}
	}
	status := set.Status
	if owned != *set.Spec.Replicas {
		complain("%s has %d pods instead of %d", set.Name, owned, *set.Spec.Replicas)
	}
	if status.ObservedGeneration != set.Generation {
		complain("%s: the status tells of generation %d, and there is %d", set.Name, status.ObservedGeneration, set.Generation)
	}
	if status.Replicas != owned || status.FullyLabeledReplicas != owned || status.ReadyReplicas != readyOnes || status.AvailableReplicas != readyOnes ||
		status.TerminatingReplicas == nil || *status.TerminatingReplicas != terminatingOnes {
		complain("%s: the status tells of %d pods, %d labelled, %d ready, %d available, and there are %d, of which %d are ready, and %d that end", set.Name,
			status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas, owned, readyOnes, terminatingOnes)
	}
	if readyOnes != *set.Spec.Replicas {
		complain("%s has %d ready pods instead of %d", set.Name, readyOnes, *set.Spec.Replicas)
	}
	for _, c := range status.Conditions {
		complain("%s still has the condition %s", set.Name, c.Type)
	}
}

func matches(set *appsv1.ReplicaSet, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}
