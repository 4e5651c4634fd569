package main

import (
	"slices"
	"time"
)

// What have the last recommendations been?
//
// A metric moves up and down. So the number of replicas does not follow what the formula says now, but the highest of
// what it has said within a window, and of a second window the lowest.

// recommendation is what the formula came to at one time.
type recommendation struct {
	replicas int32
	at       time.Time
}

// stabiliseDown is for an HPA without behavior: the highest recommendation within the window of all HPAs counts.
func (s *situation) stabiliseDown(d *decision, n int32) int32 {
	begin := s.now.Add(-s.downscaleWindow)
	highest := n
	for _, r := range d.memory.recommendations {
		if !r.at.Before(begin) {
			highest = max(highest, r.replicas)
		}
	}
	d.memory.recommend(n, s.now, begin)
	if highest != n {
		d.able(true, "ScaleDownStabilized",
			"recent recommendations were higher than current one, applying the highest recent recommendation")
	} else {
		d.able(true, "ReadyForNewScale", "recommended size matches current size")
	}
	return highest
}

// stabilise is for an HPA with behavior, which has a window for each direction: the target grows no further than to the
// lowest recommendation within the one window, and shrinks no further than to the highest within the other.
func (s *situation) stabilise(d *decision, n int32) int32 {
	upBegin, downBegin := s.now.Add(-s.upWindow()), s.now.Add(-s.downWindow())
	lowest, highest := n, n
	for _, r := range d.memory.recommendations {
		if r.at.After(upBegin) {
			lowest = min(lowest, r.replicas)
		}
		if r.at.After(downBegin) {
			highest = max(highest, r.replicas)
		}
	}
	earlier := upBegin
	if downBegin.Before(upBegin) {
		earlier = downBegin
	}
	d.memory.recommend(n, s.now, earlier)
	stable := min(max(s.wanted(), lowest), highest)
	switch {
	case stable == n:
		d.able(true, "ReadyForNewScale", "recommended size matches current size")
	case n >= s.wanted():
		d.able(true, "ScaleUpStabilized",
			"recent recommendations were lower than current one, applying the lowest recent recommendation")
	default:
		d.able(true, "ScaleDownStabilized",
			"recent recommendations were higher than current one, applying the highest recent recommendation")
	}
	return stable
}

// upWindow is the stabilisation window for growing.
func (s *situation) upWindow() time.Duration {
	if rules := s.hpa.Spec.Behavior.ScaleUp; rules != nil && rules.StabilizationWindowSeconds != nil {
		return time.Duration(*rules.StabilizationWindowSeconds) * time.Second
	}
	return 0
}

// downWindow is the stabilisation window for shrinking. The API server has no default for it, because it is a flag.
func (s *situation) downWindow() time.Duration {
	if rules := s.hpa.Spec.Behavior.ScaleDown; rules != nil && rules.StabilizationWindowSeconds != nil {
		return time.Duration(*rules.StabilizationWindowSeconds) * time.Second
	}
	return s.downscaleWindow.Truncate(time.Second)
}

// recommend remembers a recommendation, in place of one from before a time if there is one. So as many are remembered
// as a window has room for; those of an earlier, longer window count again when the window is made longer again.
func (m *memory) recommend(n int32, now, old time.Time) {
	for i, r := range slices.Backward(m.recommendations) {
		if r.at.Before(old) {
			m.recommendations[i] = recommendation{n, now}
			return
		}
	}
	m.recommendations = append(m.recommendations, recommendation{n, now})
}
