package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// A film is a row of decisions, with what is remembered from one to the next. The target follows at once.
type film struct {
	t      *testing.T
	s      *situation
	memory memory
	last   decision
}

// filmed begins with n replicas and an external metric that proposes a number of replicas.
func filmed(t *testing.T, n int, change ...func(*autoscalingv2.HorizontalPodAutoscaler)) *film {
	f := &film{t: t, s: situated(n, external("q", "", "1"))}
	for _, change := range change {
		change(f.s.hpa)
	}
	return f
}

// propose makes a decision some time later, when the formula comes to n, and returns how many replicas there are then.
func (f *film) propose(after time.Duration, n int) int {
	f.t.Helper()
	f.s.now = f.s.now.Add(after)
	f.s.tolerance = 0
	f.s.readings[0] = reading{total: int64(n) * 1000}
	f.s.scale.Status.Replicas = f.s.scale.Spec.Replicas
	f.last = decide(f.s, f.memory)
	f.memory = f.last.memory
	if f.last.resize {
		f.s.noteResize(&f.last)
		f.memory = f.last.memory
		f.s.scale.Spec.Replicas = f.last.replicas
	}
	f.s.hpa.Status.Conditions = f.last.conditions
	return int(f.s.scale.Spec.Replicas)
}

const second = time.Second

func TestTheDefaultWindow(t *testing.T) {
	f := filmed(t, 5)
	require.Equal(t, 8, f.propose(0, 8))
	require.Equal(t, 8, f.propose(15*second, 2))
	require.Equal(t, "True ScaleDownStabilized: recent recommendations were higher than current one, applying the "+
		"highest recent recommendation", f.last.says(autoscalingv2.AbleToScale))
	require.Equal(t, 8, f.propose(285*second, 3), "a recommendation as old as the window still counts")
	require.Equal(t, 3, f.propose(15*second, 2), "this one has left it, and 3 is the next")
	require.Equal(t, "All metrics below target", f.last.reason)
	require.Equal(t, 3, f.propose(15*second, 3))
	require.Equal(t, "True ReadyForNewScale: recommended size matches current size",
		f.last.says(autoscalingv2.AbleToScale))
}

// The first recommendation is the size that the target has: nothing shrinks before the window has passed.
func TestTheFirstRecommendation(t *testing.T) {
	f := filmed(t, 5)
	require.Equal(t, 5, f.propose(0, 2))
	require.Equal(t, 5, f.propose(300*second, 2))
	require.Equal(t, 2, f.propose(second, 2))
	f = filmed(t, 5, func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.Behavior = rules(t, "", "") })
	require.Equal(t, 5, f.propose(0, 2))
	require.Equal(t, 5, f.propose(299*second, 2))
	require.Equal(t, 2, f.propose(second, 2), "with behavior one as old as the window no longer counts")
}

// rules returns behavior with, for each direction, what a text says, such as "4 Pods 60, 10 Percent 15, Min, window
// 30".
func rules(t *testing.T, up, down string) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	t.Helper()
	b := &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rulesOf(t, up), ScaleDown: rulesOf(t, down)}
	if b.ScaleUp.Policies == nil {
		b.ScaleUp.Policies = rulesOf(t, "4 Pods 15, 100 Percent 15").Policies
	}
	if b.ScaleDown.Policies == nil {
		b.ScaleDown.Policies = rulesOf(t, "100 Percent 15").Policies
	}
	return b
}

func rulesOf(t *testing.T, text string) *autoscalingv2.HPAScalingRules {
	t.Helper()
	r := &autoscalingv2.HPAScalingRules{}
	for part := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(part)
		switch {
		case len(words) == 0:
		case len(words) == 1:
			r.SelectPolicy = new(autoscalingv2.ScalingPolicySelect)
			*r.SelectPolicy = autoscalingv2.ScalingPolicySelect(words[0])
		case words[0] == "window":
			r.StabilizationWindowSeconds = number(t, words[1])
		default:
			r.Policies = append(r.Policies, autoscalingv2.HPAScalingPolicy{Value: *number(t, words[0]),
				Type: autoscalingv2.HPAScalingPolicyType(words[1]), PeriodSeconds: *number(t, words[2])})
		}
	}
	return r
}

