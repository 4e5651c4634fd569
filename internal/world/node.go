package world

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// node takes the taint off a node that the server gives to new ones, whoever has put it there. A node whose readiness
// somebody reports is theirs.
func (w *World) node(ctx context.Context, name string) (again time.Duration, err error) {
	c := w.client.CoreV1().Nodes()
	node, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || node.DeletionTimestamp != nil {
		return 0, err
	}
	left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isNew)
	reported := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady
	})
	if len(left) == len(node.Spec.Taints) || reported {
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
