package world

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim binds a claim when its time is over, to no volume.
func (w *World) claim(ctx context.Context, namespace, name string) (again time.Duration, err error) {
	c := w.client.CoreV1().PersistentVolumeClaims(namespace)
	claim, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || claim.DeletionTimestamp != nil {
		return 0, err
	}
	if again = w.left(w.begun, claim); again > 0 || w.health(claim) != Well {
		return again, nil
	}
	return 0, carried(ctx, w, claim, c.UpdateStatus, bound)
}

func bound(c *corev1.PersistentVolumeClaim) {
	c.Status.Phase, c.Status.AccessModes = corev1.ClaimBound, c.Spec.AccessModes
	c.Status.Capacity = c.Spec.Resources.Requests
}

// newClaim makes a claim of a StatefulSet, unless there is one.
func (w *World) newClaim(ctx context.Context, namespace string, claim *corev1.PersistentVolumeClaim) error {
	c := w.client.CoreV1().PersistentVolumeClaims(namespace)
	made, err := c.Create(ctx, claim, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil || !w.AtOnce {
		return err
	}
	return carried(ctx, w, made, c.UpdateStatus, bound)
}