func number(t *testing.T, text string) *int32 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 32)
	require.NoError(t, err)
	found := int32(n)
	return &found
}

func behaving(t *testing.T, up, down string) func(*autoscalingv2.HorizontalPodAutoscaler) {
	return func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.Behavior = rules(t, up, down) }
}

func TestWindowsOfBothDirections(t *testing.T) {
	f := filmed(t, 5, behaving(t, "window 60", "window 60"))
	require.Equal(t, 5, f.propose(0, 9))
	require.Equal(t, "True ScaleUpStabilized: recent recommendations were lower than current one, applying the lowest "+
		"recent recommendation", f.last.says(autoscalingv2.AbleToScale))
	require.Equal(t, 5, f.propose(30*second, 7))
	require.Equal(t, 7, f.propose(30*second, 8), "the lowest of the last minute; the first 9 is as old as that")
	require.Equal(t, 7, f.propose(15*second, 3))
	require.Equal(t, "True ScaleDownStabilized: recent recommendations were higher than current one, applying the "+
		"highest recent recommendation", f.last.says(autoscalingv2.AbleToScale))
	require.Equal(t, 7, f.propose(15*second, 7))
	require.Equal(t, 7, f.propose(40*second, 6))
	require.Equal(t, 6, f.propose(40*second, 2), "6 and 2 are what is left")
}

func TestWithoutAWindow(t *testing.T) {
	f := filmed(t, 5, behaving(t, "window 0", "window 0"))
	for _, n := range []int{9, 2, 6, 1, 5} {
		require.Equal(t, n, f.propose(15*second, n))
		require.Equal(t, "True SucceededRescale", f.last.says(autoscalingv2.AbleToScale)[:21])
	}
}

// As many recommendations are remembered as the longer window has room for. Those that are too old make room, and count
// again if the window is made longer before they have.
func TestRecommendationsAreBounded(t *testing.T) {
	f := filmed(t, 5)
	for range 1000 {
		f.propose(15*second, 3)
	}
	require.LessOrEqual(t, len(f.memory.recommendations), 22)
	f = filmed(t, 5, behaving(t, "window 0", "window 60"))
	f.propose(0, 9)
	require.Equal(t, 9, f.propose(59*second, 4))
	require.Equal(t, 4, f.propose(61*second, 4), "9 was two minutes ago")
	f.s.hpa.Spec.Behavior = rules(t, "window 0", "window 600")
	require.Len(t, f.memory.recommendations, 3)
	require.Equal(t, 4, f.propose(second, 3), "the 9 has made room, as the oldest but one")
}

func TestGrowthWithoutBehavior(t *testing.T) {
	for from, want := range map[int]int{1: 4, 2: 4, 3: 6, 10: 20, 45: 90, 60: 100} {
		f := filmed(t, from)
		require.Equal(t, want, f.propose(0, 1000))
		reason := "True ScaleUpLimit: the desired replica count is increasing faster than the maximum scale rate"
		if want == 100 {
			reason = "True TooManyReplicas: the desired replica count is more than the maximum replica count"
		}
		require.Equal(t, reason, f.last.says(autoscalingv2.ScalingLimited))
	}
}

