package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	resourcehelpers "k8s.io/component-helpers/resource"
)

// Which pods are the target's, and which of them count?

// podFacts are what the cache holds of a pod.
type podFacts struct {
	namespace, name string
	labels          labels.Set
	labelText       string // the same for equal labels
	phase           corev1.PodPhase
	deleting        bool
	started         time.Time              // zero: not yet
	ready           corev1.ConditionStatus // empty: there is no such condition
	readyChanged    time.Time
	requests        []containerRequests // of the containers that run as long as the pod
	podRequests     map[corev1.ResourceName]int64
}

// containerRequests are what a container requests, in thousandths.
type containerRequests struct {
	name   string
	amount map[corev1.ResourceName]int64
}

func factsOf(pod *corev1.Pod) (podFacts, error) {
	p := podFacts{namespace: pod.Namespace, name: pod.Name, labels: maps.Clone(pod.Labels), phase: pod.Status.Phase,
		labelText: labels.Set(pod.Labels).String(), deleting: pod.DeletionTimestamp != nil}
	if pod.Status.StartTime != nil {
		p.started = pod.Status.StartTime.Time
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			p.ready, p.readyChanged = c.Status, c.LastTransitionTime.Time
		}
	}
	for _, c := range pod.Spec.Containers {
		p.requests = append(p.requests, containerRequests{c.Name, amounts(c.Resources.Requests)})
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			p.requests = append(p.requests, containerRequests{c.Name, amounts(c.Resources.Requests)})
		}
	}
	if resourcehelpers.IsPodLevelRequestsSet(pod) {
		p.podRequests = amounts(resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{}))
	}
	return p, nil
}

func amounts(list corev1.ResourceList) map[corev1.ResourceName]int64 {
	found := make(map[corev1.ResourceName]int64, len(list))
	for name, quantity := range list {
		found[name] = quantity.MilliValue()
	}
	return found
}

// request returns what a pod requests of a resource, or one container of it. Without a request there is no utilization.
func (p *podFacts) request(name corev1.ResourceName, container string) (total int64, err error) {
	if container == "" && p.podRequests != nil {
		amount, ok := p.podRequests[name]
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", name, p.name)
		}
		return amount, nil
	}
	found := container == ""
	for _, c := range p.requests {
		if container != "" && container != c.name {
			continue
		}
		amount, ok := c.amount[name]
		if !ok {
			return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.name, p.name)
		}
		found, total = true, total+amount
	}
	if !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, p.name)
	}
	return total, nil
}

// runs reports whether a pod does its work.
func (p *podFacts) runs() bool {
	return p.phase == corev1.PodRunning && p.ready == corev1.ConditionTrue
}

// sortPods counts the pods that are ready, names those that are not and those without a sample, and deletes the samples
// of pods that do not count: those that are not ready, have failed or are being deleted.
func (s *situation) sortPods(samples map[string]sample, of corev1.ResourceName) (ready int, unready, missing []string) {
	for i := range s.pods {
		pod := &s.pods[i]
		sample, measured := samples[pod.name]
		switch {
		case pod.deleting || pod.phase == corev1.PodFailed:
			delete(samples, pod.name)
		case pod.phase == corev1.PodPending, measured && of == corev1.ResourceCPU && s.starts(pod, sample):
			delete(samples, pod.name)
			unready = append(unready, pod.name)
		case !measured:
			missing = append(missing, pod.name)
		default:
			ready++
		}
	}
	return ready, unready, missing
}

// starts reports whether the CPU usage of a pod may be that of its start, which says nothing about its load.
func (s *situation) starts(pod *podFacts, sample sample) bool {
	switch {
	case pod.ready == "" || pod.started.IsZero():
		return true
	case pod.started.Add(s.cpuInitialization).After(s.now):
		// It may still start: it has to be ready, and for as long as the sample was taken.
		return pod.ready == corev1.ConditionFalse || sample.at.Before(pod.readyChanged.Add(sample.window))
	default:
		// It is no longer ready, unless it has never been.
		return pod.ready == corev1.ConditionFalse && pod.started.Add(s.initialReadiness).After(pod.readyChanged)
	}
}

// podKey is what pods are indexed by: the namespace, and each label. A key without a label has all of a namespace.
type podKey struct{ namespace, label, value string }

func podKeysOf(p podFacts, add func(podKey)) {
	add(podKey{namespace: p.namespace})
	for label, value := range p.labels {
		add(podKey{p.namespace, label, value})
	}
}

// podsOf returns the pods that a selector matches, by name.
func (r *autoscaler) podsOf(namespace string, selector labels.Selector) (found []podFacts) {
	key := podKey{namespace: namespace}
	requirements, _ := selector.Requirements()
	for _, q := range requirements {
		if values := q.ValuesUnsorted(); len(values) == 1 &&
			(q.Operator() == selection.Equals || q.Operator() == selection.DoubleEquals ||
				q.Operator() == selection.In) {
			key.label, key.value = q.Key(), values[0]
			break
		}
	}
	for pod := range r.podsByLabel.Get(key) {
		if selector.Matches(pod.labels) {
			found = append(found, pod)
		}
	}
	slices.SortFunc(found, func(a, b podFacts) int { return cmp.Compare(a.name, b.name) })
	return found
}
