package world

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// scheduler is the part of a world that finds a node for a pod, and what the node needs to start it.
type scheduler struct{ *World }

// schedule binds a pod to the first node that takes it, or reports that the pod waits: for a claim, for a node, or for
// a scheduler of its own. If all is done at once a pod waits for nothing.
func (w scheduler) schedule(ctx context.Context, pod *corev1.Pod) (waits bool, err error) {
	own := pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != corev1.DefaultSchedulerName
	if own && !w.AtOnce {
		return true, nil
	}
	c := w.client.CoreV1()
	nodes, err := c.Nodes().List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	bound, err := w.bound(ctx, pod)
	if err != nil {
		return false, err
	}
	for i := range nodes.Items {
		if !w.AtOnce && (!bound || !takes(&nodes.Items[i], pod)) {
			continue
		}
		return false, c.Pods(pod.Namespace).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
			Target: corev1.ObjectReference{Kind: "Node", Name: nodes.Items[i].Name}}, metav1.CreateOptions{})
	}
	if w.AtOnce {
		return false, nil
	}
	return true, carried(ctx, w.World, pod, c.Pods(pod.Namespace).UpdateStatus, unschedulable)
}

// takes reports whether a node takes new pods, and this one: by its labels and its name, and unless it is cordoned.
func takes(n *corev1.Node, pod *corev1.Pod) bool {
	return !n.Spec.Unschedulable && n.DeletionTimestamp == nil && !isSilent(n) && selects(&pod.Spec, n)
}

// selects reports whether a node is one that a pod wants, by its nodeSelector and the node affinity that it requires.
func selects(pod *corev1.PodSpec, n *corev1.Node) bool {
	if !labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(n.Labels)) {
		return false
	}
	a := pod.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return len(term.MatchExpressions)+len(term.MatchFields) > 0 && // an empty one matches nothing
			matches(term.MatchExpressions, n.Labels) &&
			!slices.ContainsFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
				return !isNamed(n, r)
			})
	})
}

// isNamed reports whether the name of a node meets a requirement. A name may be longer than a label's value.
func isNamed(n *corev1.Node, r corev1.NodeSelectorRequirement) bool {
	named := slices.Contains(r.Values, n.Name)
	return r.Key == metav1.ObjectNameField && (r.Operator == corev1.NodeSelectorOpIn && named ||
		r.Operator == corev1.NodeSelectorOpNotIn && !named)
}

// operators are those of node selectors, as labels have them.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

// matches reports whether values meet all of some requirements.
func matches(all []corev1.NodeSelectorRequirement, values map[string]string) bool {
	return !slices.ContainsFunc(all, func(r corev1.NodeSelectorRequirement) bool {
		requirement, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		return err != nil || !requirement.Matches(labels.Set(values))
	})
}

func unschedulable(p *corev1.Pod) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return
		}
	}
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled,
		Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: now()})
}

// bound reports whether all claims of a pod are bound.
func (w scheduler) bound(ctx context.Context, pod *corev1.Pod) (bool, error) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil || w.AtOnce {
			continue
		}
		claim, err := w.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx,
			v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) || err == nil && claim.Status.Phase == corev1.ClaimBound {
			if err != nil {
				return false, err
			}
			continue
		}
		return false, nil
	}
	return true, nil
}

// lacks reports whether a Secret or a ConfigMap that a pod cannot start without is missing.
func (w scheduler) lacks(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if w.AtOnce || pod.Status.Phase == corev1.PodRunning {
		return false, nil
	}
	c := w.client.CoreV1()
	secrets, maps := neededBy(pod)
	for name := range secrets {
		_, err := c.Secrets(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return true, notMissing(err)
		}
	}
	for name := range maps {
		_, err := c.ConfigMaps(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return true, notMissing(err)
		}
	}
	return false, nil
}

func notMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// neededBy returns the names of the Secrets and ConfigMaps that a pod needs.
func neededBy(pod *corev1.Pod) (secrets, maps map[string]bool) {
	secrets, maps = map[string]bool{}, map[string]bool{}
	add := func(to map[string]bool, name string, optional *bool) {
		if optional == nil || !*optional {
			to[name] = true
		}
	}
	for _, v := range pod.Spec.Volumes {
		if s := v.Secret; s != nil {
			add(secrets, s.SecretName, s.Optional)
		}
		if m := v.ConfigMap; m != nil {
			add(maps, m.Name, m.Optional)
		}
	}
	for _, c := range append(append([]corev1.Container(nil), pod.Spec.InitContainers...), pod.Spec.Containers...) {
		for _, from := range c.EnvFrom {
			if s := from.SecretRef; s != nil {
				add(secrets, s.Name, s.Optional)
			}
			if m := from.ConfigMapRef; m != nil {
				add(maps, m.Name, m.Optional)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if s := e.ValueFrom.SecretKeyRef; s != nil {
				add(secrets, s.Name, s.Optional)
			}
			if m := e.ValueFrom.ConfigMapKeyRef; m != nil {
				add(maps, m.Name, m.Optional)
			}
		}
	}
	delete(maps, "kube-root-ca.crt") // each namespace of a cluster has it
	return secrets, maps
}