func TestPoliciesForGrowth(t *testing.T) {
	f := filmed(t, 10, behaving(t, "2 Pods 60, 10 Percent 30, window 0", "window 0"))
	require.Equal(t, 12, f.propose(0, 90), "of two policies the one that allows more counts")
	require.Equal(t, "True ScaleUpLimit: the desired replica count is increasing faster than the maximum scale rate",
		f.last.says(autoscalingv2.ScalingLimited))
	require.Equal(t, 12, f.propose(15*second, 90), "10 % of the 10 that were here half a minute ago would be 11")
	require.Equal(t, 14, f.propose(15*second, 90), "12 and 10 %, rounded up")
	require.Equal(t, 16, f.propose(30*second, 90), "two more than the 14 of a minute ago, or 10 % of 14")
	require.Equal(t, 16, f.propose(0, 16))
	require.Equal(t, "False DesiredWithinRange: the desired count is within the acceptable range",
		f.last.says(autoscalingv2.ScalingLimited))

	f = filmed(t, 10, behaving(t, "2 Pods 60, 10 Percent 30, Min, window 0", ""))
	require.Equal(t, 11, f.propose(0, 90), "the policy that changes less")
	f = filmed(t, 10, behaving(t, "Disabled, window 0", ""))
	require.Equal(t, 10, f.propose(0, 90))
	require.Equal(t, "True ScaleUpLimit", f.last.says(autoscalingv2.ScalingLimited)[:17])
	f = filmed(t, 10, behaving(t, "2147483647 Pods 60, window 0", ""))
	require.Equal(t, 100, f.propose(0, 1000), "no sum is too large")
}

func TestPoliciesForShrinking(t *testing.T) {
	f := filmed(t, 50, behaving(t, "window 0", "4 Pods 60, 10 Percent 30, window 0"))
	require.Equal(t, 45, f.propose(0, 1))
	require.Equal(t, "True ScaleDownLimit: the desired replica count is decreasing faster than the maximum scale rate",
		f.last.says(autoscalingv2.ScalingLimited))
	require.Equal(t, 45, f.propose(15*second, 1))
	require.Equal(t, 40, f.propose(15*second, 1), "45 less 10 %, rounded down")
	require.Equal(t, 41, f.propose(0, 41), "what was taken can come back")
	f = filmed(t, 50, behaving(t, "", "4 Pods 60, 10 Percent 30, Min, window 0"))
	require.Equal(t, 46, f.propose(0, 1), "the policy that changes less")
	f = filmed(t, 50, behaving(t, "", "Disabled, window 0"))
	require.Equal(t, 50, f.propose(0, 1))
	f = filmed(t, 3, behaving(t, "", "100 Percent 15, window 0"))
	require.Equal(t, 1, f.propose(0, 0))
	require.Equal(t, "True TooFewReplicas: the desired replica count is less than the minimum replica count",
		f.last.says(autoscalingv2.ScalingLimited))
}

// What has grown within a period may shrink as if it had not, and the other way round.
func TestBothDirectionsCountAgainstAPeriod(t *testing.T) {
	f := filmed(t, 10, behaving(t, "5 Pods 60, window 0", "5 Pods 60, window 0"))
	require.Equal(t, 15, f.propose(0, 90))
	require.Equal(t, 5, f.propose(15*second, 1), "5 fewer than the 10 of a minute ago")
	require.Equal(t, 15, f.propose(15*second, 90))
}

func TestChangesAreBounded(t *testing.T) {
	f := filmed(t, 10, behaving(t, "5 Pods 60, window 0", "5 Pods 60, window 0"))
	for i := range 1000 {
		f.propose(15*second, 5+i%2*5)
	}
	require.LessOrEqual(t, len(f.memory.grown), 5)
	require.LessOrEqual(t, len(f.memory.shrunk), 5)
	f = filmed(t, 10)
	f.propose(0, 20)
	require.Empty(t, f.memory.grown, "without policies nothing is remembered")
}

func TestLimitsGoBeforeMetrics(t *testing.T) {
	f := filmed(t, 200)
	f.s.readings = nil // they are not read
	d := decide(f.s, memory{})
	require.Equal(t, []any{true, int32(100), "Current number of replicas above Spec.MaxReplicas"},
		[]any{d.resize, d.replicas, d.reason})
	require.Nil(t, d.metrics)
	least := int32(7)
	f = filmed(t, 3, func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MinReplicas = &least })
	d = decide(f.s, memory{})
	require.Equal(t, []any{true, least, "Current number of replicas below Spec.MinReplicas"},
		[]any{d.resize, d.replicas, d.reason})
	require.False(t, f.s.needsMetrics())
}

