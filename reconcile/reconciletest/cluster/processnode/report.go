package processnode

import (
	"bytes"
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keepReporting writes the status of the pod whenever it changes.
func (w *podWorker) keepReporting(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
			w.pool.complain(ctx, w.pool.eventually(ctx, w.report))
		}
	}
}

// report writes the status of the pod, unless it was written already.
func (w *podWorker) report(ctx context.Context) error {
	w.reporting.Lock()
	defer w.reporting.Unlock()
	status := complete(w.status())
	written, err := json.Marshal(status)
	if err != nil || bytes.Equal(written, w.reported) {
		return err
	}
	if err := w.pool.patchPod(ctx, w.first, status); err != nil {
		return err
	}
	w.reported = written
	return nil
}

// complete returns the patch that makes a status so. The API server merges conditions field by field, so a reason that
// no longer holds must be taken out.
func complete(s corev1.PodStatus) any {
	type condition struct {
		corev1.PodCondition `json:",inline"`
		Reason              *string `json:"reason"`
	}
	patch := struct {
		corev1.PodStatus `json:",inline"`
		Conditions       []condition `json:"conditions"`
	}{PodStatus: s}
	for _, c := range s.Conditions {
		with := condition{PodCondition: c}
		if c.Reason != "" {
			with.Reason = &c.Reason
		}
		patch.Conditions = append(patch.Conditions, with)
	}
	return patch
}

// status returns what a kubelet would report.
func (w *podWorker) status() corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := corev1.PodStatus{
		Phase: w.phase, Reason: w.reason, Message: w.message, StartTime: &w.started,
		HostIP: hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}},
	}
	if w.ip != "" {
		s.PodIP, s.PodIPs = w.ip, []corev1.PodIP{{IP: w.ip}}
	}
	for _, c := range w.init {
		s.InitContainerStatuses = append(s.InitContainerStatuses, *c.status.DeepCopy())
	}
	ready, begun := true, true
	for _, c := range w.containers {
		s.ContainerStatuses = append(s.ContainerStatuses, *c.status.DeepCopy())
		ready = ready && c.status.Ready
		begun = begun && (c.status.State.Waiting == nil || c.status.LastTerminationState.Terminated != nil)
	}
	if s.Phase == "" {
		if s.Phase = corev1.PodPending; w.initDone && begun {
			s.Phase = corev1.PodRunning
		}
	}
	ended := w.phase != ""
	s.Conditions = []corev1.PodCondition{
		w.condition(corev1.PodReadyToStartContainers, w.ip != "" && !ended, ""),
		w.condition(corev1.PodInitialized, w.initDone, "ContainersNotInitialized"),
		w.condition(corev1.ContainersReady, ready && !ended, "ContainersNotReady"),
		w.condition(corev1.PodReady, ready && !ended && w.gatesOpen(), "ContainersNotReady"),
	}
	return s
}

// gatesOpen reports whether the conditions that the pod's readinessGates name are True.
func (w *podWorker) gatesOpen() bool {
	open := 0
	for _, gate := range w.pod.Spec.ReadinessGates {
		for _, c := range w.pod.Status.Conditions {
			if c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue {
				open++
			}
		}
	}
	return open == len(w.pod.Spec.ReadinessGates)
}

// condition keeps the time of a condition that stays as it is. The caller holds mu.
func (w *podWorker) condition(t corev1.PodConditionType, yes bool, why string) corev1.PodCondition {
	c := corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
	if !yes {
		c.Status, c.Reason = corev1.ConditionFalse, why
	}
	if old, ok := w.conditions[t]; ok && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	w.conditions[t] = c
	return c
}
