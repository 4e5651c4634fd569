package reconciletest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func autoscalerRules() *rules {
	return &rules{
		new: func() object { return &autoscalingv2.HorizontalPodAutoscaler{} }, generation: true,
		defaults: func(o object) { defaultAutoscaler(&o.(*autoscalingv2.HorizontalPodAutoscaler).Spec) },
		validate: func(o, old object) field.ErrorList {
			h := o.(*autoscalingv2.HorizontalPodAutoscaler)
			was, _ := old.(*autoscalingv2.HorizontalPodAutoscaler)
			return append(validateAutoscaler(h.Spec, was), validateAutoscalerStatus(h.Status)...)
		},
		beyond: func(o object) string {
			for name := range maps.Keys(o.GetAnnotations()) {
				if strings.HasPrefix(
					name,
					"autoscaling.alpha.kubernetes.io/",
				) { // by which the older version keeps what it has no fields for
					return "the annotation " + name
				}
			}
			return ""
		},
	}
}

func defaultAutoscaler(spec *autoscalingv2.HorizontalPodAutoscalerSpec) {
	orOne(&spec.MinReplicas)
	if len(spec.Metrics) == 0 {
		utilization := int32(80)
		spec.Metrics = []autoscalingv2.MetricSpec{
			{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{
					Type:               autoscalingv2.UtilizationMetricType,
					AverageUtilization: &utilization,
				},
			}},
		}
	}
	if spec.Behavior == nil {
		return
	}
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
	fill := func(rules **autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
		orDefault(rules, autoscalingv2.HPAScalingRules{})
		orDefault(&(*rules).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
		if (*rules).Policies == nil {
			(*rules).Policies = policies
		}
	}
	fill(&spec.Behavior.ScaleUp, pods, percent)
	orDefault(&spec.Behavior.ScaleUp.StabilizationWindowSeconds, 0)
	fill(&spec.Behavior.ScaleDown, percent)
}

