package reconciletest

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func deploymentRules() *rules {
	return &rules{
		new:         func() object { return &appsv1.Deployment{} },
		generation:  true,
		statusReset: [][]any{{"metadata", "labels"}},
		defaults: func(o object) {
			spec := &o.(*appsv1.Deployment).Spec
			orOne(&spec.Replicas)
			defaultPodSpec(&spec.Template.Spec)
			defaultStrategy(spec)
		},
		changed: func(o, old object) bool {
			is, was := o.(*appsv1.Deployment), old.(*appsv1.Deployment)
			return !apiequality.Semantic.DeepEqual(is.Spec, was.Spec) ||
				!apiequality.Semantic.DeepEqual(is.Annotations, was.Annotations)
		},
		onStatus: func(o, old object) { o.SetLabels(old.GetLabels()) },
		validate: func(o, old object) field.ErrorList {
			d := o.(*appsv1.Deployment)
			was, _ := old.(*appsv1.Deployment)
			errs := validateWorkload(d.Spec.Replicas, d.Spec.MinReadySeconds, d.Spec.Selector, d.Spec.Template)
			errs = append(errs, validateDeployment(d.Spec)...)
			if was != nil {
				errs = append(errs, immutable(value{"spec.selector", was.Spec.Selector, d.Spec.Selector})...)
			}
			return append(errs, validateDeploymentStatus(d.Status, was)...)
		},
		beyond: func(o object) string { return templateBeyond(o.(*appsv1.Deployment).Spec.Template) },
	}
}

func defaultStrategy(spec *appsv1.DeploymentSpec) {
	orValue(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		orDefault(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		orDefault(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		orDefault(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	orDefault(&spec.RevisionHistoryLimit, 10)
	orDefault(&spec.ProgressDeadlineSeconds, 600)
}

// validateDeployment judges what a Deployment has beside other workloads.
func validateDeployment(spec appsv1.DeploymentSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := nonnegative(path.Child("revisionHistoryLimit"), int64(*spec.RevisionHistoryLimit))
	deadline := path.Child("progressDeadlineSeconds")
	errs = append(errs, nonnegative(deadline, int64(*spec.ProgressDeadlineSeconds))...)
	if *spec.ProgressDeadlineSeconds <= spec.MinReadySeconds {
		errs = append(
			errs,
			field.Invalid(deadline, *spec.ProgressDeadlineSeconds, "must be greater than minReadySeconds"),
		)
	}
	rolling := path.Child("strategy", "rollingUpdate")
	if spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		if spec.Strategy.RollingUpdate != nil {
			errs = append(errs, field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'"))
		}
		return errs
	}
	surge, unavailable := *spec.Strategy.RollingUpdate.MaxSurge, *spec.Strategy.RollingUpdate.MaxUnavailable
	errs = append(errs, validateShare(unavailable, rolling.Child("maxUnavailable"))...)
	errs = append(errs, validateShare(surge, rolling.Child("maxSurge"))...)
	n, percent := share(unavailable)
	if m, _ := share(surge); n == 0 && m == 0 {
		errs = append(
			errs,
			field.Invalid(rolling.Child("maxUnavailable"), unavailable.String(), "may not be 0 when `maxSurge` is 0"),
		)
	}
	if percent && n > 100 {
		errs = append(
			errs,
			field.Invalid(rolling.Child("maxUnavailable"), unavailable.String(), "must not be greater than 100%"),
		)
	}
	return errs
}

// share returns the number in a number or a percentage, and which of them it is. What is neither is read as a number if
// it is one.
func share(v intstr.IntOrString) (n int, percent bool) {
	if v.Type == intstr.Int || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return v.IntValue(), false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return n, err == nil
}

func validateShare(v intstr.IntOrString, path *field.Path) (errs field.ErrorList) {
	if v.Type == intstr.Int {
		return nonnegative(path, int64(v.IntVal))
	}
	for _, message := range validation.IsValidPercent(v.StrVal) {
		errs = append(errs, field.Invalid(path, v.StrVal, message))
	}
	return errs
}

// validateDeploymentStatus refuses counts that cannot be, and a count of collisions that falls.
func validateDeploymentStatus(s appsv1.DeploymentStatus, old *appsv1.Deployment) field.ErrorList {
	path := field.NewPath("status")
	errs := nonnegative(path.Child("observedGeneration"), s.ObservedGeneration)
	for name, n := range map[string]*int32{
		"replicas": &s.Replicas, "updatedReplicas": &s.UpdatedReplicas, "readyReplicas": &s.ReadyReplicas,
		"availableReplicas":   &s.AvailableReplicas,
		"unavailableReplicas": &s.UnavailableReplicas, "terminatingReplicas": s.TerminatingReplicas,
		"collisionCount": s.CollisionCount,
	} {
		if n != nil {
			errs = append(errs, nonnegative(path.Child(name), int64(*n))...)
		}
	}
	for name, n := range map[string]int32{"updatedReplicas": s.UpdatedReplicas, "readyReplicas": s.ReadyReplicas,
		"availableReplicas": s.AvailableReplicas} {
		if n > s.Replicas {
			errs = append(errs, field.Invalid(path.Child(name), n, "cannot be greater than status.replicas"))
		}
	}
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(
			errs,
			field.Invalid(path.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than readyReplicas"),
		)
	}
	if old != nil && old.Status.CollisionCount != nil &&
		(s.CollisionCount == nil || *s.CollisionCount < *old.Status.CollisionCount) {
		errs = append(errs, field.Invalid(path.Child("collisionCount"), s.CollisionCount, "cannot be decremented"))
	}
	return errs
}
