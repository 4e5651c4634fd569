package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// What is the status, and what is told?

// set sets a condition. Its time is that of the last change between True and False.
func (d *decision) set(t autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason,
	format string, args ...any) {
	c := autoscalingv2.HorizontalPodAutoscalerCondition{Type: t, Status: status, Reason: reason,
		Message: fmt.Sprintf(format, args...), LastTransitionTime: metav1.NewTime(d.now)}
	for i, old := range d.conditions {
		if old.Type == t {
			if old.Status == status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			d.conditions[i] = c
			return
		}
	}
	d.conditions = append(d.conditions, c)
}

// able sets the condition AbleToScale: can the size of the target be read and changed?
func (d *decision) able(yes bool, reason, format string, args ...any) {
	d.set(autoscalingv2.AbleToScale, truth(yes), reason, format, args...)
}

// active sets the condition ScalingActive: is there a number of replicas to go for?
func (d *decision) active(yes bool, reason, format string, args ...any) {
	d.set(autoscalingv2.ScalingActive, truth(yes), reason, format, args...)
}

func truth(yes bool) corev1.ConditionStatus {
	if yes {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// noteResize tells that the target was resized, and remembers it.
func (s *situation) noteResize(d *decision) {
	d.able(true, "SucceededRescale", "the HPA controller was able to update the target scale to %d", d.replicas)
	d.tell(corev1.EventTypeNormal, "SuccessfulRescale", "New size: %d; reason: %s", d.replicas, d.reason)
	d.memory = d.memory.scaled(s.hpa.Spec.Behavior, s.wanted(), d.replicas, s.now)
	s.noteZero(d)
}

// statusOf is the status after the decision was carried out, or could not be.
func (d *decision) statusOf(hpa *autoscalingv2.HorizontalPodAutoscaler, wanted int32,
	resized bool) autoscalingv2.HorizontalPodAutoscalerStatus {
	generation := hpa.Generation
	status := autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: &generation, LastScaleTime: hpa.Status.LastScaleTime,
		CurrentReplicas: wanted, DesiredReplicas: d.replicas,
		CurrentMetrics: d.metrics, Conditions: d.conditions,
	}
	switch {
	case resized:
		status.LastScaleTime = &metav1.Time{Time: d.now}
	case d.blind || d.resize:
		status.DesiredReplicas = hpa.Status.DesiredReplicas // nothing was decided, or nothing came of it
	}
	return status
}

// reportNoScale tells that the size of the target cannot be read. The rest of the status stays as it was.
func (r *autoscaler) reportNoScale(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, err error,
	now time.Time) error {
	d := decision{conditions: slices.Clone(hpa.Status.Conditions), now: now}
	d.able(false, "FailedGetScale", "the HPA controller was unable to get the target's current scale: %v", err)
	d.tell(corev1.EventTypeWarning, "FailedGetScale", "%v", err)
	status := *hpa.Status.DeepCopy()
	status.Conditions = d.conditions
	return errors.Join(fmt.Errorf("the scale of the target: %w", err), r.report(ctx, hpa, d.events, status))
}

// report tells the Events of a decision, and writes the status if it has changed.
func (r *autoscaler) report(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, events []event,
	status autoscalingv2.HorizontalPodAutoscalerStatus) error {
	for _, e := range events {
		r.events.Event(hpa, e.kind, e.reason, e.message)
	}
	_, err := objects.UpdateStatus(ctx, r.clients.hpas.In(hpa.Namespace), hpa,
		func(newest *autoscalingv2.HorizontalPodAutoscaler) error {
			newest.Status = status
			return nil
		})
	switch {
	case errors.Is(err, objects.ErrGone):
		return nil // the cache will show that soon
	case err != nil:
		r.events.Event(hpa, corev1.EventTypeWarning, "FailedUpdateStatus", err.Error())
	}
	return err
}