func validateAutoscaler(
	spec autoscalingv2.HorizontalPodAutoscalerSpec,
	old *autoscalingv2.HorizontalPodAutoscaler,
) (errs field.ErrorList) {
	path := field.NewPath("spec")
	errs = append(errs, nonnegative(path.Child("minReplicas"), int64(*spec.MinReplicas))...)
	most := path.Child("maxReplicas")
	switch {
	case spec.MaxReplicas == 0:
		errs = append(errs, field.Required(most, "must be set and greater than 0"))
	case spec.MaxReplicas < 0:
		errs = append(errs, field.Invalid(most, spec.MaxReplicas, "must be greater than or equal to 1"))
	}
	if spec.MaxReplicas < *spec.MinReplicas {
		errs = append(errs, field.Invalid(most, spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	if *spec.MinReplicas == 0 && !slices.ContainsFunc(spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}) {
		errs = append(
			errs,
			field.Forbidden(
				path.Child("metrics"),
				"must specify at least one Object or External metric to support scaling to zero replicas",
			),
		)
	}
	target := spec.ScaleTargetRef
	known := old != nil && old.Spec.ScaleTargetRef.APIVersion == target.APIVersion &&
		old.Spec.ScaleTargetRef.Kind == target.Kind
	errs = append(
		errs,
		validateReference(target, path.Child("scaleTargetRef"), !known, target.Kind == "ReplicationController")...)
	for i, m := range spec.Metrics {
		errs = append(errs, validateMetric(m, path.Child("metrics").Index(i))...)
	}
	if spec.Behavior != nil {
		errs = append(errs, validateScaling(spec.Behavior.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateScaling(spec.Behavior.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

// validateReference judges a reference to an object; its version only if judgeVersion is set, and core says that it may
// name no group.
func validateReference(
	ref autoscalingv2.CrossVersionObjectReference,
	path *field.Path,
	judgeVersion, core bool,
) field.ErrorList {
	errs := validateSegment(ref.Kind, path.Child("kind"))
	errs = append(errs, validateSegment(ref.Name, path.Child("name"))...)
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); judgeVersion && (err != nil || !core && gv.Group == "") {
		errs = append(
			errs,
			field.Invalid(path.Child("apiVersion"), ref.APIVersion, "apiVersion must specify API group"),
		)
	}
	return errs
}

// validateSegment judges a name that has to fit into a path.
func validateSegment(name string, path *field.Path) field.ErrorList {
	errs := required(name, path)
	for _, message := range validPathSegment(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}

// validateMetric judges the first source of a metric, and forbids those that do not belong to its type.
func validateMetric(m autoscalingv2.MetricSpec, path *field.Path) (errs field.ErrorList) {
	if m.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	}
	sources := []struct {
		kind     autoscalingv2.MetricSourceType
		name     string
		set      bool
		validate func(at *field.Path) field.ErrorList
	}{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) field.ErrorList {
			errs := validateReference(m.Object.DescribedObject, at.Child("describedObject"), true, true)
			errs = append(errs, validateSegment(m.Object.Metric.Name, at.Child("metric", "name"))...)
			return append(
				errs,
				validateTarget(
					m.Object.Target,
					at.Child("target"),
					"averageValue",
					m.Object.Target.Value != nil,
					false,
				)...)
		}},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) field.ErrorList {
			errs := validateSegment(m.External.Metric.Name, at.Child("metric", "name"))
			errs = append(
				errs,
				validateTarget(
					m.External.Target,
					at.Child("target"),
					"averageValue",
					m.External.Target.Value != nil,
					false,
				)...)
			if m.External.Target.Value != nil && m.External.Target.AverageValue != nil {
				errs = append(
					errs,
					field.Forbidden(
						at.Child("target", "value"),
						"may not set both a target value for metric and a per-pod target",
					),
				)
			}
			return errs
		}},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) field.ErrorList {
			errs := validateSegment(m.Pods.Metric.Name, at.Child("metric", "name"))
			return append(errs, validateTarget(m.Pods.Target, at.Child("target"), "averageValue", false, false)...)
		}},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) field.ErrorList {
			errs := required(string(m.Resource.Name), at.Child("name"))
			return append(
				errs,
				validateTarget(
					m.Resource.Target,
					at.Child("target"),
					"averageUtilization",
					m.Resource.Target.AverageUtilization != nil,
					true,
				)...)
		}},
		{
			autoscalingv2.ContainerResourceMetricSourceType,
			"containerResource",
			m.ContainerResource != nil,
			func(at *field.Path) field.ErrorList {
				c := m.ContainerResource
				errs := append(
					required(string(c.Name), at.Child("name")),
					validateLabelName(c.Container, at.Child("container"))...)
				return append(
					errs,
					validateTarget(
						c.Target,
						at.Child("target"),
						"averageUtilization",
						c.Target.AverageUtilization != nil,
						true,
					)...)
			},
		},
	}
	there, known := 0, false
	for _, s := range sources {
		if s.set {
			if there++; there == 1 {
				errs = append(errs, s.validate(path.Child(s.name))...)
			}
		}
		if s.kind == m.Type {
			known = true
			if !s.set {
				errs = append(
					errs,
					field.Required(path.Child(s.name), "must populate information for the given metric source"),
				)
			}
		}
	}
	if !known {
		errs = append(
			errs,
			field.NotSupported(
				path.Child("type"),
				m.Type,
				[]string{"ContainerResource", "External", "Object", "Pods", "Resource"},
			),
		)
	}
	for _, s := range sources {
		if there > 1 && s.set && s.kind != m.Type {
			errs = append(errs, field.Forbidden(path.Child(s.name), "must populate the given metric source only"))
		}
	}
	return errs
}

