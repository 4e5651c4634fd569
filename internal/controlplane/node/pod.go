package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// podReconciler moves each pod one step at a time: what it wrote wakes it again, for the next step.
type podReconciler struct {
	node   string
	pace   pace
	client kubernetes.Interface
	pods   *informer.SharedIndexInformer[*corev1.Pod]
}

func (r *podReconciler) Reconcile(ctx context.Context, key informer.Key) (reconcile.Result, error) {
	pod, ok := r.pods.Get(key)
	if !ok || (pod.Spec.NodeName != "" && pod.Spec.NodeName != r.node) || !r.mayRunHere(pod) {
		return reconcile.Result{}, nil
	}
	pace, err := r.pace.of(pod)
	if err != nil {
		return reconcile.Result{}, reconcile.Terminal(err)
	}
	now := time.Now()
	step, wait := pace.next(pod, now)
	switch {
	case step == rest || wait == never:
		return reconcile.Result{}, nil
	case wait > 0:
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{}, r.take(ctx, pod, step, pace, metav1.NewTime(now))
}

// mayRunHere honours a nodeSelector, so that a test with several nodes can choose between them.
func (r *podReconciler) mayRunHere(pod *corev1.Pod) bool {
	host, ok := pod.Spec.NodeSelector[corev1.LabelHostname]
	return !ok || host == r.node
}

func (r *podReconciler) take(ctx context.Context, pod *corev1.Pod, step step, pace pace, now metav1.Time) error {
	var err error
	switch step {
	case bind:
		err = r.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: r.node},
		}, metav1.CreateOptions{})
	case start:
		err = r.patchStatus(ctx, pod, runningStatus(pod, pace.readyAfter == 0, now))
	case makeReady:
		err = r.patchStatus(ctx, pod, runningStatus(pod, true, now))
	case finish:
		err = r.patchStatus(ctx, pod, finishedStatus(pod, pace.outcome, now))
	case end:
		// Whoever holds a finalizer on a pod, like the Job controller, waits for its end to be reported.
		if len(pod.Finalizers) > 0 && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			err = r.patchStatus(ctx, pod, finishedStatus(pod, corev1.PodFailed, now))
			break
		}
		immediately := int64(0)
		err = r.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &immediately,
			Preconditions:      &metav1.Preconditions{UID: &pod.UID},
		})
	}
	// Gone, or changed under our hands: then the cache is about to bring the news.
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// patchStatus changes the status of this very pod; the UID goes along as a precondition.
func (r *podReconciler) patchStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = r.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("report pod %s/%s as %s: %w", pod.Namespace, pod.Name, status.Phase, err)
	}
	return nil
}

// runningStatus is what a kubelet would say of a pod that is up.
func runningStatus(pod *corev1.Pod, ready bool, now metav1.Time) corev1.PodStatus {
	startTime := &now
	if pod.Status.StartTime != nil {
		startTime = pod.Status.StartTime
	}
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		StartTime: startTime,
		PodIP:     addressOf(pod.UID),
		PodIPs:    []corev1.PodIP{{IP: addressOf(pod.UID)}},
		HostIP:    "127.0.0.1",
		HostIPs:   []corev1.HostIP{{IP: "127.0.0.1"}},
		Conditions: conditions(pod, now, map[corev1.PodConditionType]bool{
			corev1.PodInitialized: true, corev1.PodReadyToStartContainers: true, corev1.ContainersReady: ready,
			corev1.PodReady: ready,
		}),
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "standin://" + string(pod.UID) + "/" + c.Name,
			Ready: ready, Started: &ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *startTime}},
		})
	}
	return status
}

// finishedStatus is the last word on a pod: all containers have ended, well or not.
func finishedStatus(pod *corev1.Pod, outcome corev1.PodPhase, now metav1.Time) corev1.PodStatus {
	exit := corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed", FinishedAt: now}
	if outcome == corev1.PodFailed {
		exit.ExitCode, exit.Reason = 1, "Error"
	}
	status := corev1.PodStatus{
		Phase: outcome,
		Conditions: conditions(pod, now, map[corev1.PodConditionType]bool{corev1.ContainersReady: false,
			corev1.PodReady: false}),
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, State: corev1.ContainerState{Terminated: &exit},
		})
	}
	return status
}

// conditions are the ones of the pod that change; one that is so already keeps the time since when.
func conditions(pod *corev1.Pod, now metav1.Time,
	want map[corev1.PodConditionType]bool) (changed []corev1.PodCondition) {
	for t, yes := range want {
		status := corev1.ConditionFalse
		if yes {
			status = corev1.ConditionTrue
		}
		if conditionSince(pod, t).IsZero() || conditionTrue(pod, t) != yes {
			changed = append(changed, corev1.PodCondition{Type: t, Status: status, LastTransitionTime: now})
		}
	}
	return changed
}

// addressOf makes up an address: always the same for a pod, and hardly ever that of another one.
func addressOf(uid types.UID) string {
	hash := fnv.New32a()
	hash.Write([]byte(uid))
	sum := hash.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", byte(sum>>16), byte(sum>>8), byte(sum))
}
