package main

import (
	"errors"
	"fmt"
	"maps"
	"math"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// How many replicas does a metric come to?
//
// The formula is
//
//	replicas = ceil(pods x metric / target)
//
// and a ratio of metric and target close to 1 changes nothing. Values are in thousandths, as whole numbers. Two
// roundings are part of the behaviour: an average of pods is rounded down before it is compared with its target, and a
// utilization is rounded down to a whole percentage.

// byPods evaluates samples of pods.
//
// Pods without a sample, and pods that are not ready, only weaken a change. Where the others call for fewer pods, a pod
// without a sample is taken to use what it may, and where they call for more, nothing. A pod that is not ready counts
// only there, with nothing. If these pods turn the direction around, nothing changes.
func (s *situation) byPods(samples map[string]sample, of corev1.ResourceName, m measure) (int32,
	autoscalingv2.MetricValueStatus, error) {
	if len(s.pods) == 0 {
		return 0, autoscalingv2.MetricValueStatus{}, errNoPods
	}
	samples = maps.Clone(samples)
	ready, unready, missing := s.sortPods(samples, of)
	if len(samples) == 0 {
		return 0, autoscalingv2.MetricValueStatus{},
			errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	ratio, current, err := m.of(samples)
	if err != nil {
		return 0, current, err
	}
	countUnready := len(unready) > 0 && ratio > 1
	if !countUnready && len(missing) == 0 {
		if s.tolerated(ratio) {
			return s.wanted(), current, nil
		}
		return ceil(ratio * float64(ready)), current, nil
	}
	if countUnready {
		for _, pod := range unready {
			samples[pod] = sample{}
		}
	}
	for _, pod := range missing {
		switch {
		case ratio < 1:
			samples[pod] = sample{value: m.most(pod)}
		case ratio > 1:
			samples[pod] = sample{}
		}
	}
	careful, _, err := m.of(samples)
	if err != nil {
		return 0, current, err
	}
	n := ceil(careful * float64(len(samples)))
	switch {
	case s.tolerated(careful), ratio < 1 && careful > 1, ratio > 1 && careful < 1:
		return s.wanted(), current, nil
	case careful < 1 && n > s.wanted(), careful > 1 && n < s.wanted():
		return s.wanted(), current, nil
	}
	return n, current, nil
}

var errNoPods = errors.New("no pods returned by selector while calculating replica count")

// measure is how samples of pods are compared with a target.
type measure interface {
	// of returns the ratio of the samples and the target, and what the status says of the samples.
	of(samples map[string]sample) (float64, autoscalingv2.MetricValueStatus, error)
	// most returns what a pod without a sample may use at most, if fewer pods are called for.
	most(pod string) int64
}

// usage compares the average of the pods with a value.
type usage struct {
	target int64
	format resource.Format
}

func (u usage) of(samples map[string]sample) (float64, autoscalingv2.MetricValueStatus, error) {
	total := int64(0)
	for _, sample := range samples {
		total += sample.value
	}
	average := total / int64(len(samples))
	return float64(average) / float64(u.target), averageOf(average, u.format), nil
}

func (u usage) most(string) int64 { return u.target }

// utilization compares the usage of the pods, as a percentage of what they request, with a percentage.
type utilization struct {
	target    int32
	format    resource.Format
	pods      []podFacts
	resource  corev1.ResourceName
	container string // only this one; empty: the whole pods
}

func (u utilization) of(samples map[string]sample) (float64, autoscalingv2.MetricValueStatus, error) {
	used, requested, n := int64(0), int64(0), int64(0)
	for i := range u.pods {
		request, err := u.pods[i].request(u.resource, u.container)
		if err != nil {
			return 0, autoscalingv2.MetricValueStatus{}, err // even if there is no sample of this pod
		}
		if sample, ok := samples[u.pods[i].name]; ok {
			used, requested, n = used+sample.value, requested+request, n+1
		}
	}
	if requested == 0 {
		return 0, autoscalingv2.MetricValueStatus{}, errors.New("no metrics returned matched known pods")
	}
	percent := int32(min(used*100/requested, math.MaxInt32))
	status := averageOf(used/n, u.format)
	status.AverageUtilization = &percent
	return float64(percent) / float64(u.target), status, nil
}

func (u utilization) most(pod string) int64 {
	for i := range u.pods {
		if u.pods[i].name == pod {
			request, _ := u.pods[i].request(u.resource, u.container)
			return request * int64(max(100, u.target)) / 100
		}
	}
	return 0
}

// byValue compares one value with a target. Zero pods grow to as many as the value holds targets.
func (s *situation) byValue(value, target int64) (int32, autoscalingv2.MetricValueStatus, error) {
	current := autoscalingv2.MetricValueStatus{Value: resource.NewMilliQuantity(value, resource.DecimalSI)}
	ratio := float64(value) / float64(target)
	switch {
	case s.wanted() == 0:
		return ceil(ratio), current, nil
	case s.tolerated(ratio):
		return s.wanted(), current, nil
	case len(s.pods) == 0:
		return 0, current, fmt.Errorf("unable to calculate ready pods: %w", errNoPods)
	}
	ready := 0
	for i := range s.pods {
		if s.pods[i].runs() {
			ready++
		}
	}
	return ceil(ratio * float64(ready)), current, nil
}

// byShare compares the share that one replica has of a value with a target. The replicas are those that the target of
// the HPA reports; if there are none, the share is the value.
func (s *situation) byShare(value, target int64) (int32, autoscalingv2.MetricValueStatus) {
	replicas := s.scale.Status.Replicas
	share := value
	if replicas > 0 {
		share = int64(math.Ceil(float64(value) / float64(replicas)))
	}
	current := averageOf(share, resource.DecimalSI)
	if s.tolerated(float64(value) / (float64(target) * float64(replicas))) {
		return replicas, current
	}
	return ceil(float64(value) / float64(target)), current
}

func averageOf(value int64, format resource.Format) autoscalingv2.MetricValueStatus {
	return autoscalingv2.MetricValueStatus{AverageValue: resource.NewMilliQuantity(value, format)}
}

// formatOf is how the values of a resource are written: memory in Ki, Mi and Gi.
func formatOf(name corev1.ResourceName) resource.Format {
	if name == corev1.ResourceMemory {
		return resource.BinarySI
	}
	return resource.DecimalSI
}

// tolerated reports whether a ratio is so close to 1 that nothing changes. It is false for NaN, which is 0 of 0.
func (s *situation) tolerated(ratio float64) bool {
	down, up := s.tolerance, s.tolerance
	if b := s.hpa.Spec.Behavior; b != nil {
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
	}
	return 1-down <= ratio && ratio <= 1+up
}

// ceil rounds up, to at most the highest number of replicas that there is.
func ceil(replicas float64) int32 {
	return int32(math.Ceil(min(replicas, math.MaxInt32)))
}
