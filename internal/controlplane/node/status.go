package node

import (
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// runningStatus returns the status that a kubelet would report of a running pod.
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
			Ready: ready, Started: &ready,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *startTime}},
		})
	}
	return status
}

// finishedStatus returns the last status of a pod: all its containers have ended, with exit code 0 or 1.
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

// conditions returns those that change. A condition that stays as it is keeps its time.
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

// addressOf makes up an address: always the same for a pod, and rarely that of another one.
func addressOf(uid types.UID) string {
	hash := fnv.New32a()
	hash.Write([]byte(uid))
	sum := hash.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", byte(sum>>16), byte(sum>>8), byte(sum))
}
