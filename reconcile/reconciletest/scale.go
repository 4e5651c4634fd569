package reconciletest

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// ScalePaths say where the numbers of the scale subresource are in a custom resource, each as in .spec.replicas.
// Selector may be empty.
type ScalePaths struct{ SpecReplicas, StatusReplicas, Selector string }

// fieldsOf returns the names of the fields.
func fieldsOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// newScaleResource makes the resource by whose rules a Scale is decoded, patched and answered. It is never stored.
func newScaleResource() (*Resource, error) {
	r := &Resource{
		GroupVersionResource: autoscalingv1.SchemeGroupVersion.WithResource("scales"), Kind: "Scale",
		builtin: &rules{new: func() object { return &autoscalingv1.Scale{} }},
	}
	manager, err := managedfields.NewDefaultFieldManager(scaleTypes{}, scheme.Scheme, defaulter{r}, scheme.Scheme,
		r.gvk(), r.GroupVersion(), "scale", nil)
	r.fieldManagers = map[string]*managedfields.FieldManager{"scale": manager}
	return r, err
}

// scaleTypes tells the field manager of a Scale how it is put together. client-go's apply configurations, which do so
// for the other kinds, do not have it.
type scaleTypes struct{}

func (scaleTypes) ObjectToTyped(o runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	return customType().FromUnstructured(content, opts...)
}

func (scaleTypes) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	content, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a %T is no Scale", v.AsValue().Unstructured())
	}
	scale := &autoscalingv1.Scale{}
	return scale, runtime.DefaultUnstructuredConverter.FromUnstructured(content, scale)
}

// scalable reports whether the resource has a scale subresource.
func (r *Resource) scalable() bool {
	if r.custom() {
		return r.Scale != nil
	}
	switch r.builtin.new().(type) {
	case *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet:
		return true
	case *corev1.ReplicationController: // in a fork nobody fills in its number
		return registered(r) != nil
	}
	return false
}

// replicasPath is where the wanted number is in an object.
func (r *Resource) replicasPath() []string {
	if r.custom() {
		return fieldsOf(r.Scale.SpecReplicas)
	}
	return []string{"spec", "replicas"}
}

// scaleOf returns an object's Scale.
func (r *Resource) scaleOf(o object) (*autoscalingv1.Scale, error) {
	scale := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			CreationTimestamp: o.GetCreationTimestamp(),
		},
	}
	var selector *metav1.LabelSelector
	switch o := o.(type) {
	case *unstructured.Unstructured:
		return scale, r.readScale(o, scale)
	case *appsv1.Deployment:
		scale.Spec.Replicas, scale.Status.Replicas, selector = *o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.ReplicaSet:
		scale.Spec.Replicas, scale.Status.Replicas, selector = *o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.StatefulSet:
		scale.Spec.Replicas, scale.Status.Replicas, selector = *o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	}
	if o, ok := o.(*corev1.ReplicationController); ok {
		scale.Spec.Replicas, scale.Status.Replicas = *o.Spec.Replicas, o.Status.Replicas
		selector = &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	scale.Status.Selector = s.String()
	return scale, nil
}

// noReplicas stands for the number of a custom resource that has none.
const noReplicas = math.MinInt32

// readScale reads the numbers of a custom resource.
func (r *Resource) readScale(u *unstructured.Unstructured, scale *autoscalingv1.Scale) error {
	wanted, found, err := unstructured.NestedInt64(u.Object, fieldsOf(r.Scale.SpecReplicas)...)
	if err != nil {
		return err
	}
	is, _, err := unstructured.NestedInt64(u.Object, fieldsOf(r.Scale.StatusReplicas)...)
	if err != nil {
		return err
	}
	if r.Scale.Selector != "" {
		if scale.Status.Selector, _, err = unstructured.NestedString(u.Object,
			fieldsOf(r.Scale.Selector)...); err != nil {
			return err
		}
	}
	if !found {
		wanted = noReplicas
	}
	if wanted < math.MinInt32 || wanted > math.MaxInt32 || is < math.MinInt32 || is > math.MaxInt32 {
		return fmt.Errorf("a number of replicas is beyond 32 bits")
	}
	scale.Spec.Replicas, scale.Status.Replicas = int32(wanted), int32(is)
	return nil
}

