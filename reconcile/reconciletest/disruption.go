package reconciletest

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func disruptionBudgetRules() *rules {
	return &rules{
		new:               func() object { return &policyv1.PodDisruptionBudget{} },
		generation:        true,
		conditionalUpdate: true,
		metadataLast:      true,
		validate: func(o, _ object) field.ErrorList {
			b, path := o.(*policyv1.PodDisruptionBudget), field.NewPath("spec")
			errs := metav1validation.ValidateLabelSelector(
				b.Spec.Selector,
				metav1validation.LabelSelectorValidationOptions{},
				path.Child("selector"),
			)
			if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
				errs = append(
					errs,
					field.Invalid(path, field.OmitValueType{}, "minAvailable and maxUnavailable cannot be both set"),
				)
			}
			for name, v := range map[string]*intstr.IntOrString{"minAvailable": b.Spec.MinAvailable,
				"maxUnavailable": b.Spec.MaxUnavailable} {
				if v == nil {
					continue
				}
				errs = append(errs, validateShare(*v, path.Child(name))...)
				if n, percent := share(*v); percent && n > 100 {
					errs = append(errs, field.Invalid(path.Child(name), v.String(), "must not be greater than 100%"))
				}
			}
			status := field.NewPath("status")
			errs = append(errs, metav1validation.ValidateConditions(b.Status.Conditions, status.Child("conditions"))...)
			for name, n := range map[string]int32{
				"disruptionsAllowed": b.Status.DisruptionsAllowed, "currentHealthy": b.Status.CurrentHealthy,
				"desiredHealthy": b.Status.DesiredHealthy, "expectedPods": b.Status.ExpectedPods,
			} {
				errs = append(errs, nonnegative(status.Child(name), int64(n))...)
			}
			return errs
		},
		beyond: func(o object) string {
			if s := o.(*policyv1.PodDisruptionBudget).Spec.Selector; s != nil &&
				len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
				return "an empty selector" // which a real server keeps in a way of its own
			}
			return ""
		},
	}
}
