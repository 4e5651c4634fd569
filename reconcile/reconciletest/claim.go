package reconciletest

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func claimRules() *rules {
	return &rules{
		new: func() object { return &corev1.PersistentVolumeClaim{} }, returnDeleted: true,
		lend: func(o object) bool {
			c := o.(*corev1.PersistentVolumeClaim)
			pending := c.Status.Phase == ""
			orValue(&c.Status.Phase, corev1.ClaimPending)
			return pending
		},
		defaults: func(o object) {
			c := o.(*corev1.PersistentVolumeClaim)
			orValue(&c.Status.Phase, corev1.ClaimPending)
			orDefault(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
			for _, list := range []corev1.ResourceList{c.Spec.Resources.Limits, c.Spec.Resources.Requests,
				c.Status.Capacity} {
				defaultResources(list)
			}
		},
		onCreate: func(o object) { protect(corev1.Resource("persistentvolumeclaims"), o) },
		validate: func(o, old object) field.ErrorList {
			c := o.(*corev1.PersistentVolumeClaim)
			errs := validateClaim(c)
			if was, ok := old.(*corev1.PersistentVolumeClaim); ok {
				errs = append(errs, validateClaimUpdate(c, was)...)
			}
			return errs
		},
		// A claim grows if its storage class says so, and there are no storage classes.
		admit: func(o, old object) error {
			size := o.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests[corev1.ResourceStorage]
			if size.Cmp(old.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests[corev1.ResourceStorage]) <= 0 {
				return nil
			}
			return apierrors.NewForbidden(
				corev1.Resource("persistentvolumeclaims"),
				o.GetName(),
				errors.New(
					"only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "+
						"must support resize",
				),
			)
		},
		beyond: func(o object) string {
			if _, ok := o.GetAnnotations()[corev1.BetaStorageClassAnnotation]; ok {
				return "the annotation " + corev1.BetaStorageClassAnnotation
			}
			return ""
		},
	}
}

func validateClaim(c *corev1.PersistentVolumeClaim) (errs field.ErrorList) {
	path := field.NewPath("spec")
	modes := path.Child("accessModes")
	if len(c.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(modes, "at least 1 access mode is required"))
	}
	known := []corev1.PersistentVolumeAccessMode{
		corev1.ReadOnlyMany,
		corev1.ReadWriteMany,
		corev1.ReadWriteOnce,
		corev1.ReadWriteOncePod,
	}
	alone, others := false, false
	for _, mode := range c.Spec.AccessModes {
		switch {
		case !slices.Contains(known, mode):
			errs = append(errs, field.NotSupported(modes, mode, known))
		case mode == corev1.ReadWriteOncePod:
			alone = true
		default:
			others = true
		}
	}
	if alone && others {
		errs = append(errs, field.Forbidden(modes, "may not use ReadWriteOncePod with other access modes"))
	}
	if c.Spec.Selector != nil {
		errs = append(
			errs,
			metav1validation.ValidateLabelSelector(
				c.Spec.Selector,
				metav1validation.LabelSelectorValidationOptions{},
				path.Child("selector"),
			)...)
	}
	at := path.Child("resources").Key(string(corev1.ResourceStorage))
	switch size, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]; {
	case !ok:
		errs = append(errs, field.Required(at, ""))
	case size.Sign() <= 0:
		errs = append(errs, field.Invalid(at, size.String(), "must be greater than zero"))
	}
	if name := c.Spec.StorageClassName; name != nil && *name != "" {
		for _, message := range apivalidation.NameIsDNSSubdomain(*name, false) {
			errs = append(errs, field.Invalid(path.Child("storageClassName"), *name, message))
		}
	}
	for name, quantity := range c.Status.Capacity {
		if quantity.Sign() < 0 {
			errs = append(
				errs,
				field.Invalid(
					field.NewPath("status", "capacity").Key(string(name)),
					quantity.Value(),
					"must be a valid resource quantity",
				),
			)
		}
	}
	return errs
}

// validateClaimUpdate refuses changes to the spec, except that it gets a volume and a storage class once, and that a
// bound claim asks for more.
func validateClaimUpdate(c, old *corev1.PersistentVolumeClaim) (errs field.ErrorList) {
	is, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = is.VolumeName
	}
	if was.StorageClassName == nil {
		was.StorageClassName = is.StorageClassName
	}
	size, before := is.Resources.Requests[corev1.ResourceStorage], was.Resources.Requests[corev1.ResourceStorage]
	if capacity := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(before) < 0 && size.Cmp(capacity) <= 0 {
		errs = append(
			errs,
			field.Forbidden(
				field.NewPath("spec", "resources", "requests", "storage"),
				"field can not be less than status.capacity",
			),
		)
	}
	if c.Status.Phase == corev1.ClaimBound && is.Resources.Requests != nil {
		is.Resources.Requests[corev1.ResourceStorage] = before
	}
	if !apiequality.Semantic.DeepEqual(is, was) {
		errs = append(
			errs,
			field.Forbidden(
				field.NewPath("spec"),
				"spec is immutable after creation except resources.requests for bound claims",
			),
		)
	}
	return append(errs, immutable(value{"volumeMode", old.Spec.VolumeMode, c.Spec.VolumeMode})...)
}

// claimFields are the fields of a PersistentVolumeClaim.
func claimFields() modelled {
	return modelled{
		"spec.volumeMode": oneOf(
			"Filesystem",
			"Block",
		),
		"spec.resources.requests.storage": wholeQuantity,
		"spec.resources.limits.storage":   wholeQuantity,
		"status.phase":                    oneOf("Pending", "Bound", "Lost"),
		"status.capacity.storage":         anything,
	}.with("spec", "accessModes", "selector", "storageClassName", "volumeName").with("status", "accessModes").
		with("status.conditions[]", append(slices.Clone(condition), "lastProbeTime")...)
}