// validateScale says what is wrong with the numbers of a custom resource that has a scale subresource.
func (r *Resource) validateScale(u *unstructured.Unstructured) (errs field.ErrorList) {
	if r.Scale == nil {
		return nil
	}
	for _, path := range []string{r.Scale.SpecReplicas, r.Scale.StatusReplicas} {
		switch n, _, err := unstructured.NestedInt64(u.Object, fieldsOf(path)...); {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath(path), n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(field.NewPath(path), n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(field.NewPath(path), n,
				fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
		}
	}
	if r.Scale.Selector != "" {
		if selector, _, err := unstructured.NestedString(u.Object, fieldsOf(r.Scale.Selector)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(r.Scale.Selector), selector, err.Error()))
		}
	}
	return errs
}

// setReplicas writes the number that is wanted into an object.
func (r *Resource) setReplicas(o object, n int32) error {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		return unstructured.SetNestedField(o.Object, int64(n), r.replicasPath()...)
	case *appsv1.Deployment:
		o.Spec.Replicas = &n
	case *appsv1.ReplicaSet:
		o.Spec.Replicas = &n
	case *appsv1.StatefulSet:
		o.Spec.Replicas = &n
	case *corev1.ReplicationController:
		o.Spec.Replicas = &n
	}
	return nil
}

// replicasPaths says where the wanted number is in each version of a kind: nil: it is nowhere.
func replicasPaths(r *Resource) managedfields.ResourcePathMappings {
	versions := []*Resource{r}
	if r.family != nil {
		versions = slices.Collect(maps.Values(r.family.versions))
	}
	paths := managedfields.ResourcePathMappings{}
	for _, v := range versions {
		paths[v.GroupVersion().String()] = nil
		if !v.scalable() {
			continue
		}
		path := fieldpath.Path{}
		for _, name := range v.replicasPath() {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		paths[v.GroupVersion().String()] = path
	}
	return paths
}

// throughScale makes of a change to a Scale one to the object that it belongs to: c is the call for the Scale.
func (s *Server) throughScale(c *call, change func(old object) (object, error)) func(live object) (object, error) {
	parent := c.parent
	paths := replicasPaths(parent)
	return func(live object) (object, error) {
		old, err := parent.scaleOf(live)
		if err != nil {
			return nil, err
		}
		handler := managedfields.NewScaleHandler(live.GetManagedFields(), parent.GroupVersion(), paths)
		if old.ManagedFields, err = handler.ToSubresource(); err != nil {
			return nil, err
		}
		changed, err := change(old)
		if err != nil {
			return nil, err
		}
		scale := changed.(*autoscalingv1.Scale)
		if scale.Spec.Replicas == noReplicas {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty",
				parent.Scale.SpecReplicas))
		}
		if errs := apivalidation.ValidateNonnegativeField(int64(scale.Spec.Replicas),
			field.NewPath("spec", "replicas")); len(errs) > 0 {
			return nil, apierrors.NewInvalid(c.resource.gvk().GroupKind(), c.Name, errs)
		}
		if scale.UID != "" && scale.UID != live.GetUID() {
			return nil, apierrors.NewConflict(c.Resource.GroupResource(), c.Name,
				//lint:ignore ST1005 it is the real server's text
				fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", scale.UID,
					live.GetUID()))
		}
		o := copyOf(live)
		if err := parent.setReplicas(o, scale.Spec.Replicas); err != nil {
			return nil, err
		}
		o.SetResourceVersion(scale.ResourceVersion)
		if parent.custom() && scale.ResourceVersion == "" {
			o.SetResourceVersion(live.GetResourceVersion())
		}
		entries, err := handler.ToParent(scale.ManagedFields)
		o.SetManagedFields(entries)
		return o, err
	}
}

// serveScale answers a request for the scale subresource of c.parent.
func (s *Server) serveScale(c *call) (*http.Response, error) {
	var o object
	var err error
	switch c.Verb {
	case "get":
		if o, err = c.live(s, c.parent); o == nil && err == nil {
			return nil, c.notFound()
		}
	case "update":
		o, _, err = s.updateObject(c)
	case "patch":
		o, _, err = s.patchObject(c)
	}
	if err != nil {
		return nil, err
	}
	scale, err := c.parent.scaleOf(o)
	if err == nil && scale.Spec.Replicas == noReplicas {
		err = apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist",
			c.parent.Scale.SpecReplicas))
	}
	if err != nil {
		return nil, err
	}
	return c.reply(http.StatusOK)(scale, nil)
}
