package main

import (
	"fmt"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// What is decided?
//
// decide is a pure function: all that it looks at is in a situation and a memory, and all that it wants is in a
// decision. It goes from the formula over the window and the policy to the limits, each in a file of that name.

// settings are what the flags set for all HPAs.
type settings struct {
	interval          time.Duration // between two looks at an HPA
	tolerance         float64       // a ratio this close to 1 changes nothing
	downscaleWindow   time.Duration // the stabilisation window of HPAs that set none
	cpuInitialization time.Duration // how long after its start the CPU usage of a pod that is not ready is ignored
	initialReadiness  time.Duration // a pod that stopped being ready so early has never been ready
}

// defaults are those of kube-controller-manager.
func defaults() settings {
	return settings{interval: 15 * time.Second, tolerance: 0.1, downscaleWindow: 5 * time.Minute,
		cpuInitialization: 5 * time.Minute, initialReadiness: 30 * time.Second}
}

// situation is all that one decision is made from. Nothing in it is changed.
type situation struct {
	settings
	hpa   *autoscalingv2.HorizontalPodAutoscaler
	scale *autoscalingv1.Scale
	now   time.Time

	// The rest is set only if the metrics count: see needsMetrics.
	trouble  *problem   // with the selector; without one the pods are known
	pods     []podFacts // those of the target, by name
	readings []reading  // of each metric of the spec
}

// decision is what one look at an HPA comes to.
type decision struct {
	resize   bool  // to replicas
	replicas int32 // without resize and failed: those that the target has
	reason   string
	failed   error // no number could be computed, or a part of the metrics was of no use
	blind    bool  // no number could be computed

	metrics    []autoscalingv2.MetricStatus
	conditions []autoscalingv2.HorizontalPodAutoscalerCondition
	events     []event
	memory     memory // what to remember
	now        time.Time
}

// event is one to be told of.
type event struct{ kind, reason, message string }

// problem is why something could not be done: the reason of a condition and of an Event, and the text of both.
type problem struct {
	reason, event string
	err           error
	condition     string // the text of the condition, if it is not that of err
}

func (s *situation) wanted() int32 { return s.scale.Spec.Replicas }

func (s *situation) least() int32 {
	if s.hpa.Spec.MinReplicas == nil {
		return 1
	}
	return *s.hpa.Spec.MinReplicas
}

// needsMetrics reports whether the number of replicas depends on metrics: it does not if it is outside of the limits,
// or zero by a user's choice.
func (s *situation) needsMetrics() bool {
	switch wanted := s.wanted(); {
	case wanted == 0:
		return s.wakeable()
	default:
		return wanted >= s.least() && wanted <= s.hpa.Spec.MaxReplicas
	}
}

// decide makes the decision.
func decide(s *situation, m memory) decision {
	d := decision{replicas: s.wanted(), conditions: slices.Clone(s.hpa.Status.Conditions), memory: m.clone(),
		now: s.now}
	d.able(true, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	d.memory.begin(s.wanted(), s.now)
	switch {
	case s.needsMetrics():
		s.followMetrics(&d)
	case s.wanted() == 0:
		d.active(false, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
	case s.wanted() > s.hpa.Spec.MaxReplicas:
		d.resizeTo(s.hpa.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas")
	default:
		d.resizeTo(s.least(), "Current number of replicas below Spec.MinReplicas")
	}
	return d
}

func (d *decision) resizeTo(n int32, reason string) { d.resize, d.replicas, d.reason = true, n, reason }

// followMetrics decides by metrics: formula, window, policy, limits.
func (s *situation) followMetrics(d *decision) {
	best, ok := s.evaluate(d)
	if !ok {
		return
	}
	n, reason := max(0, best.replicas), "" // a metric may be negative
	switch {
	case n > s.wanted():
		reason = best.name + " above target"
	case n < s.wanted():
		reason = "All metrics below target"
	}
	if s.hpa.Spec.Behavior == nil {
		n = s.withinDefaults(d, s.stabiliseDown(d, n))
	} else {
		n = s.withinRates(d, s.stabilise(d, n))
	}
	if s.wanted() == 0 && n < s.least() {
		// Metrics alone would leave it at zero, which the limits no longer allow.
		n = s.least()
		if reason == "" {
			reason = "Current number of replicas below Spec.MinReplicas"
		}
	}
	if n != s.wanted() {
		d.resizeTo(n, reason)
	}
}

// tell adds an Event.
func (d *decision) tell(kind, reason, format string, args ...any) {
	d.events = append(d.events, event{kind, reason, fmt.Sprintf(format, args...)})
}

// warn adds the Event of a problem.
func (d *decision) warn(p *problem) { d.tell(corev1.EventTypeWarning, p.event, "%v", p.err) }
