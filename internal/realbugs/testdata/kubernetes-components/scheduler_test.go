package check

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"

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

// claims is the controller of ResourceClaims. It takes the devices of pods that are gone back, and gives a pod that is
// bound its claim again, where the scheduler has not seen that it is.
func claims(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	c, err := resourceclaim.NewController(klog.FromContext(ctx), client, factory.Core().V1().Pods(),
		factory.Scheduling().V1beta1().PodGroups(), factory.Resource().V1().ResourceClaims(),
		factory.Resource().V1().ResourceClaimTemplates())
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	c.Run(ctx, 1)
	factory.Shutdown()
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
		Beside: []func(context.Context, *rest.Config) error{kubelets, claims},
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
