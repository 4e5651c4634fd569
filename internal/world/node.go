package world

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// node takes the taint off a node that the server gives to new ones, whoever has put it there. If somebody reports how
// the node is, the taint goes once it is reported to be ready.
func (w *World) node(ctx context.Context, name string) (again time.Duration, err error) {
	c := w.client.CoreV1().Nodes()
	node, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || node.DeletionTimestamp != nil {
		return 0, err
	}
	left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isNew)
	notReady := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
	if len(left) == len(node.Spec.Taints) || notReady {
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
