package node

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pace is how long the steps of a pod's life take, and how the pod ends by itself.
type pace struct {
	startAfter, readyAfter, endAfter time.Duration
	outcome                          corev1.PodPhase // empty: the pod runs until it is deleted
	outcomeAfter                     time.Duration
}

const never = time.Duration(math.MaxInt64)

// endAgainAfter is how long a pod that has ended may still be there before its end is reported again.
const endAgainAfter = 2 * time.Second

// of returns the pace of one pod: its annotations override p.
func (p pace) of(pod *corev1.Pod) (pace, error) {
	for name, d := range map[string]*time.Duration{
		"standin/start-after":   &p.startAfter,
		"standin/ready-after":   &p.readyAfter,
		"standin/end-after":     &p.endAfter,
		"standin/outcome-after": &p.outcomeAfter,
	} {
		text, ok := pod.Annotations[name]
		if !ok {
			continue
		}
		if text == "never" {
			*d = never
			continue
		}
		parsed, err := time.ParseDuration(text)
		if err != nil {
			return p, fmt.Errorf("annotation %s: %w; say something like 5s, or never", name, err)
		}
		*d = parsed
	}
	switch outcome := corev1.PodPhase(pod.Annotations["standin/outcome"]); outcome {
	case "":
	case corev1.PodFailed, corev1.PodSucceeded:
		p.outcome = outcome
	default:
		return p, fmt.Errorf("annotation standin/outcome: %q is neither Failed nor Succeeded", outcome)
	}
	return p, nil
}

type step int

const (
	rest      step = iota // nothing to do, now or later
	bind                  // give it to our node
	start                 // report it as Running
	makeReady             // report it as Ready
	finish                // report its outcome
	end                   // it was deleted: report its end and remove the object
)

// next returns the next step of a pod, and how long the pod still has to wait for it.
func (p pace) next(pod *corev1.Pod, now time.Time) (step, time.Duration) {
	running := pod.Status.Phase == corev1.PodRunning
	switch {
	case pod.Spec.NodeName == "":
		if pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 {
			return rest, 0
		}
		return bind, 0
	case pod.DeletionTimestamp != nil:
		if pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
			if len(pod.Finalizers) > 0 {
				return rest, 0 // it has ended; a finalizer keeps the object
			}
			// The API server sets the grace period to 0 and then removes the object. If it is killed in between, the
			// object stays, and the next delete request removes it.
			return end, left(endAgainAfter, pod.DeletionTimestamp.Time, now)
		}
		return end, left(p.endAfter, deletedAt(pod), now)
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return rest, 0
	case !running:
		return start, left(p.startAfter, conditionSince(pod, corev1.PodScheduled), now)
	}
	startedAt := now
	if pod.Status.StartTime != nil {
		startedAt = pod.Status.StartTime.Time
	}
	nextStep, wait := rest, never
	if !conditionTrue(pod, corev1.PodReady) {
		nextStep, wait = makeReady, left(p.readyAfter, startedAt, now)
	}
	if p.outcome != "" {
		if w := left(p.outcomeAfter, startedAt, now); w <= wait {
			nextStep, wait = finish, w
		}
	}
	return nextStep, wait
}

// left returns what remains at now of a delay that began at since. The zero since means now.
func left(delay time.Duration, since, now time.Time) time.Duration {
	if delay == never {
		return never
	}
	if since.IsZero() {
		since = now
	}
	return max(0, delay-now.Sub(since))
}

// deletedAt returns the time of the delete request: deletionTimestamp is that time plus the grace period.
func deletedAt(pod *corev1.Pod) time.Time {
	if pod.DeletionGracePeriodSeconds == nil {
		return pod.DeletionTimestamp.Time
	}
	return pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
}

func conditionSince(pod *corev1.Pod, t corev1.PodConditionType) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func conditionTrue(pod *corev1.Pod, t corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
