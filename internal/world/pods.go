package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// pod starts a pod, or ends it.
func (w *World) pod(ctx context.Context, namespace, name string) (again time.Duration, err error) {
	c := w.client.CoreV1().Pods(namespace)
	pod, err := c.Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return 0, err
	case pod.DeletionTimestamp == nil && isOver(pod):
		return 0, nil
	}
	if lost, err := (nodes{w}).isLost(ctx, pod); err != nil || lost {
		return 0, err
	}
	if pod.DeletionTimestamp == nil {
		return w.start(ctx, pod)
	}
	if again = w.left(w.ended, pod); again > 0 {
		return again, nil
	}
	if err := w.remove(ctx, pod); !apierrors.IsConflict(err) {
		return 0, err
	}
	return 0, nil // another one has its name
}

// isOver reports whether a pod has ended, so that its containers do not run again.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// start gives a pod to a node, if there is one, and lets it run when its time is over.
func (w *World) start(ctx context.Context, pod *corev1.Pod) (again time.Duration, err error) {
	c := w.client.CoreV1().Pods(pod.Namespace)
	if len(pod.Spec.SchedulingGates) > 0 {
		return 0, nil
	}
	if pod.Spec.NodeName == "" {
		waits, err := scheduler{w}.schedule(ctx, pod)
		if err != nil || waits {
			return 0, err
		}
		if pod, err = c.Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return 0, err
		}
	}
	if waits, err := (scheduler{w}).lacks(ctx, pod); err != nil || waits {
		return 0, err
	}
	if again = w.left(w.begun, pod); again > 0 {
		return again, nil
	}
	ip := pod.Status.PodIP
	if ip == "" {
		w.ips++
		ip = fmt.Sprintf("198.18.%d.%d", w.ips/254%256, 1+w.ips%254) // of a network for tests: nobody answers
	}
	well := w.health(pod) == Well
	return 0, carried(ctx, w, pod, c.UpdateStatus, func(p *corev1.Pod) {
		runs(p, ip)
		if !w.AtOnce {
			turnReady(p, well)
		}
	})
}

// remove ends a pod at once.
func (w *World) remove(ctx context.Context, pod *corev1.Pod) error {
	err := w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// evict deletes a pod of a workload that has too many of them. It may take its time.
func (w *World) evict(ctx context.Context, pod *corev1.Pod) error {
	if w.AtOnce {
		return w.remove(ctx, pod)
	}
	err := w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// runs is the status of a pod all of whose containers run, and are ready.
func runs(p *corev1.Pod, ip string) {
	if p.Status.Phase == corev1.PodRunning || isOver(p) {
		return
	}
	at := now()
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &at
	p.Status.PodIP, p.Status.PodIPs, p.Status.HostIP = ip, []corev1.PodIP{{IP: ip}}, ip
	p.Status.HostIPs = []corev1.HostIP{{IP: ip}}
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return Writes(string(c.Type))
	})
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue,
			LastTransitionTime: at})
	}
	p.Status.ContainerStatuses, p.Status.InitContainerStatuses = nil, nil
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name,
			Image: c.Image, Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}})
	}
	for _, c := range p.Spec.InitContainers {
		status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true, Started: new(false),
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed",
				StartedAt: at, FinishedAt: at}}}
		if c.RestartPolicy != nil { // a sidecar
			status.Started = new(true)
			status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
		}
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, status)
	}
}

// turnReady makes a pod that runs ready, or not.
func turnReady(p *corev1.Pod, ready bool) {
	if p.Status.Phase != corev1.PodRunning {
		return
	}
	gated := slices.ContainsFunc(p.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		return !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		})
	})
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		status, reason := corev1.ConditionTrue, ""
		switch {
		case !ready:
			status, reason = corev1.ConditionFalse, "ContainersNotReady"
		case gated && c.Type == corev1.PodReady:
			status, reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
		}
		if (c.Type == corev1.ContainersReady || c.Type == corev1.PodReady) && c.Status != status {
			c.Status, c.Reason, c.LastTransitionTime = status, reason, now()
		}
	}
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].Ready = ready
	}
}

