package world

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TemplateGeneration counts the changes of a DaemonSet's template. Its pods have the number as a label.
func TemplateGeneration(d *appsv1.DaemonSet) string {
	return d.Annotations[appsv1.DeprecatedTemplateGeneration]
}

// TemplateGenerationLabel is that label.
const TemplateGenerationLabel = "pod-template-generation"

// nodes is the part of a world that is about nodes, and gives pods to them for DaemonSets.
type nodes struct{ *World }

// daemonSet gives a DaemonSet a pod on each node that its template selects, cordoned or not. A pod of an older template
// is replaced, one after the other unless all is done at once.
func (w nodes) daemonSet(ctx context.Context, i Item) (again time.Duration, err error) {
	c := w.client.AppsV1().DaemonSets(i.Namespace)
	set, err := c.Get(ctx, i.Name, metav1.GetOptions{})
	if err != nil || set.DeletionTimestamp != nil {
		return 0, err
	}
	nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	nodes.Items = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool {
		return !selects(&set.Spec.Template.Spec, &n)
	})
	pods, going, err := w.podsOf(ctx, set)
	if err != nil {
		return 0, err
	}
	revised := i.Revised || !w.AtOnce
	hash, err := w.hashOfPods(ctx, set)
	if err != nil {
		return 0, err
	}
	if !revised && len(pods) > 0 { // the name that its own controller has given to the template
		hash = pods[0].Labels[appsv1.ControllerRevisionHashLabelKey]
	}
	pods, updated, err := w.keep(ctx, set, pods, hash, revised, len(going) == 0)
	if err != nil {
		return 0, err
	}
	if pods, err = w.leave(ctx, pods, nodes.Items); err != nil {
		return 0, err
	}
	served := map[string]bool{}
	for _, pod := range append(going, pods...) {
		served[pod.Spec.NodeName] = true
	}
	t := w.count(pods, set.Spec.MinReadySeconds)
	for _, node := range nodes.Items {
		if served[node.Name] {
			continue
		}
		pod := newPod(set, set.Spec.Template)
		pod.GenerateName, pod.Spec.NodeName = set.Name+"-", node.Name
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = hash
		pod.Labels[TemplateGenerationLabel] = TemplateGeneration(set)
		if err := w.make(ctx, pod); err != nil {
			return 0, err
		}
		updated++
		t.add(w.AtOnce)
	}
	return t.again, carried(ctx, w.World, set, c.UpdateStatus, func(s *appsv1.DaemonSet) {
		s.Status.ObservedGeneration, s.Status.UpdatedNumberScheduled = s.Generation, updated
		s.Status.CurrentNumberScheduled, s.Status.DesiredNumberScheduled = t.all, max(t.all, int32(len(nodes.Items)))
		s.Status.NumberReady, s.Status.NumberAvailable = t.ready, t.available
		s.Status.NumberUnavailable = s.Status.DesiredNumberScheduled - t.available
	})
}

// leave evicts the pods of nodes that are not selected any more, and returns the others.
func (w nodes) leave(ctx context.Context, pods []*corev1.Pod, selected []corev1.Node) (stay []*corev1.Pod, err error) {
	if w.AtOnce {
		return pods, nil
	}
	for _, pod := range pods {
		if slices.ContainsFunc(selected, func(n corev1.Node) bool { return n.Name == pod.Spec.NodeName }) {
			stay = append(stay, pod)
		} else if err := w.evict(ctx, pod); err != nil {
			return nil, err
		}
	}
	return stay, nil
}

// keep returns the pods that are not replaced, and how many of them are of the template. mayGo: one may be replaced
// now, if all of the others are ready.
func (w nodes) keep(ctx context.Context, set *appsv1.DaemonSet, pods []*corev1.Pod, hash string, revised, mayGo bool) (
	kept []*corev1.Pod, updated int32, err error) {
	byHand := set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	isNew := func(pod *corev1.Pod) bool {
		return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == hash || // or whatever else it is made of
			pod.Labels[TemplateGenerationLabel] == TemplateGeneration(set)
	}
	for _, pod := range pods {
		mayGo = mayGo && (w.isReady(pod) || !isNew(pod))
	}
	for _, pod := range pods {
		switch {
		case isNew(pod):
			updated++
		case revised && !byHand && (mayGo || w.AtOnce):
			if err := w.evict(ctx, pod); err != nil {
				return nil, 0, err
			}
			mayGo = false
			continue
		}
		kept = append(kept, pod)
	}
	return kept, updated, nil
}

// hashOfPods is the label of the pods that a DaemonSet's template makes.
func (w nodes) hashOfPods(ctx context.Context, set *appsv1.DaemonSet) (string, error) {
	known, err := w.revisionOf(ctx, set)
	if err != nil || known == nil {
		return w.hashOf(set.Spec.Template), err
	}
	return known.Labels[appsv1.ControllerRevisionHashLabelKey], nil
}
