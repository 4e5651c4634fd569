package main

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Which pods go first?
//
// The ones that would be missed least. Each rule below compares two pods; a rule that sees no difference leaves the
// decision to the next one.

// victims picks n of pods to delete. crowd says how many related pods run on a node.
func victims(pods []*corev1.Pod, n int, crowd map[string]int, now time.Time) []*corev1.Pod {
	if n >= len(pods) {
		return pods
	}
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *corev1.Pod) int { return leastMissed(a, b, crowd, now) })
	return sorted[:n]
}

// leastMissed is negative if a goes before b.
func leastMissed(a, b *corev1.Pod, crowd map[string]int, now time.Time) int {
	aReady, aSince := ready(a)
	bReady, bSince := ready(b)
	byReadiness := func() int {
		if !aReady || !bReady {
			return 0
		}
		return youngerFirst(aSince, bSince, a, b, now)
	}
	return cmp.Or(
		falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(progress(a), progress(b)),
		falseFirst(aReady, bReady),
		cmp.Compare(deletionCost(a), deletionCost(b)),
		cmp.Compare(crowd[b.Spec.NodeName], crowd[a.Spec.NodeName]), // spread what remains over the nodes
		byReadiness(),
		compareRestarts(b, a),
		youngerFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time, a, b, now),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

func progress(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodRunning:
		return 2
	case corev1.PodUnknown:
		return 1
	default: // Pending, or nothing reported yet
		return 0
	}
}

// deletionCost is what the pod's annotation says. What is not an int32, or begins with a plus or a zero to no purpose,
// counts as not said.
func deletionCost(pod *corev1.Pod) int32 {
	text := pod.Annotations[corev1.PodDeletionCost]
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil || text[0] == '+' || text[0] == '0' && text != "0" {
		return 0
	}
	return int32(cost)
}

// youngerFirst compares in powers of two, then by UID: exact times would always hit the pods of the last scale-up,
// and with them the zone or the node that was the last to have room. A time that is not known counts as now.
func youngerFirst(aSince, bSince time.Time, a, b *corev1.Pod, now time.Time) int {
	switch {
	case aSince.Equal(bSince):
		return 0
	case aSince.IsZero():
		return -1
	case bSince.IsZero():
		return 1
	}
	return cmp.Or(
		cmp.Compare(magnitude(now.Sub(aSince)), magnitude(now.Sub(bSince))),
		cmp.Compare(a.UID, b.UID), // random, and the same at every look
	)
}

// magnitude is the age's binary logarithm, rounded down; -1 for what is not in the past.
func magnitude(age time.Duration) int {
	return bits.Len64(uint64(max(age, 0))) - 1
}

// compareRestarts goes by the container that restarted most; sidecars are looked at only when that is a draw.
func compareRestarts(a, b *corev1.Pod) int {
	aMain, aSidecar := restarts(a)
	bMain, bSidecar := restarts(b)
	return cmp.Or(cmp.Compare(aMain, bMain), cmp.Compare(aSidecar, bSidecar))
}

func restarts(pod *corev1.Pod) (containers, sidecars int32) {
	for _, c := range pod.Status.ContainerStatuses {
		containers = max(containers, c.RestartCount)
	}
	for _, c := range pod.Status.InitContainerStatuses {
		if isSidecar(pod, c.Name) {
			sidecars = max(sidecars, c.RestartCount)
		}
	}
	return containers, sidecars
}

func isSidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}
