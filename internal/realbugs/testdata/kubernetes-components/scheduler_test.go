package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestSchedulerPreemption: a pod takes the place of one with a lower priority, until it goes.
func TestSchedulerPreemption(t *testing.T) {
	class := func(name string, value int) string {
		return fmt.Sprintf(`
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: %s}
value: %d
---
`, name, value)
	}
	const low = `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: low, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: low}}
  template:
    metadata: {labels: {app: low}}
    spec:
      schedulerName: batch-scheduler
      priorityClassName: low
      priority: 10
      nodeSelector: {pool: a}
      containers: [{name: c, image: "i:1", resources: {requests: {cpu: "1", memory: 100Mi}}}]
---
`
	const high = `
apiVersion: v1
kind: Pod
metadata: {name: high, namespace: default}
spec:
  schedulerName: batch-scheduler
  priorityClassName: high
  priority: 1000
  nodeSelector: {pool: a}
  containers: [{name: c, image: "i:1", resources: {requests: {cpu: "1", memory: 100Mi}}}]
---
`
	check(t, nil, reconciletest.Scenario{
		Run: schedules, World: &reconciletest.World{},
		Beside: []func(context.Context, *rest.Config) error{kubelets},
		Steps: append(reconciletest.ApplyYAML(class("low", 10)+class("high", 1000)+nodeOf("first", "a")+low, high),
			reconciletest.Delete("pods", "default", "high")),
		Settled: func(s *reconciletest.Server) error {
			pods := reconciletest.List[*corev1.Pod](s, "pods", "default")
			errs := []error{want("pods", len(pods), 2)}
			for _, p := range pods {
				errs = append(errs, want("node of "+p.Name, p.Spec.NodeName, "first"))
			}
			return errors.Join(errs...)
		},
	})
}

// releases stands in for the controller of ResourceClaims, which takes the devices of pods that are gone back.
func releases(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	for {
		// What fails is tried again in the next round.
		if pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); err == nil {
			claims, err := client.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(claims.Items); i++ {
				_ = release(ctx, client, &claims.Items[i], pods.Items)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}

// release takes from a claim the pods that are gone, and its devices with the last of them.
func release(ctx context.Context, client kubernetes.Interface, c *resourcev1.ResourceClaim, pods []corev1.Pod) error {
	users := slices.Clone(c.Status.ReservedFor)
	users = slices.DeleteFunc(users, func(r resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == r.UID })
	})
	claims := client.ResourceV1().ResourceClaims(c.Namespace)
	if len(users) == len(c.Status.ReservedFor) && (c.DeletionTimestamp == nil || len(users) > 0) {
		return nil
	}
	if len(users) < len(c.Status.ReservedFor) || c.Status.Allocation != nil {
		if c.Status.ReservedFor = users; len(users) == 0 {
			c.Status.Allocation = nil
		}
		var err error
		if c, err = claims.UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if i := slices.Index(c.Finalizers, resourcev1.Finalizer); i >= 0 && c.Status.Allocation == nil {
		c.Finalizers = slices.Delete(c.Finalizers, i, i+1)
		_, err := claims.Update(ctx, c, metav1.UpdateOptions{})
		return err
	}
	return nil
}

// TestSchedulerDevices: a pod and its claim wait for a device, which a node gets later, and others for another node.
func TestSchedulerDevices(t *testing.T) {
	const class = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: devices}
spec: {selectors: [{cel: {expression: device.driver == "devices.example.com"}}]}
---
`
	published := func(node string, generation int, kinds ...string) string {
		text := fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: of-%[1]s}
spec:
  driver: devices.example.com
  nodeName: %[1]s
  pool: {name: %[1]s, generation: %[2]d, resourceSliceCount: 1}
  devices:
`, node, generation)
		for _, kind := range kinds {
			text += fmt.Sprintf("  - {name: %[1]s-0, attributes: {kind: {string: %[1]s}}}\n", kind)
		}
		return text + "---\n"
	}
	asks := func(name, kind string) string {
		return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %[1]s, namespace: default}
spec:
  devices:
    requests:
    - name: device
      exactly:
        deviceClassName: devices
        selectors: [{cel: {expression: 'device.attributes["devices.example.com"].kind == "%[2]s"'}}]
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec:
  schedulerName: batch-scheduler
  containers: [{name: c, image: "i:1", resources: {claims: [{name: device}]}}]
  resourceClaims: [{name: device, resourceClaimName: %[1]s}]
---
`, name, kind)
	}
	check(t, nil, reconciletest.Scenario{
		Run: schedules, World: &reconciletest.World{},
		Beside: []func(context.Context, *rest.Config) error{kubelets, releases},
		Steps: reconciletest.ApplyYAML(class+nodeOf("first", "a")+published("first", 1, "gpu")+asks("one", "gpu")+
			asks("two", "nic"), published("first", 2, "gpu", "nic"),
			nodeOf("second", "b")+published("second", 1, "disk")+asks("three", "disk")),
		Settled: func(s *reconciletest.Server) error {
			for name, at := range map[string][]string{"one": {"first", "gpu-0"}, "two": {"first", "nic-0"},
				"three": {"second", "disk-0"}} {
				p, err := there[*corev1.Pod](s, "pods", "default", name)
				c, err2 := there[*resourcev1.ResourceClaim](s, "resourceclaims", "default", name)
				if err := errors.Join(err, err2); err != nil {
					return err
				}
				if c.Status.Allocation == nil || len(c.Status.Allocation.Devices.Results) != 1 {
					return fmt.Errorf("%s has no device", name)
				}
				is := []string{p.Spec.NodeName, c.Status.Allocation.Devices.Results[0].Device}
				if err := errors.Join(want("users of "+name, len(c.Status.ReservedFor), 1),
					want("node and device of "+name, is, at)); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
