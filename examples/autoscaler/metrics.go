package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// What do the metrics say?
//
// Three APIs serve metrics, each by a server of its own behind the API server: metrics.k8s.io for the usage of pods,
// custom.metrics.k8s.io for metrics of pods and of other objects, external.metrics.k8s.io for all else. The types here
// have only the fields that are read; they fit each version of these APIs.

// sample is a measured value of one pod, in thousandths.
type sample struct {
	value  int64
	at     time.Time     // the end of the window
	window time.Duration // in which it was measured
}

// reading is what one metric was.
type reading struct {
	pods  map[string]sample // by name, for metrics of pods
	total int64             // for others, in thousandths
	err   error
}

// meter reads metrics.
type meter struct {
	client    rest.Interface
	directory *directory
	timeout   time.Duration // of one request: a server that hangs must not keep the workers
}

// read reads one metric of an HPA.
func (m *meter) read(ctx context.Context, namespace string, spec *autoscalingv2.MetricSpec,
	pods labels.Selector) (r reading) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.timeout, fmt.Errorf("no answer within %v", m.timeout))
	defer cancel()
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType:
		r.pods, r.err = m.usage(ctx, namespace, pods, spec.Resource.Name, "")
	case autoscalingv2.ContainerResourceMetricSourceType:
		r.pods, r.err = m.usage(ctx, namespace, pods, spec.ContainerResource.Name, spec.ContainerResource.Container)
	case autoscalingv2.PodsMetricSourceType:
		r.pods, r.err = m.ofPods(ctx, namespace, pods, spec.Pods.Metric)
	case autoscalingv2.ObjectMetricSourceType:
		r.total, r.err = m.ofObject(ctx, namespace, spec.Object)
	case autoscalingv2.ExternalMetricSourceType:
		r.total, r.err = m.external(ctx, namespace, spec.External.Metric)
	}
	return r
}

// podMetricsList is a PodMetricsList of metrics.k8s.io.
type podMetricsList struct {
	Items []struct {
		Metadata   struct{ Name string }
		Timestamp  metav1.Time
		Window     metav1.Duration
		Containers []struct {
			Name  string
			Usage map[corev1.ResourceName]resource.Quantity
		}
	}
}

// usage reads how much of a resource pods use, or one container of each. A pod without a value for all of its
// containers has no sample.
func (m *meter) usage(ctx context.Context, namespace string, pods labels.Selector, name corev1.ResourceName,
	container string) (map[string]sample, error) {
	const api = "metrics.k8s.io"
	var list podMetricsList
	err := m.get(ctx, &list, api, map[string]string{"labelSelector": pods.String()}, "v1beta1", "namespaces", namespace,
		"pods")
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, nothingFrom(api)
	}
	samples := map[string]sample{}
	for _, item := range list.Items {
		total, complete := int64(0), false
		for _, c := range item.Containers {
			if container != "" && container != c.Name {
				continue
			}
			value, ok := c.Usage[name]
			complete = ok
			if !ok {
				break
			}
			total += value.MilliValue()
		}
		if complete {
			samples[item.Metadata.Name] = sample{total, item.Timestamp.Time, item.Window.Duration}
		}
	}
	return samples, nil
}

const customAPI = "custom.metrics.k8s.io"

// customMetricsList is a MetricValueList of custom.metrics.k8s.io.
type customMetricsList struct {
	Items []struct {
		DescribedObject struct{ Name string }
		Timestamp       metav1.Time
		WindowSeconds   *int64 // in v1beta2
		Window          *int64 // in v1beta1
		Value           resource.Quantity
	}
}

// ofPods reads a metric that each pod has.
func (m *meter) ofPods(ctx context.Context, namespace string, pods labels.Selector,
	metric autoscalingv2.MetricIdentifier) (map[string]sample, error) {
	list, err := m.custom(ctx, metric, pods, "namespaces", namespace, "pods", "*", metric.Name)
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, nothingFrom(customAPI)
	}
	samples := map[string]sample{}
	for _, item := range list.Items {
		window := time.Minute
		for _, seconds := range []*int64{item.WindowSeconds, item.Window} {
			if seconds != nil {
				window = time.Duration(*seconds) * time.Second
			}
		}
		samples[item.DescribedObject.Name] = sample{item.Value.MilliValue(), item.Timestamp.Time, window}
	}
	return samples, nil
}