func TestZero(t *testing.T) {
	none := func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MinReplicas = new(int32) }
	f := filmed(t, 2, none, behaving(t, "window 0", "window 0"))
	f.s.hpa.Spec.MinReplicas = new(int32)
	require.Equal(t, 0, f.propose(0, 0))
	require.Equal(t, "True ScaledToZero: the HPA controller scaled the workload to zero",
		f.last.says(autoscalingv2.ScaledToZero))
	require.Equal(t, 0, f.propose(15*second, 0))
	require.Equal(t, 3, f.propose(15*second, 3), "it wakes up")
	require.Equal(t, "False NotScaledToZero: the HPA controller did not scale the workload to zero",
		f.last.says(autoscalingv2.ScaledToZero))

	f.s.scale.Spec.Replicas = 0 // by a user
	require.Equal(t, 0, f.propose(15*second, 3))
	require.Equal(t, "False ScalingDisabled: scaling is disabled since the replica count of the target is zero",
		f.last.says(autoscalingv2.ScalingActive))
	f.s.scale.Spec.Replicas = 2
	require.Equal(t, 3, f.propose(15*second, 3), "a user switches it on again")

	require.Equal(t, 0, f.propose(15*second, 0))
	least := int32(2)
	f.s.hpa.Spec.MinReplicas = &least
	require.Equal(t, 2, f.propose(15*second, 0), "zero is no longer allowed")
	require.Equal(t, "Current number of replicas below Spec.MinReplicas", f.last.reason)
}

// With metrics of pods only, zero replicas are for users.
func TestNoZeroByMetricsOfPods(t *testing.T) {
	s := situated(1, cpu(50)).samples(0)
	s.hpa.Spec.MinReplicas = new(int32) // the API server would refuse it
	d := decide(s, longAgo)
	require.True(t, d.resize)
	s.noteResize(&d)
	require.Equal(t, "False NotScaledToZero", d.says(autoscalingv2.ScaledToZero)[:21])
}

func TestTimesOfConditions(t *testing.T) {
	f := filmed(t, 5)
	f.propose(0, 5)
	transition := func(t autoscalingv2.HorizontalPodAutoscalerConditionType) time.Time {
		i := slices.IndexFunc(f.last.conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
			return c.Type == t
		})
		return f.last.conditions[i].LastTransitionTime.Time
	}
	require.Equal(t, noon, transition(autoscalingv2.AbleToScale))
	f.propose(15*second, 200)
	require.Equal(t, noon, transition(autoscalingv2.AbleToScale), "another reason is no transition")
	require.Equal(t, noon.Add(15*second), transition(autoscalingv2.ScalingLimited))
	require.Equal(t, corev1.ConditionTrue, f.last.conditions[2].Status)
}

// A decision changes nothing that it is made from.
func TestADecisionIsPure(t *testing.T) {
	f := filmed(t, 5, behaving(t, "2 Pods 60, window 30", "2 Pods 60, window 30"))
	f.propose(0, 9)
	f.propose(40*second, 9)
	before, spec := f.memory.clone(), f.s.hpa.DeepCopy()
	f.s.readings[0].total = 1000
	f.s.now = f.s.now.Add(15 * second)
	one, two := decide(f.s, f.memory), decide(f.s, f.memory)
	require.Equal(t, one, two)
	require.Equal(t, before, f.memory)
	require.Equal(t, spec, f.s.hpa)
	s := situated(3, cpu(50)).samples(1000, 1000)
	s.pods[0].phase = corev1.PodPending
	decide(s, memory{})
	require.Len(t, s.readings[0].pods, 2, "the samples are still there")
}
