package check

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// provisioner is who makes the volumes of claims without one.
const provisioner = "disks.example.com"

// binder is in place of Kubernetes' controller of volumes: it binds a claim to the volume that names it, names the
// provisioner of a claim without a volume, and says that a volume is released.
func binder(ctx context.Context, cfg *rest.Config) error {
	client := kubernetes.NewForConfigOrDie(cfg).CoreV1()
	for {
		// What fails is tried again in the next round.
		if volumes, err := client.PersistentVolumes().List(ctx, metav1.ListOptions{}); err == nil {
			if claims, err := client.PersistentVolumeClaims("").List(ctx, metav1.ListOptions{}); err == nil {
				_ = bind(ctx, kubernetes.NewForConfigOrDie(cfg), claims.Items, volumes.Items)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// bind makes one change, and returns.
func bind(ctx context.Context, client kubernetes.Interface, claims []corev1.PersistentVolumeClaim,
	volumes []corev1.PersistentVolume) error {
	of := map[types.NamespacedName]*corev1.PersistentVolumeClaim{}
	for i := range claims {
		of[types.NamespacedName{Namespace: claims[i].Namespace, Name: claims[i].Name}] = &claims[i]
	}
	for i := range volumes {
		if v := &volumes[i]; v.Spec.ClaimRef != nil && v.DeletionTimestamp == nil {
			claim := of[types.NamespacedName{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name}]
			if done, err := bindOne(ctx, client, claim, v); done || err != nil {
				return err
			}
		}
	}
	for i := range claims {
		const by = "volume.kubernetes.io/storage-provisioner"
		if c := &claims[i]; c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && c.Annotations[by] == "" {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, by, provisioner)
			_, err := client.CoreV1().PersistentVolumeClaims(c.Namespace).Update(ctx, c, metav1.UpdateOptions{})
			return err
		}
	}
	return nil
}

// bindOne binds a volume and its claim, nil if there is none, and says whether it has changed something.
func bindOne(ctx context.Context, client kubernetes.Interface, claim *corev1.PersistentVolumeClaim,
	v *corev1.PersistentVolume) (done bool, err error) {
	volumes, phase := client.CoreV1().PersistentVolumes(), corev1.VolumeBound
	switch {
	case claim == nil && v.Spec.ClaimRef.UID == "":
		return false, nil
	case claim == nil || v.Spec.ClaimRef.UID != "" && v.Spec.ClaimRef.UID != claim.UID:
		phase = corev1.VolumeReleased
	case v.Spec.ClaimRef.UID == "":
		v.Spec.ClaimRef.UID = claim.UID
		_, err := volumes.Update(ctx, v, metav1.UpdateOptions{})
		return true, err
	}
	if v.Status.Phase != phase {
		v.Status.Phase = phase
		_, err := volumes.UpdateStatus(ctx, v, metav1.UpdateOptions{})
		return true, err
	}
	if phase != corev1.VolumeBound || claim.DeletionTimestamp != nil {
		return false, nil
	}
	claims := client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	if claim.Spec.VolumeName == "" {
		claim.Spec.VolumeName = v.Name
		_, err := claims.Update(ctx, claim, metav1.UpdateOptions{})
		return true, err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, v.Spec.Capacity
		claim.Status.AccessModes = v.Spec.AccessModes
		claim.Status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
		_, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return true, err
	}
	return false, nil
}
