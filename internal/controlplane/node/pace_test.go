package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var testNow = time.Unix(1_000_000, 0)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(testNow.Add(-d)) }

func bound(d time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = "standin"
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(d)})
	}
}

func running(d time.Duration, ready bool) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = "standin"
		since := ago(d)
		pod.Status = runningStatus(pod, ready, since)
	}
}

func deleted(d time.Duration, grace int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		at := ago(d - time.Duration(grace)*time.Second)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	}
}

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = p }
}

func held(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/wait"} }

func gated(pod *corev1.Pod) {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
}

func TestNext(t *testing.T) {
	slow := pace{startAfter: 2 * time.Second, readyAfter: 5 * time.Second, endAfter: 30 * time.Second}
	failing := pace{outcome: corev1.PodFailed, outcomeAfter: 3 * time.Second}
	failsFirst := pace{readyAfter: 5 * time.Second, outcome: corev1.PodFailed, outcomeAfter: 3 * time.Second}
	type pod = []func(*corev1.Pod)
	for name, c := range map[string]struct {
		pace pace
		pod  pod
		step step
		wait time.Duration
	}{
		"new":                             {pace{}, pod{}, bind, 0},
		"gated":                           {pace{}, pod{gated}, rest, 0},
		"bound":                           {pace{}, pod{bound(0)}, start, 0},
		"bound, slow":                     {slow, pod{bound(500 * time.Millisecond)}, start, 1500 * time.Millisecond},
		"bound, slow, time is up":         {slow, pod{bound(time.Hour)}, start, 0},
		"running":                         {slow, pod{running(time.Second, false)}, makeReady, 4 * time.Second},
		"ready":                           {slow, pod{running(time.Hour, true)}, rest, never},
		"ready, will fail":                {failing, pod{running(time.Second, true)}, finish, 2 * time.Second},
		"ready, fails":                    {failing, pod{running(3*time.Second, true)}, finish, 0},
		"running, will fail before ready": {failsFirst, pod{running(time.Second, false)}, finish, 2 * time.Second},
		"failed":                          {failing, pod{running(time.Hour, true), phase(corev1.PodFailed)}, rest, 0},
		"deleted":                         {pace{}, pod{running(time.Hour, true), deleted(0, 30)}, end, 0},
		"deleted, slow": {slow, pod{running(time.Hour, true), deleted(10*time.Second, 30)}, end,
			20 * time.Second},
		"deleted, slow, time is up":     {slow, pod{running(time.Hour, true), deleted(time.Minute, 30)}, end, 0},
		"deleted before it was started": {slow, pod{bound(0), deleted(time.Minute, 30)}, end, 0},
		"deleted after it failed": {pace{}, pod{running(0, true), phase(corev1.PodFailed), deleted(0, 30)}, end,
			0},
		"deleted before it was bound": {pace{}, pod{deleted(0, 30)}, rest, 0},
		"let go, held by a finalizer": {pace{}, pod{running(0, true), deleted(time.Hour, 0), held}, rest, 0},
		"let go, about to be removed": {pace{}, pod{running(0, true), deleted(500*time.Millisecond, 0)}, end,
			1500 * time.Millisecond},
		"let go, but not removed": {pace{}, pod{running(0, true), deleted(time.Hour, 0)}, end, 0},
		"never starts":            {pace{startAfter: never}, pod{bound(time.Hour)}, start, never},
		"never ready":             {pace{readyAfter: never}, pod{running(time.Hour, false)}, rest, never},
		"never ends": {pace{endAfter: never},
			pod{running(time.Hour, true), deleted(time.Hour, 30)}, end, never},
		"never ready, but ends by itself": {pace{readyAfter: never, outcome: corev1.PodSucceeded},
			pod{running(0, false)}, finish, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
			for _, change := range c.pod {
				change(p)
			}
			step, wait := c.pace.next(p, testNow)
			if c.wait == never {
				require.Equal(t, never, wait)
				return
			}
			require.Equal(t, c.step, step)
			require.Equal(t, c.wait, wait)
		})
	}
}

func TestPaceOfAPod(t *testing.T) {
	flags := pace{startAfter: time.Second, readyAfter: 2 * time.Second, endAfter: 3 * time.Second}
	of := func(annotations map[string]string) (pace, error) {
		return flags.of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}})
	}

	got, err := of(nil)
	require.NoError(t, err)
	require.Equal(t, flags, got, "without annotations the flags hold")

	got, err = of(map[string]string{
		"standin/start-after": "0s", "standin/ready-after": "never", "standin/end-after": "1m",
		"standin/outcome": "Failed", "standin/outcome-after": "4s",
	})
	require.NoError(t, err)
	require.Equal(t, pace{readyAfter: never, endAfter: time.Minute, outcome: corev1.PodFailed,
		outcomeAfter: 4 * time.Second}, got)

	for annotation, value := range map[string]string{"standin/start-after": "soon", "standin/outcome": "Exploded"} {
		_, err = of(map[string]string{annotation: value})
		require.ErrorContains(t, err, annotation)
		require.ErrorContains(t, err, value)
	}
}

func TestRunningStatus(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "x"},
		{Name: "b", Image: "y"}}}}
	pod.UID = "some-uid"
	pod.Status = runningStatus(pod, false, ago(time.Minute))
	require.Equal(t, corev1.PodRunning, pod.Status.Phase)
	require.False(t, conditionTrue(pod, corev1.PodReady))
	require.True(t, conditionTrue(pod, corev1.PodInitialized))
	require.Len(t, pod.Status.ContainerStatuses, 2)
	require.Regexp(t, `^10\.\d+\.\d+\.\d+$`, pod.Status.PodIP)

	later := runningStatus(pod, true, ago(0))
	require.Equal(t, ago(time.Minute), *later.StartTime, "started once")
	require.Equal(t, pod.Status.PodIP, later.PodIP)
	types := []corev1.PodConditionType{}
	for _, c := range later.Conditions {
		types = append(types, c.Type)
	}
	require.ElementsMatch(t, []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady}, types,
		"what was so before keeps its time")
}

func TestFinishedStatus(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	pod.Status = runningStatus(pod, true, ago(time.Minute))
	failed := finishedStatus(pod, corev1.PodFailed, ago(0))
	require.Equal(t, corev1.PodFailed, failed.Phase)
	require.EqualValues(t, 1, failed.ContainerStatuses[0].State.Terminated.ExitCode)
	succeeded := finishedStatus(pod, corev1.PodSucceeded, ago(0))
	require.Zero(t, succeeded.ContainerStatuses[0].State.Terminated.ExitCode)
}
