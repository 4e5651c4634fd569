package main

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What do several metrics come to?
//
// Each metric proposes a number of replicas, and the highest counts. A metric that cannot be read may have proposed a
// higher one: so without it the target grows as the others say, and does not shrink.

// proposal is the number of replicas that one metric comes to.
type proposal struct {
	replicas int32
	name     string // of the metric, for conditions and Events
	status   autoscalingv2.MetricStatus
}

// evaluate returns the proposal that counts. If there is none, it has set what the decision is to tell.
func (s *situation) evaluate(d *decision) (best proposal, ok bool) {
	if s.trouble != nil {
		d.warn(s.trouble)
		text := s.trouble.condition
		if text == "" {
			text = s.trouble.err.Error()
		}
		d.active(false, s.trouble.reason, "%s", text)
		d.blindBy(s.trouble.err)
		return best, false
	}
	specs := s.hpa.Spec.Metrics                                // at least one: the API server has a default
	d.metrics = make([]autoscalingv2.MetricStatus, len(specs)) // an unreadable one keeps its place, empty
	var first *problem
	failed := 0
	for i := range specs {
		p, trouble := s.propose(&specs[i], &s.readings[i])
		if trouble != nil {
			d.warn(trouble)
			failed++
			if first == nil {
				first = trouble
			}
			continue
		}
		d.metrics[i] = p.status
		if best.replicas == 0 || p.replicas > best.replicas {
			best = p
		}
	}
	if failed > 0 {
		d.failed = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", failed, len(specs),
			first.err)
	}
	if failed == len(specs) || failed > 0 && best.replicas < s.wanted() {
		d.active(false, first.reason, "the HPA was unable to compute the replica count: %v", first.err)
		d.blindBy(d.failed)
		return best, false
	}
	d.active(true, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from %s", best.name)
	return best, true
}

// blindBy says that no number could be computed.
func (d *decision) blindBy(err error) {
	d.blind, d.failed = true, err
	d.tell(corev1.EventTypeWarning, "FailedComputeMetricsReplicas", "%v", err)
}

// propose evaluates one metric.
func (s *situation) propose(spec *autoscalingv2.MetricSpec, r *reading) (proposal, *problem) {
	var p proposal
	err := r.err
	if err == nil {
		switch spec.Type {
		case autoscalingv2.ResourceMetricSourceType:
			p, err = s.ofResource(spec.Resource.Name, "", spec.Resource.Target, r)
		case autoscalingv2.ContainerResourceMetricSourceType:
			source := spec.ContainerResource
			p, err = s.ofResource(source.Name, source.Container, source.Target, r)
		case autoscalingv2.PodsMetricSourceType:
			p, err = s.ofPods(spec.Pods, r)
		case autoscalingv2.ObjectMetricSourceType:
			p, err = s.ofObject(spec.Object, r)
		case autoscalingv2.ExternalMetricSourceType:
			p, err = s.ofExternal(spec.External, r)
		default:
			err = fmt.Errorf("unknown metric source type %q", spec.Type)
		}
	}
	if err != nil {
		reason := reasonOf(spec)
		return p, &problem{reason: reason, event: reason, err: fmt.Errorf("failed to get %s: %w", nameOf(spec), err)}
	}
	p.status.Type = spec.Type
	return p, nil
}

// reasonOf is the reason of the condition and the Event when a metric is of no use.
func reasonOf(spec *autoscalingv2.MetricSpec) string {
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType, autoscalingv2.ContainerResourceMetricSourceType,
		autoscalingv2.PodsMetricSourceType, autoscalingv2.ObjectMetricSourceType,
		autoscalingv2.ExternalMetricSourceType:
		return fmt.Sprintf("FailedGet%sMetric", spec.Type)
	}
	return "InvalidMetricSourceType"
}

