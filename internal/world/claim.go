package world

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claims is the part of a world that binds claims.
type claims struct{ *World }

// bind binds a claim when its time is over: to the volume that it names, or to none.
func (w claims) bind(ctx context.Context, namespace, name string) (again time.Duration, err error) {
	c := w.client.CoreV1().PersistentVolumeClaims(namespace)
	claim, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || claim.DeletionTimestamp != nil {
		return 0, err
	}
	if again = w.left(w.begun, claim); again > 0 || w.health(claim) != Well {
		return again, nil
	}
	if there, err := w.volume(ctx, claim); err != nil || !there {
		return 0, err
	}
	return 0, carried(ctx, w.World, claim, c.UpdateStatus, bound)
}

// bindTo binds the claims that name a volume, which has come.
func (w claims) bindTo(ctx context.Context, volume string) (again time.Duration, err error) {
	all, err := w.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, c := range all.Items {
		if c.Spec.VolumeName != volume {
			continue
		}
		wait, err := w.bind(ctx, c.Namespace, c.Name)
		if err != nil {
			return 0, err
		}
		again = max(again, wait)
	}
	return again, nil
}

// volume lets the volume that a claim names say that it is bound to the claim. It reports whether the claim may say
// so, too: not as long as it waits for the volume.
func (w claims) volume(ctx context.Context, claim *corev1.PersistentVolumeClaim) (there bool, err error) {
	if w.AtOnce || claim.Spec.VolumeName == "" {
		return true, nil
	}
	if served, err := w.serves(ctx, "v1", "persistentvolumes"); err != nil || !served {
		return true, err
	}
	c := w.client.CoreV1().PersistentVolumes()
	volume, err := c.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	ref := volume.Spec.ClaimRef
	if err != nil || ref != nil && ref.UID != claim.UID && (ref.UID != "" || ref.Name != claim.Name ||
		ref.Namespace != claim.Namespace) {
		return true, err // it belongs to another claim, such as one that this one replaces
	}
	if ref == nil || ref.UID == "" {
		volume.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion}
		if volume, err = c.Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
			return false, err
		}
	}
	return true, carried(ctx, w.World, volume, c.UpdateStatus, func(v *corev1.PersistentVolume) {
		v.Status.Phase = corev1.VolumeBound
	})
}

func bound(c *corev1.PersistentVolumeClaim) {
	c.Status.Phase, c.Status.AccessModes = corev1.ClaimBound, c.Spec.AccessModes
	c.Status.Capacity = c.Spec.Resources.Requests
}

// make makes a claim of a StatefulSet, unless there is one.
func (w claims) make(ctx context.Context, namespace string, claim *corev1.PersistentVolumeClaim) error {
	c := w.client.CoreV1().PersistentVolumeClaims(namespace)
	made, err := c.Create(ctx, claim, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil || !w.AtOnce {
		return err
	}
	return carried(ctx, w.World, made, c.UpdateStatus, bound)
}
