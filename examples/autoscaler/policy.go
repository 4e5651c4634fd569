package main

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// How fast may the target grow and shrink?
//
// A policy says by how many pods, or by what percentage, the number of replicas may change within a period: counted
// from what it was when the period began.

// scaling is a change of the number of replicas that was made.
type scaling struct {
	by int // how many more, or how many fewer
	at time.Time
}

// growthLimit returns how many replicas the policies let the target grow to now, at least those that it has.
func (s *situation) growthLimit(m *memory) int {
	wanted, rules := int(s.wanted()), s.hpa.Spec.Behavior.ScaleUp
	limits := s.perPolicy(m, rules, func(before int, p autoscalingv2.HPAScalingPolicy) int {
		if p.Type == autoscalingv2.PercentScalingPolicy {
			// Rounded up, or a small target would never grow.
			return int(math.Ceil(float64(before) * (1 + float64(p.Value)/100)))
		}
		return before + int(p.Value)
	})
	switch {
	case len(limits) == 0:
		return wanted
	case choice(rules) == autoscalingv2.MinChangePolicySelect:
		return max(wanted, slices.Min(limits))
	}
	return max(wanted, slices.Max(limits))
}

// shrinkLimit returns how many replicas the policies let the target shrink to now, at most those that it has.
func (s *situation) shrinkLimit(m *memory) int {
	wanted, rules := int(s.wanted()), s.hpa.Spec.Behavior.ScaleDown
	limits := s.perPolicy(m, rules, func(before int, p autoscalingv2.HPAScalingPolicy) int {
		if p.Type == autoscalingv2.PercentScalingPolicy {
			return int(float64(before) * (1 - float64(p.Value)/100))
		}
		return before - int(p.Value)
	})
	switch {
	case len(limits) == 0:
		return wanted
	case choice(rules) == autoscalingv2.MinChangePolicySelect:
		return min(wanted, slices.Max(limits))
	}
	return min(wanted, slices.Min(limits))
}

// perPolicy returns what each policy limits the number of replicas to, which limit computes from the number at the
// beginning of the period. It returns none if this direction is disabled.
func (s *situation) perPolicy(m *memory, rules *autoscalingv2.HPAScalingRules,
	limit func(before int, p autoscalingv2.HPAScalingPolicy) int) (limits []int) {
	if rules == nil || choice(rules) == autoscalingv2.DisabledPolicySelect {
		return nil
	}
	for _, p := range rules.Policies {
		begin := s.now.Add(-time.Duration(p.PeriodSeconds) * time.Second)
		before := int(s.wanted()) - changeSince(begin, m.grown) + changeSince(begin, m.shrunk)
		limits = append(limits, limit(before, p))
	}
	return limits
}

// choice is which of several policies counts. The API server sets a default.
func choice(rules *autoscalingv2.HPAScalingRules) autoscalingv2.ScalingPolicySelect {
	if rules.SelectPolicy == nil {
		return autoscalingv2.MaxChangePolicySelect
	}
	return *rules.SelectPolicy
}

func changeSince(begin time.Time, scalings []scaling) (sum int) {
	for _, c := range scalings {
		if c.at.After(begin) {
			sum += c.by
		}
	}
	return sum
}

// scaled returns the memory after the number of replicas was changed. Without behavior there is no policy, and nothing
// to remember.
func (m memory) scaled(behavior *autoscalingv2.HorizontalPodAutoscalerBehavior, from, to int32, now time.Time) memory {
	switch {
	case behavior == nil:
	case to > from:
		m.grown = remember(m.grown, scaling{int(to - from), now}, behavior.ScaleUp)
	default:
		m.shrunk = remember(m.shrunk, scaling{int(from - to), now}, behavior.ScaleDown)
	}
	return m
}

// remember adds a change, in place of one that is older than each period of the rules if there is one.
func remember(scalings []scaling, c scaling, rules *autoscalingv2.HPAScalingRules) []scaling {
	longest := int32(0)
	if rules != nil {
		for _, p := range rules.Policies {
			longest = max(longest, p.PeriodSeconds)
		}
	}
	old := c.at.Add(-time.Duration(longest) * time.Second)
	scalings = slices.Clone(scalings)
	for i, past := range slices.Backward(scalings) {
		if past.at.Before(old) {
			scalings[i] = c
			return scalings
		}
	}
	return append(scalings, c)
}