// ofObject reads a metric that one object has. An HPA sees no other namespace than its own.
func (m *meter) ofObject(ctx context.Context, namespace string, source *autoscalingv2.ObjectMetricSource) (int64,
	error) {
	kind := schema.FromAPIVersionAndKind(source.DescribedObject.APIVersion, source.DescribedObject.Kind).GroupKind()
	where := []string{"namespaces", namespace, "metrics", source.Metric.Name}
	if kind != (schema.GroupKind{Kind: "Namespace"}) {
		resources, err := m.directory.resources(ctx, kind)
		if err != nil {
			return 0, err
		}
		where = []string{"namespaces", namespace, resources[0].GroupResource().String(), source.DescribedObject.Name,
			source.Metric.Name}
	}
	list, err := m.custom(ctx, source.Metric, nil, where...)
	if err != nil {
		return 0, err
	}
	if n := len(list.Items); n != 1 {
		return 0, fmt.Errorf("the custom metrics API (%s) answers with %d values for one object", customAPI, n)
	}
	return list.Items[0].Value.MilliValue(), nil
}

func (m *meter) custom(ctx context.Context, metric autoscalingv2.MetricIdentifier, pods labels.Selector,
	where ...string) (list customMetricsList, err error) {
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		return list, err
	}
	version, err := m.directory.customVersion(ctx, m.get)
	if err != nil {
		return list, err
	}
	query := map[string]string{"metricLabelSelector": selector.String()}
	if pods != nil {
		query["labelSelector"] = pods.String()
	}
	return list, m.get(ctx, &list, customAPI, query, append([]string{version}, where...)...)
}

// externalMetricsList is an ExternalMetricValueList of external.metrics.k8s.io.
type externalMetricsList struct {
	Items []struct{ Value resource.Quantity }
}

// external reads a metric of something outside of the cluster: the sum of its series.
func (m *meter) external(ctx context.Context, namespace string, metric autoscalingv2.MetricIdentifier) (total int64,
	err error) {
	const api = "external.metrics.k8s.io"
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		return 0, err
	}
	var list externalMetricsList
	err = m.get(ctx, &list, api, map[string]string{"labelSelector": selector.String()}, "v1beta1", "namespaces",
		namespace, metric.Name)
	if err != nil {
		return 0, err
	}
	if len(list.Items) == 0 {
		return 0, nothingFrom(api)
	}
	for _, item := range list.Items {
		value := item.Value.MilliValue()
		if value > 0 && total > math.MaxInt64-value {
			return math.MaxInt64, nil
		}
		total += value
	}
	return total, nil
}

func nothingFrom(api string) error { return fmt.Errorf("no metrics returned from %s", api) }

// get makes one request to an API, and decodes the answer.
func (m *meter) get(ctx context.Context, into any, api string, query map[string]string, where ...string) error {
	q := m.client.Get().AbsPath("/apis", api, path.Join(where...)).SetHeader("Accept", runtime.ContentTypeJSON).
		Timeout(0).MaxRetries(0) // the end of ctx is the timeout, and the next look is the next try
	for name, value := range query {
		if value != "" {
			q.Param(name, value)
		}
	}
	body, err := q.Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("unable to fetch metrics from %s: %w", api, err)
	}
	return nil
}

// customVersion returns the version of custom.metrics.k8s.io to ask for: the one that its server prefers.
func (d *directory) customVersion(ctx context.Context, get func(ctx context.Context, into any, api string,
	query map[string]string, where ...string) error) (string, error) {
	d.mu.Lock()
	d.refresh(ctx)
	version := d.custom
	d.mu.Unlock()
	if version != "" {
		return version, nil
	}
	var group metav1.APIGroup
	if err := get(ctx, &group, customAPI, nil); err != nil {
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("no custom metrics API (%s) registered", customAPI)
		}
		return "", err
	}
	known := []string{"v1beta2", "v1beta1"}
	if slices.Contains(known, group.PreferredVersion.Version) {
		version = group.PreferredVersion.Version
	} else {
		for _, v := range group.Versions {
			if slices.Contains(known, v.Version) {
				version = v.Version
				break
			}
		}
	}
	if version == "" {
		return "", errors.New("the custom metrics API has no version that is known here: " + customAPI)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.custom = version
	return version, nil
}
