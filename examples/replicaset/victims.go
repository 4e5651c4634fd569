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
// Those whose loss matters least. Each rule below compares two pods; if it sees no difference, the next rule decides.

// victims returns the n pods to delete. podsPerNode has the number of related pods on each node.
func victims(pods []*corev1.Pod, n int, podsPerNode map[string]int, now time.Time) []*corev1.Pod {
	if n >= len(pods) {
		return pods
	}
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *corev1.Pod) int { return leastMissed(a, b, podsPerNode, now) })
	return sorted[:n]
}

// leastMissed is negative if a is deleted before b.
func leastMissed(a, b *corev1.Pod, podsPerNode map[string]int, now time.Time) int {
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
		cmp.Compare(podsPerNode[b.Spec.NodeName], podsPerNode[a.Spec.NodeName]), // the rest is spread over the nodes
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

// deletionCost returns the value of the pod's annotation. A value that is not an int32, or has a plus sign or a leading
// zero, counts as missing.
func deletionCost(pod *corev1.Pod) int32 {
	text := pod.Annotations[corev1.PodDeletionCost]
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil || text[0] == '+' || text[0] == '0' && text != "0" {
		return 0
	}
	return int32(cost)
}

// youngerFirst compares ages in powers of two, then UIDs. By exact ages the pods of the last scale-up would always go
// first, and with them the zone or node that had room last. An unknown time counts as now.
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
		cmp.Compare(a.UID, b.UID), // random, but the same in each run
	)
}

// magnitude returns the binary logarithm of an age, rounded down; -1 if the age is not positive.
func magnitude(age time.Duration) int {
	return bits.Len64(uint64(max(age, 0))) - 1
}

// compareRestarts compares the containers that restarted most; if these are equal, the sidecars.
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