// nameOf names a metric in errors.
func nameOf(spec *autoscalingv2.MetricSpec) string {
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType:
		if spec.Resource.Target.AverageValue != nil {
			return fmt.Sprintf("%s usage", spec.Resource.Name)
		}
		return fmt.Sprintf("%s utilization", spec.Resource.Name)
	case autoscalingv2.ContainerResourceMetricSourceType:
		return fmt.Sprintf("%s usage of container %s", spec.ContainerResource.Name, spec.ContainerResource.Container)
	case autoscalingv2.PodsMetricSourceType:
		return "pods metric " + spec.Pods.Metric.Name
	case autoscalingv2.ObjectMetricSourceType:
		object := spec.Object.DescribedObject
		return fmt.Sprintf("metric %s of %s %s", spec.Object.Metric.Name, object.Kind, object.Name)
	case autoscalingv2.ExternalMetricSourceType:
		return "external metric " + spec.External.Metric.Name
	}
	return "metric"
}

// ofResource evaluates the usage of a resource, of whole pods or of one container of each.
func (s *situation) ofResource(name corev1.ResourceName, container string, target autoscalingv2.MetricTarget,
	r *reading) (p proposal, err error) {
	var current autoscalingv2.MetricValueStatus
	switch {
	case target.AverageValue != nil:
		p.name = string(name) + " resource"
		p.replicas, current, err = s.byPods(r.pods, name, usage{target.AverageValue.MilliValue(), formatOf(name)})
	case target.AverageUtilization != nil:
		of := ""
		if container != "" {
			of = "container "
		}
		p.name = fmt.Sprintf("%s %sresource utilization (percentage of request)", name, of)
		p.replicas, current, err = s.byPods(r.pods, name,
			utilization{*target.AverageUtilization, formatOf(name), s.pods,
				name, container})
	default:
		err = fmt.Errorf("neither an average utilization nor an average value is set as the target")
	}
	if container != "" {
		p.status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: name, Container: container,
			Current: current}
	} else {
		p.status.Resource = &autoscalingv2.ResourceMetricStatus{Name: name, Current: current}
	}
	return p, err
}

// ofPods evaluates a metric that each pod has.
func (s *situation) ofPods(spec *autoscalingv2.PodsMetricSource, r *reading) (p proposal, err error) {
	p.name = "pods metric " + spec.Metric.Name
	p.status.Pods = &autoscalingv2.PodsMetricStatus{Metric: spec.Metric}
	p.replicas, p.status.Pods.Current, err = s.byPods(r.pods, "", usage{spec.Target.AverageValue.MilliValue(),
		resource.DecimalSI})
	return p, err
}

// ofObject evaluates a metric that one object has.
func (s *situation) ofObject(spec *autoscalingv2.ObjectMetricSource, r *reading) (p proposal, err error) {
	p.name = spec.DescribedObject.Kind + " metric " + spec.Metric.Name
	status := &autoscalingv2.ObjectMetricStatus{Metric: spec.Metric, DescribedObject: spec.DescribedObject}
	p.status.Object = status
	switch t := spec.Target; {
	case t.Type == autoscalingv2.ValueMetricType && t.Value != nil:
		p.replicas, status.Current, err = s.byValue(r.total, t.Value.MilliValue())
	case t.Type == autoscalingv2.AverageValueMetricType && t.AverageValue != nil:
		p.replicas, status.Current = s.byShare(r.total, t.AverageValue.MilliValue())
	default:
		err = fmt.Errorf("neither a value nor an average value is set as the target")
	}
	return p, err
}

// ofExternal evaluates a metric of something outside of the cluster: the sum of all its series.
func (s *situation) ofExternal(spec *autoscalingv2.ExternalMetricSource, r *reading) (p proposal, err error) {
	p.name = fmt.Sprintf("external metric %s(%+v)", spec.Metric.Name, spec.Metric.Selector)
	status := &autoscalingv2.ExternalMetricStatus{Metric: spec.Metric}
	p.status.External = status
	switch t := spec.Target; {
	case t.AverageValue != nil:
		p.replicas, status.Current = s.byShare(r.total, t.AverageValue.MilliValue())
	case t.Value != nil:
		p.replicas, status.Current, err = s.byValue(r.total, t.Value.MilliValue())
	default:
		err = fmt.Errorf("neither a value nor an average value is set as the target")
	}
	return p, err
}
