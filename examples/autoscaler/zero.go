package main

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// Who has scaled the target to zero?
//
// Zero replicas have no usage. So an HPA scales to zero only by a metric of something else, an object or an external
// one, and only if minReplicas is 0; and from zero only if it was the HPA that scaled there. A user who scales to zero
// switches the HPA off. The condition ScaledToZero tells the two apart.

// wakeable reports whether a target of zero replicas is there by this controller, and may grow again.
func (s *situation) wakeable() bool {
	byUs := slices.ContainsFunc(s.hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScaledToZero && c.Status == corev1.ConditionTrue
	})
	return byUs && (s.least() != 0 || s.seesBeyondPods())
}

// seesBeyondPods reports whether a metric has a value when there are no pods.
func (s *situation) seesBeyondPods() bool {
	return slices.ContainsFunc(s.hpa.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
}

// noteZero says, when the target was resized, whether that was to zero.
func (s *situation) noteZero(d *decision) {
	if s.wanted() > 0 && d.replicas == 0 && s.least() == 0 && s.seesBeyondPods() {
		d.set(autoscalingv2.ScaledToZero, corev1.ConditionTrue, "ScaledToZero",
			"the HPA controller scaled the workload to zero")
	} else {
		d.set(autoscalingv2.ScaledToZero, corev1.ConditionFalse, "NotScaledToZero",
			"the HPA controller did not scale the workload to zero")
	}
}
