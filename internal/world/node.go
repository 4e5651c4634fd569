package world

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// taint takes the taint off a node that the server gives to new ones, whoever has put it there. If somebody reports how
// the node is, the taint goes once it is reported to be ready.
func (w nodes) taint(ctx context.Context, name string) (again time.Duration, err error) {
	c := w.client.CoreV1().Nodes()
	node, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || node.DeletionTimestamp != nil {
		return 0, err
	}
	left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isNew)
	if len(left) == len(node.Spec.Taints) || isSilent(node) {
		return 0, nil
	}
	if again = w.left(w.begun, node); again > 0 || w.health(node) != Well {
		return again, nil
	}
	node.Spec.Taints = left
	_, err = c.Update(ctx, node, metav1.UpdateOptions{})
	return 0, err
}

// isNew reports whether a taint is the one that a server gives to new nodes.
func isNew(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule
}

// isSilent reports whether somebody reports that a node is not ready, or that nothing is heard of it.
func isSilent(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// isLost reports whether a pod is on a node that is silent, so that nothing becomes of it for now.
func (w nodes) isLost(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if w.AtOnce || pod.Spec.NodeName == "" {
		return false, nil
	}
	node, err := w.client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, err
	}
	return isSilent(node), nil
}

// pods does what is to be done about the pods on a node, which is heard of again.
func (w nodes) pods(ctx context.Context, node string) (again time.Duration, err error) {
	all, err := w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, p := range all.Items {
		if p.Spec.NodeName != node {
			continue
		}
		wait, err := w.pod(ctx, p.Namespace, p.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		again = max(again, wait)
	}
	return again, nil
}
