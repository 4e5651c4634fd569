package story

import (
	"context"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The HPA of the demo. Each pod of web.yaml asks for 100 thousandths of a CPU.
const (
	fewest, busiest = 3, 8
	target          = 70 // percent
	window          = 5 * time.Second
	// LookPeriod is how often the HPA controller looks, in place of each 15 s.
	LookPeriod = time.Second
)

// autoscale lets the load double and fall again, with a user in between who scales by hand.
func (d *demo) autoscale(ctx context.Context) (string, error) {
	hpas := d.client.HPAs.HorizontalPodAutoscalers(d.namespace)
	d.load = fewest * target
	defer func() { d.load = 0 }()
	if _, err := hpas.Create(ctx, hpa(), metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("create the HPA: %w", err)
	}
	d.load *= 2
	d.narrator.Line(fmt.Sprintf("      the load doubles: 3 pods at %d %% of their CPU", 2*target))
	grown, err := d.untilScaled(ctx, 2*fewest)
	if err != nil {
		return "", err
	}
	d.narrator.Line(fmt.Sprintf("      a user scales to %d by hand", busiest))
	if err := d.scale(ctx, busiest); err != nil {
		return "", err
	}
	undone, err := d.untilScaled(ctx, 2*fewest)
	if err != nil {
		return "", err
	}
	d.load /= 2
	d.narrator.Line(fmt.Sprintf("      the load falls: 6 pods at %d %% of their CPU", target/2))
	shrunk, err := d.untilScaled(ctx, fewest)
	if err != nil {
		return "", err
	}
	if least := window - 2*LookPeriod; shrunk < least {
		return "", fmt.Errorf("the Deployment shrank after %s, and its window is %s", Seconds(shrunk), window)
	}
	if err := hpas.Delete(ctx, app, metav1.DeleteOptions{}); err != nil {
		return "", fmt.Errorf("delete the HPA: %w", err)
	}
	return fmt.Sprintf("6 pods after %s; what was scaled by hand is taken back after %s; 3 pods %s after the load "+
			"fell, since the window of %s holds.", Seconds(grown), Seconds(undone), Seconds(shrunk), window),
		d.statusSays(ctx, 3)
}

// hpa is that of the Deployment.
func hpa() *autoscalingv2.HorizontalPodAutoscaler {
	least, percent, seconds := int32(fewest), int32(target), int32(window.Seconds())
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: app}}
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
		Name: app}
	h.Spec.MinReplicas, h.Spec.MaxReplicas = &least, busiest
	h.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
			Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}}}}
	h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &seconds}}
	return h
}

// untilScaled waits until the HPA has scaled the Deployment to n, and n pods are Ready.
func (d *demo) untilScaled(ctx context.Context, n int) (time.Duration, error) {
	return d.until(ctx, fmt.Sprintf("%d Ready pods", n), func(l look) bool {
		if !settled(n)(l) {
			return false
		}
		deployment, err := d.client.Apps.Deployments(d.namespace).Get(ctx, app, metav1.GetOptions{})
		return err == nil && *deployment.Spec.Replicas == int32(n)
	})
}

// spread gives each pod its share of the load, as a Service would. A pod may be gone by now.
func (d *demo) spread(ctx context.Context, l look) error {
	if d.load == 0 || len(l.owned) == 0 {
		return nil
	}
	usage := fmt.Sprintf("cpu=%dm", d.load/len(l.owned))
	for _, pod := range l.owned {
		if pod.Annotations[Usage] == usage {
			continue
		}
		_, err := d.client.Core.Pods(d.namespace).Patch(ctx, pod.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, Usage, usage), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
