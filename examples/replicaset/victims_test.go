package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var testNow = time.Unix(1_000_000, 0)

func onNode(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = name }
}

func readyFor(age time.Duration) func(*corev1.Pod) { return readySince(testNow.Add(-age)) }

func readySince(since time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
		}
	}
}

func notReadyFor(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse,
				LastTransitionTime: metav1.NewTime(testNow.Add(-age))},
		}
	}
}

func costing(cost string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.PodDeletionCost: cost} }
}

func created(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(testNow.Add(-age)) }
}

func restarted(counts ...int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, n := range counts {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{RestartCount: n})
		}
	}
}

func sidecarRestarted(n int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always}, {Name: "setup"}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "side", RestartCount: n},
			{Name: "setup", RestartCount: 100}}
	}
}

func setupRestarted(n int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", RestartCount: n}}
	}
}

// In every case the first pod goes before the second, and the UIDs alone would say the opposite.
func TestWhoGoesFirst(t *testing.T) {
	podsPerNode := map[string]int{"busy": 3, "calm": 1}
	type pod = func(*corev1.Pod)
	for name, c := range map[string]struct{ first, second []pod }{
		"a: no node": {[]pod{readyFor(time.Hour)},
			[]pod{onNode("calm"), inPhase(corev1.PodPending)}},
		"b: pending before running":          {[]pod{inPhase(corev1.PodPending), costing("9")}, []pod{}},
		"b: nothing reported before running": {[]pod{inPhase(""), costing("9")}, []pod{}},
		"b: pending before unknown": {[]pod{inPhase(corev1.PodPending)},
			[]pod{inPhase(corev1.PodUnknown)}},
		"b: unknown before running": {[]pod{inPhase(corev1.PodUnknown), costing("9")}, []pod{}},
		"b: a phase before readiness": {[]pod{inPhase(corev1.PodPending), readyFor(time.Hour)},
			[]pod{notReadyFor(time.Second)}},
		"c: not ready before ready": {[]pod{notReadyFor(time.Hour), costing("9")},
			[]pod{readyFor(time.Second)}},
		"d: cheaper": {[]pod{costing("-1"), readyFor(time.Hour)},
			[]pod{readyFor(time.Second)}},
		"d: as a number, not as text": {[]pod{costing("9"), readyFor(time.Hour)},
			[]pod{costing("10"), readyFor(time.Second)}},
		"d: +5 is not a cost": {[]pod{costing("+5"), readyFor(time.Hour)},
			[]pod{costing("1"), readyFor(time.Second)}},
		"d: 007 is not a cost": {[]pod{costing("007"), readyFor(time.Hour)},
			[]pod{costing("1"), readyFor(time.Second)}},
		"d: -007 is one, as for Kubernetes": {[]pod{costing("-007"), readyFor(time.Hour)},
			[]pod{costing("-1"), readyFor(time.Second)}},
		"d: 0 is one": {[]pod{costing("0"), readyFor(time.Hour)},
			[]pod{costing("1"), readyFor(time.Second)}},
		"d: beyond int32 is not a cost": {[]pod{costing("3000000000"), readyFor(time.Hour)},
			[]pod{costing("1"), readyFor(time.Second)}},
		"d: a cost before a crowded node": {[]pod{costing("-1"), onNode("calm")}, []pod{onNode("busy")}},
		"e: on the busier node": {[]pod{onNode("busy"), readyFor(time.Hour)},
			[]pod{onNode("calm"), readyFor(time.Second)}},
		"f: ready for a shorter time": {[]pod{readyFor(time.Second)},
			[]pod{readyFor(time.Hour), restarted(9)}},
		"f: ready since an unknown time": {[]pod{readySince(time.Time{})},
			[]pod{readyFor(time.Nanosecond), restarted(9)}},
		"f: ready since the future": {[]pod{readyFor(-time.Second)},
			[]pod{readyFor(time.Second), restarted(9)}},
		"g: restarted more often": {[]pod{readyFor(time.Hour), restarted(0, 5),
			created(time.Hour)}, []pod{readyFor(time.Hour), restarted(4, 4), created(time.Second)}},
		"g: sidecar restarted more often": {[]pod{restarted(1), sidecarRestarted(2), created(time.Hour)},
			[]pod{restarted(1), sidecarRestarted(1), created(time.Second)}},
		"g: containers before sidecars": {[]pod{restarted(2), created(time.Hour)},
			[]pod{restarted(1), sidecarRestarted(50), created(time.Second)}},
		"g: a setup container is no sidecar": {[]pod{created(time.Second)},
			[]pod{setupRestarted(9), created(time.Hour)}},
		"h: younger": {[]pod{created(time.Second)}, []pod{created(time.Hour)}},
		"h: age counts also when only one is ready long": {[]pod{notReadyFor(time.Hour), created(time.Second)},
			[]pod{notReadyFor(time.Second), created(time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := testPod("z", c.first...), testPod("a", c.second...)
			require.Negative(t, leastMissed(first, second, podsPerNode, testNow))
			require.Positive(t, leastMissed(second, first, podsPerNode, testNow))
			require.Equal(t, []*corev1.Pod{first}, victims([]*corev1.Pod{second, first}, 1, podsPerNode, testNow))
		})
	}
}

// Ages between two powers of two nanoseconds are alike: then the UID decides, which is as good as chance.
func TestAgesAreComparedRoughly(t *testing.T) {
	const bucket = 1 << 40 * time.Nanosecond // about 18 minutes
	older, younger := testPod("a", readyFor(2*bucket-1)), testPod("b", readyFor(bucket))
	require.Negative(t, leastMissed(older, younger, nil, testNow), "same bucket: the lower UID goes first")

	older = testPod("a", readyFor(2*bucket))
	require.Positive(t, leastMissed(older, younger, nil, testNow), "next bucket: the younger goes first")

	same := testPod("a", readyFor(bucket))
	require.Zero(t, leastMissed(same, younger, nil, testNow),
		"the very same times say nothing, and neither does the UID")
}

// Whoever comes first in the hands of the controller, which is a matter of chance: no pod that goes would be missed
// more than one that stays.
func TestVictimsDoNotDependOnTheOrderOfThePods(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	podsPerNode := map[string]int{"busy": 3, "calm": 1}
	traits := [][]func(*corev1.Pod){
		{onNode("busy"), onNode("calm"), onNode("")},
		{inPhase(corev1.PodRunning), inPhase(corev1.PodPending), inPhase(corev1.PodUnknown)},
		{readyFor(time.Hour), readyFor(time.Second), notReadyFor(time.Minute)},
		{costing(""), costing("1"), costing("-1")}, {restarted(0), restarted(2)},
		{created(time.Hour), created(time.Second)},
	}
	for range 500 {
		var pods []*corev1.Pod
		for i := range 1 + random.IntN(12) {
			var some []func(*corev1.Pod)
			for _, trait := range traits {
				some = append(some, trait[random.IntN(len(trait))])
			}
			pods = append(pods, testPod(types.UID(fmt.Sprint(i)), some...))
		}
		n := random.IntN(len(pods) + 1)
		random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		gone := victims(pods, n, podsPerNode, testNow)
		require.Len(t, gone, n)
		for _, stays := range pods {
			if slices.Contains(gone, stays) {
				continue
			}
			for _, goes := range gone {
				require.LessOrEqual(t, leastMissed(goes, stays, podsPerNode, testNow), 0)
			}
		}
	}
}

func TestVictims(t *testing.T) {
	a, b, c := testPod("a", created(time.Hour)), testPod("b", created(time.Minute)), testPod("c", created(time.Second))
	pods := []*corev1.Pod{a, b, c}

	require.Empty(t, victims(pods, 0, nil, testNow))
	require.Equal(t, []*corev1.Pod{c, b}, victims(pods, 2, nil, testNow))
	require.Equal(t, pods, victims(pods, 3, nil, testNow))
	require.Equal(t, []*corev1.Pod{a, b, c}, pods, "the pods that were handed in keep their order")
}
