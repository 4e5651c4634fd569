package world

import (
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
)

// SelectedBy returns the selector of a workload, and the template of its pods; nil: it is no workload.
func SelectedBy(o Object) (*metav1.LabelSelector, *corev1.PodTemplateSpec) {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return o.Spec.Selector, &o.Spec.Template
	case *appsv1.StatefulSet:
		return o.Spec.Selector, &o.Spec.Template
	case *appsv1.DaemonSet:
		return o.Spec.Selector, &o.Spec.Template
	case *appsv1.ReplicaSet:
		return o.Spec.Selector, &o.Spec.Template
	}
	return nil, nil
}

// revised reports whether a workload has another template than before, or is a new one.
func revised(was, is Object) bool {
	if is == nil {
		return false
	}
	_, template := SelectedBy(is)
	if template == nil || was == nil {
		return template != nil
	}
	_, before := SelectedBy(was)
	return !SameTemplate(*before, *template)
}

// SameTemplate reports whether two templates make the same pods. That of a ReplicaSet has a label of its own.
func SameTemplate(a, b corev1.PodTemplateSpec) bool {
	own := func(t corev1.PodTemplateSpec) corev1.PodTemplateSpec {
		t.Labels = maps.Clone(t.Labels)
		delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		return t
	}
	return apiequality.Semantic.DeepEqual(own(a), own(b))
}

// hashOf tells templates apart. It is not the hash of Kubernetes' own controllers.
func (w *World) hashOf(t corev1.PodTemplateSpec) string {
	sum := fnv.New32a()
	fmt.Fprint(sum, t.String())
	hash := rand.SafeEncodeString(strconv.Itoa(int(sum.Sum32())))
	if w.Drew != nil {
		w.Drew(hash)
	}
	return hash
}

// kindOf is the kind of a workload, which clients leave out.
func kindOf(owner Object) schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind(reflect.TypeOf(owner).Elem().Name())
}
