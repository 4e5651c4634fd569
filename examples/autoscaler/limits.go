package main

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// Which number of replicas is allowed?

// An HPA without behavior grows in one look to twice the replicas that the target has, or to four if that is more: a
// measurement that is wrong does limited harm.
const (
	defaultGrowth      = 2
	defaultGrowthLeast = 4
)

// withinDefaults limits the number for an HPA without behavior.
func (s *situation) withinDefaults(d *decision, n int32) int32 {
	limit := max(defaultGrowth*int(s.wanted()), defaultGrowthLeast)
	switch {
	case n < s.least():
		return d.limitedTo(s.least(), "TooFewReplicas")
	case int(s.hpa.Spec.MaxReplicas) > limit && int(n) > limit:
		return d.limitedTo(int32(limit), "ScaleUpLimit")
	case n > s.hpa.Spec.MaxReplicas:
		return d.limitedTo(s.hpa.Spec.MaxReplicas, "TooManyReplicas")
	}
	return d.unlimited(n)
}

// withinRates limits the number for an HPA with behavior. Only the direction in which it goes has limits.
func (s *situation) withinRates(d *decision, n int32) int32 {
	switch {
	case n > s.wanted():
		limit := s.growthLimit(&d.memory)
		if int(s.hpa.Spec.MaxReplicas) > limit && int(n) > limit {
			return d.limitedTo(int32(limit), "ScaleUpLimit")
		}
		if n > s.hpa.Spec.MaxReplicas {
			return d.limitedTo(s.hpa.Spec.MaxReplicas, "TooManyReplicas")
		}
	case n < s.wanted():
		limit := s.shrinkLimit(&d.memory)
		if int(s.least()) < limit && int(n) < limit {
			return d.limitedTo(int32(limit), "ScaleDownLimit")
		}
		if n < s.least() {
			return d.limitedTo(s.least(), "TooFewReplicas")
		}
	}
	return d.unlimited(n)
}

// limits are the reasons of the condition ScalingLimited, with its message.
var limits = map[string]string{
	"ScaleUpLimit":    "the desired replica count is increasing faster than the maximum scale rate",
	"ScaleDownLimit":  "the desired replica count is decreasing faster than the maximum scale rate",
	"TooManyReplicas": "the desired replica count is more than the maximum replica count",
	"TooFewReplicas":  "the desired replica count is less than the minimum replica count",
}

func (d *decision) limitedTo(n int32, reason string) int32 {
	d.set(autoscalingv2.ScalingLimited, corev1.ConditionTrue, reason, "%s", limits[reason])
	return n
}

func (d *decision) unlimited(n int32) int32 {
	d.set(autoscalingv2.ScalingLimited, corev1.ConditionFalse, "DesiredWithinRange",
		"the desired count is within the acceptable range")
	return n
}
