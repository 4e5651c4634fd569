package plan

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// podsOf returns the pods of a workload, in the order of their names, without those that have ended. It takes over
// those that its selector matches and that nobody owns, such as those that a workload of its name has left.
func (w *world) podsOf(ctx context.Context, owner reconciletest.Object) ([]*corev1.Pod, error) {
	c := w.client.CoreV1().Pods(owner.GetNamespace())
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		if takesOver(owner, pod) {
			if pod, err = c.Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
				return nil, err
			}
		}
		if metav1.IsControlledBy(pod, owner) {
			all = append(all, pod)
		}
	}
	return all, nil
}

// takesOver makes a workload the owner of an object that nobody owns and that its selector matches. The pods of a
// StatefulSet have to have its name as well.
func takesOver(owner, o reconciletest.Object) bool {
	selector, _ := selectedBy(owner)
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || !matches.Matches(labels.Set(o.GetLabels())) || metav1.GetControllerOf(o) != nil ||
		o.GetDeletionTimestamp() != nil {
		return false
	}
	if !named(owner, o) {
		return false
	}
	o.SetOwnerReferences(append(o.GetOwnerReferences(), *metav1.NewControllerRef(owner, kindOf(owner))))
	return true
}

// named reports whether a pod has a name that its workload gives, where that matters: a StatefulSet knows its pods by
// their names.
func named(owner, pod reconciletest.Object) bool {
	name := pod.GetName()
	_, ok := owner.(*appsv1.StatefulSet)
	return !ok || name[:max(0, strings.LastIndexByte(name, '-'))] == owner.GetName()
}

// kindOf is the kind of a workload, which clients leave out.
func kindOf(owner reconciletest.Object) schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind(reflect.TypeOf(owner).Elem().Name())
}

// newPod returns a pod as a template says, without a name.
func newPod(owner reconciletest.Object, template corev1.PodTemplateSpec) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace = owner.GetNamespace()
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kindOf(owner))}
	if pod.Labels = maps.Clone(template.Labels); pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	return pod
}

// run makes a pod that runs.
func (w *world) run(ctx context.Context, pod *corev1.Pod) error {
	made, err := w.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return w.start(ctx, made.Namespace, made.Name)
}

// start gives a pod to a node, if there is one, and lets it run.
func (w *world) start(ctx context.Context, namespace, name string) error {
	c := w.client.CoreV1().Pods(namespace)
	pod, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || pod.DeletionTimestamp != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && !apierrors.IsForbidden(err) {
			return err
		}
		if err == nil && len(nodes.Items) > 0 {
			err := c.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name},
				Target: corev1.ObjectReference{Kind: "Node", Name: nodes.Items[0].Name}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
		}
	}
	w.ips++
	ip := fmt.Sprintf("192.0.2.%d", 1+w.ips%254) // of a network for examples, in which nobody answers
	return carried(ctx, name, c.Get, c.UpdateStatus, func(p *corev1.Pod) { running(p, ip) })
}

// remove ends a pod at once.
func (w *world) remove(ctx context.Context, pod *corev1.Pod) error {
	err := w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// end ends a pod that is being deleted, unless it has gone, or another one has its name.
func (w *world) end(ctx context.Context, pod *corev1.Pod) error {
	if err := w.remove(ctx, pod); !apierrors.IsConflict(err) {
		return err
	}
	return nil
}

// owner lets the owner of a pod that is gone make another one.
func (w *world) owner(ctx context.Context, pod *corev1.Pod) error {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil
	}
	switch owner.Kind {
	case "ReplicaSet":
		return w.replicaSet(ctx, pod.Namespace, owner.Name)
	case "StatefulSet":
		return w.statefulSet(ctx, pod.Namespace, owner.Name, false)
	case "DaemonSet":
		return w.daemonSet(ctx, pod.Namespace, owner.Name, false)
	}
	return nil
}

// running is the status of a pod all of whose containers run, and are ready.
func running(p *corev1.Pod, ip string) {
	if slices.Contains([]corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}, p.Status.Phase) {
		return
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &now
	p.Status.PodIP, p.Status.PodIPs, p.Status.HostIP = ip, []corev1.PodIP{{IP: ip}}, ip
	p.Status.Conditions = nil
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue,
			LastTransitionTime: now})
	}
	p.Status.ContainerStatuses, p.Status.InitContainerStatuses = nil, nil
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name,
			Image: c.Image, Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}})
	}
	for _, c := range p.Spec.InitContainers {
		status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true, Started: new(false),
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed",
				StartedAt: now, FinishedAt: now}}}
		if c.RestartPolicy != nil { // a sidecar
			status.Started = new(true)
			status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		}
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, status)
	}
}