// readySince returns when a pod got ready.
func readySince(p *corev1.Pod) (at time.Time, ready bool) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, p.DeletionTimestamp == nil
		}
	}
	return time.Time{}, false
}

// tally counts pods.
type tally struct {
	all, ready, available int32
	// again is how long it takes until one more may be available: see World.React.
	again time.Duration
}

// add counts a pod that was made just now.
func (t *tally) add(ready bool) {
	if t.all++; ready {
		t.ready++
		t.available++
	}
}

// count counts pods. One is available when it has been ready for some seconds; all are if all is done at once.
func (w *World) count(pods []*corev1.Pod, minReadySeconds int32) (t tally) {
	for _, pod := range pods {
		at, ready := readySince(pod)
		left := time.Until(at.Add(time.Duration(minReadySeconds) * time.Second))
		t.all++
		switch {
		case w.AtOnce || ready && (left <= 0 || minReadySeconds == 0):
			t.ready++
			t.available++
		case ready:
			t.ready++
			if t.again == 0 || left < t.again {
				t.again = left
			}
		}
	}
	return t
}

// isReady reports whether a pod is ready, or counts as such.
func (w *World) isReady(p *corev1.Pod) bool {
	_, ready := readySince(p)
	return ready || w.AtOnce
}

// podsOf returns the pods of a workload, in the order of their names, without those that have ended, and apart those
// that are being deleted, unless all is done at once. It takes over those that its selector matches and that nobody
// owns, such as those that a workload of its name has left.
func (w *World) podsOf(ctx context.Context, owner Object) (all, going []*corev1.Pod, err error) {
	c := w.client.CoreV1().Pods(owner.GetNamespace())
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if isOver(pod) {
			if _, ok := owner.(*appsv1.StatefulSet); !ok || w.AtOnce || !metav1.IsControlledBy(pod, owner) {
				continue
			}
			if err := w.remove(ctx, pod); err != nil { // its name is needed
				return nil, nil, err
			}
			continue
		}
		if takesOver(owner, pod) {
			if pod, err = c.Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
				return nil, nil, err
			}
		}
		switch {
		case !metav1.IsControlledBy(pod, owner):
		case pod.DeletionTimestamp != nil && !w.AtOnce:
			going = append(going, pod)
		default:
			all = append(all, pod)
		}
	}
	return all, going, nil
}

// takesOver makes a workload the owner of an object that nobody owns and that its selector matches. The pods of a
// StatefulSet have to have its name as well.
func takesOver(owner, o Object) bool {
	selector, _ := SelectedBy(owner)
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || !matches.Matches(labels.Set(o.GetLabels())) || metav1.GetControllerOf(o) != nil ||
		o.GetDeletionTimestamp() != nil {
		return false
	}
	if !Named(owner, o) {
		return false
	}
	o.SetOwnerReferences(append(o.GetOwnerReferences(), *metav1.NewControllerRef(owner, kindOf(owner))))
	return true
}

// Named reports whether a pod has a name that its workload gives, where that matters: a StatefulSet knows its pods by
// their names.
func Named(owner, pod Object) bool {
	name := pod.GetName()
	_, ok := owner.(*appsv1.StatefulSet)
	return !ok || name[:max(0, strings.LastIndexByte(name, '-'))] == owner.GetName()
}

// newPod returns a pod as a template says, without a name.
func newPod(owner Object, template corev1.PodTemplateSpec) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace = owner.GetNamespace()
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kindOf(owner))}
	if pod.Labels = maps.Clone(template.Labels); pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	return pod
}

// make makes a pod, which runs at once if all is done at once.
func (w *World) make(ctx context.Context, pod *corev1.Pod) error {
	made, err := w.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil || !w.AtOnce {
		return err
	}
	_, err = w.start(ctx, made)
	return err
}

// victimsLast returns pods in the order in which a ReplicaSet keeps them: the ready ones first, of these the oldest.
func victimsLast(pods []*corev1.Pod) []*corev1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		_, first := readySince(a)
		_, second := readySince(b)
		switch {
		case first == second:
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		case first:
			return -1
		}
		return 1
	})
}
