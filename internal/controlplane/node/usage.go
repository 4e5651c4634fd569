package node

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// sampleWindow is the time over which a sample of metrics.k8s.io is said to be the average. A HorizontalPodAutoscaler
// controller ignores the CPU usage of a new pod until the pod has been ready for that long, so it is short.
const sampleWindow = time.Second

const usageAnnotation = "standin/usage"

// sampleOf returns what metrics.k8s.io says about a pod: the usage that its annotations give its containers. There is
// no sample (nil) of a pod that does not run, or that has no such annotation.
func sampleOf(pod *corev1.Pod, now time.Time) (*v1beta1.PodMetrics, error) {
	if pod.Status.Phase != corev1.PodRunning {
		return nil, nil
	}
	sample := &v1beta1.PodMetrics{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "PodMetrics"},
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels,
			CreationTimestamp: metav1.NewTime(now)},
		Timestamp: metav1.NewTime(now),
		Window:    metav1.Duration{Duration: sampleWindow},
	}
	for _, c := range pod.Spec.Containers {
		name := usageAnnotation + "." + c.Name
		text, ok := pod.Annotations[name]
		if !ok {
			name = usageAnnotation
			if text, ok = pod.Annotations[name]; !ok {
				continue
			}
		}
		usage, err := parseUsage(text)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", name, err)
		}
		sample.Containers = append(sample.Containers, v1beta1.ContainerMetrics{Name: c.Name, Usage: usage})
	}
	if len(sample.Containers) == 0 {
		return nil, nil
	}
	return sample, nil
}

// parseUsage reads a usage such as "cpu=250m,memory=64Mi".
func parseUsage(text string) (corev1.ResourceList, error) {
	usage := corev1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		quantity, err := resource.ParseQuantity(value)
		if !ok || name == "" || err != nil || quantity.Sign() < 0 {
			return nil, fmt.Errorf("%q is no usage; say something like cpu=250m,memory=64Mi", text)
		}
		usage[corev1.ResourceName(name)] = quantity
	}
	return usage, nil
}
