package builtin

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// protections are the finalizers that the admission plugin StorageObjectInUseProtection gives to new objects.
var protections = map[schema.GroupResource]string{
	{Resource: "persistentvolumes"}:                                "kubernetes.io/pv-protection",
	{Resource: "persistentvolumeclaims"}:                           "kubernetes.io/pvc-protection",
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}: "kubernetes.io/vac-protection",
}

// protect gives a new object the finalizer of its resource.
func protect(resource schema.GroupResource, o metav1.Object) {
	finalizer, ok := protections[resource]
	if ok && !slices.Contains(o.GetFinalizers(), finalizer) {
		o.SetFinalizers(append(o.GetFinalizers(), finalizer))
	}
}
