package reconciletest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The finalizers that keep what storage is made of for as long as it is used: a PersistentVolumeClaim by a pod, a
// PersistentVolume by a claim, and a VolumeAttributesClass by either of them. The latter two are kinds of package
// reconciletest/builtin.
const (
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
	classProtection  = "kubernetes.io/vac-protection"
)

// protections are those finalizers by resource. The admission plugin StorageObjectInUseProtection of a real server sets
// them on new objects, and controllers take them off: see unprotect.
var protections = map[schema.GroupResource]string{
	corev1.Resource("persistentvolumeclaims"):     claimProtection,
	corev1.Resource("persistentvolumes"):          volumeProtection,
	storagev1.Resource("volumeattributesclasses"): classProtection,
}

// protect gives a new object the finalizer of its resource, if there is one.
func protect(r schema.GroupResource, o metav1.Object) {
	finalizer, ok := protections[r]
	if ok && !slices.Contains(o.GetFinalizers(), finalizer) {
		o.SetFinalizers(append(o.GetFinalizers(), finalizer))
	}
}

// isProtection reports whether a finalizer is one that the server sets and takes off by itself.
func isProtection(finalizer string) bool {
	return finalizer == claimProtection || finalizer == volumeProtection || finalizer == classProtection
}

// protectors are the service accounts of the controllers that take the finalizers off.
var protectors = map[string]string{claimProtection: "pvc-protection-controller",
	volumeProtection: "pv-protection-controller", classProtection: "volumeattributesclass-protection-controller"}

// unprotect takes the finalizer of its resource off an object that is being deleted, unless it is used.
func (c *collector) unprotect(i item, items []item) {
	finalizer := protections[i.resource.GroupResource()]
	used := slices.ContainsFunc(items, func(other item) bool { return uses(other.object, i.object) })
	if v, ok := i.object.(*corev1.PersistentVolume); ok {
		used = v.Status.Phase == corev1.VolumeBound
	}
	if !used {
		c.release(i, finalizer, protectors[finalizer])
	}
}

// protected reports whether an object has the finalizer of its resource.
func (i item) protected() bool {
	finalizer, ok := protections[i.resource.GroupResource()]
	return ok && i.has(finalizer)
}

// uses reports whether an object is a reason to keep what is protected.
func uses(user, o object) bool {
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		pod, ok := user.(*corev1.Pod)
		return ok && mounts(pod, o)
	case *storagev1.VolumeAttributesClass:
		return slices.Contains(classesOf(user), o.Name)
	}
	return false
}

// mounts reports whether a pod that has been given a node has a volume of a claim. A claim that was made for a pod, for
// an ephemeral volume, is used until the pod has been shut down.
func mounts(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" || pod.Namespace != claim.Namespace {
		return false
	}
	shutDown := pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil &&
		*pod.DeletionGracePeriodSeconds == 0
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name ||
			v.Ephemeral != nil && pod.Name+"-"+v.Name == claim.Name && metav1.IsControlledBy(claim, pod) && !shutDown
	})
}

// classesOf returns the names of the VolumeAttributesClasses that a claim or a volume has, or is to have.
func classesOf(o object) (names []string) {
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		names = append(names, orEmpty(o.Spec.VolumeAttributesClassName))
	case *corev1.PersistentVolumeClaim:
		names = append(names, orEmpty(o.Spec.VolumeAttributesClassName),
			orEmpty(o.Status.CurrentVolumeAttributesClassName))
		if modifies := o.Status.ModifyVolumeStatus; modifies != nil {
			names = append(names, modifies.TargetVolumeAttributesClassName)
		}
	}
	return names
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