// validateTarget judges what a metric is to be. It needs an average value, or what other says; either forbids both.
func validateTarget(
	t autoscalingv2.MetricTarget,
	path *field.Path,
	needed string,
	other, either bool,
) (errs field.ErrorList) {
	if t.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
	}
	if !slices.Contains(
		[]autoscalingv2.MetricTargetType{
			autoscalingv2.UtilizationMetricType,
			autoscalingv2.ValueMetricType,
			autoscalingv2.AverageValueMetricType,
		},
		t.Type,
	) {
		errs = append(
			errs,
			field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"),
		)
	}
	for name, q := range map[string]*resource.Quantity{"value": t.Value, "averageValue": t.AverageValue} {
		if q != nil && q.Sign() != 1 {
			errs = append(errs, field.Invalid(path.Child(name), q.String(), "must be positive"))
		}
	}
	if n := t.AverageUtilization; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), *n, "must be greater than 0"))
	}
	switch {
	case t.AverageValue == nil && !other:
		errs = append(errs, field.Required(path.Child(needed), "must set a target"))
	case t.AverageValue != nil && other && either:
		errs = append(
			errs,
			field.Forbidden(path.Child("averageValue"), "may not set both a target raw value and a target utilization"),
		)
	}
	return errs
}

func validateScaling(rules *autoscalingv2.HPAScalingRules, path *field.Path) (errs field.ErrorList) {
	const longestWindow, longestPeriod = 3600, 1800
	if n := rules.StabilizationWindowSeconds; n != nil && (*n < 0 || *n > longestWindow) {
		errs = append(
			errs,
			field.Invalid(
				path.Child("stabilizationWindowSeconds"),
				*n,
				fmt.Sprintf("must be between 0 and %d", longestWindow),
			),
		)
	}
	if len(rules.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range rules.Policies {
		at := path.Child("policies").Index(i)
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 || p.PeriodSeconds > longestPeriod {
			errs = append(
				errs,
				field.Invalid(
					at.Child("periodSeconds"),
					p.PeriodSeconds,
					fmt.Sprintf("must be between 1 and %d", longestPeriod),
				),
			)
		}
	}
	if rules.Tolerance != nil {
		errs = append(errs, nonnegativeQuantity(*rules.Tolerance, path.Child("tolerance"))...)
	}
	return errs
}

func validateAutoscalerStatus(s autoscalingv2.HorizontalPodAutoscalerStatus) field.ErrorList {
	path := field.NewPath("status")
	errs := append(
		nonnegative(path.Child("currentReplicas"), int64(s.CurrentReplicas)),
		nonnegative(path.Child("desiredReplicas"), int64(s.DesiredReplicas))...)
	for i, c := range s.Conditions {
		// The field is younger than the oldest client-go that this package builds with.
		if observed, ok := fieldNamed(c, "ObservedGeneration").(*int64); ok && observed != nil {
			at := path.Child("conditions").Index(i).Child("observedGeneration")
			errs = append(errs, nonnegative(at, *observed)...)
		}
	}
	return errs
}

// fieldNamed returns the value of a field of a struct, or nil if it has no such field.
func fieldNamed(value any, name string) any {
	field := reflect.ValueOf(value).FieldByName(name)
	if !field.IsValid() {
		return nil
	}
	return field.Interface()
}

// autoscalerFields are the fields of a HorizontalPodAutoscaler.
func autoscalerFields() modelled {
	m := modelled{}.with("spec", "minReplicas", "maxReplicas", "scaleTargetRef").
		with("status", "observedGeneration", "lastScaleTime", "currentReplicas",
			"desiredReplicas", "currentMetrics").
		with("status.conditions[]", append(slices.Clone(condition), "observedGeneration")...)
	metric := modelled{
		"containerResource.name": oneOf("", "cpu", "memory"),
	}.with(
		"",
		"type",
		"object.describedObject",
		"containerResource.container",
		"resource.name",
	)
	for _, source := range []string{"object", "pods", "resource", "external", "containerResource"} {
		metric = metric.with(source, "target")
	}
	for _, source := range []string{"object", "pods", "external"} {
		metric = metric.with(source, "metric")
	}
	m = m.and("spec.metrics[]", metric)
	for _, direction := range []string{"scaleUp", "scaleDown"} {
		m = m.and("spec.behavior."+direction, modelled{
			"selectPolicy": oneOf(
				"Max",
				"Min",
				"Disabled",
			),
			"stabilizationWindowSeconds": anything,
			"tolerance":                  anything,
			"policies[].type": oneOf(
				"Pods",
				"Percent",
			),
			"policies[].value":         anything,
			"policies[].periodSeconds": anything,
		})
	}
	return m
}
