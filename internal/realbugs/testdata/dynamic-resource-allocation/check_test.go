// Package check runs the controller of ResourceSlices of Kubernetes' library for drivers of devices, in a driver of
// devices that all nodes reach, which has them from a ConfigMap. So the slices belong to no node.
package check

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// resources are the devices of the pools that a ConfigMap lists.
func resources(listed *corev1.ConfigMap) *resourceslice.DriverResources {
	r := &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	for pool, names := range listed.Data {
		var devices []resourcev1.Device
		for _, name := range strings.Fields(names) {
			devices = append(devices, resourcev1.Device{Name: name})
		}
		r.Pools[pool] = resourceslice.Pool{AllNodes: true, Slices: []resourceslice.Slice{{Devices: devices}}}
	}
	return r
}

// later is the queue of the controller, in which a key comes a little later than it is due, as with a real clock: the
// controller asks again at once until its time is over, and virtual time does not pass meanwhile.
type later struct {
	workqueue.TypedRateLimitingInterface[string]
}

func (l later) AddAfter(key string, d time.Duration) {
	l.TypedRateLimitingInterface.AddAfter(key, d+time.Millisecond)
}

// run is the driver: it publishes what the ConfigMap devices lists, as soon as it has seen whether there is one.
func run(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", "devices").String()
		}))
	maps := factory.Core().V1().ConfigMaps()
	informer := maps.Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	listed, err := maps.Lister().ConfigMaps("default").Get("devices")
	if err != nil {
		listed = &corev1.ConfigMap{}
	}
	c, err := resourceslice.StartController(ctx, resourceslice.Options{DriverName: "devices.example.com",
		KubeClient: client, Resources: resources(listed), Queue: later{workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[string]())}})
	if err != nil {
		return err
	}
	defer c.Stop()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { c.Update(resources(o.(*corev1.ConfigMap))) },
		UpdateFunc: func(_, o any) { c.Update(resources(o.(*corev1.ConfigMap))) },
		DeleteFunc: func(any) { c.Update(nil) },
	}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// TestResourceSlices: devices come and go, and then a pool does. Nothing is switched off; no schedule begins after a
// minute.
func TestResourceSlices(t *testing.T) {
	of := func(data string) string {
		return `
apiVersion: v1
kind: ConfigMap
metadata: {name: devices, namespace: default}
data: {` + data + `}
---
`
	}
	reconciletest.Check(t, reconciletest.Scenario{
		Run:    run,
		Server: reconciletest.Options{Kinds: builtin.Kinds(), Namespaces: []string{"default"}},
		Limit:  time.Minute,
		Steps: reconciletest.ApplyYAML(of("gpus: gpu-0 gpu-1, nics: nic-0"), of("gpus: gpu-1 gpu-2, nics: nic-0"),
			of("gpus: gpu-1 gpu-2 gpu-3")),
		// A pool has a number, which counts its changes.
		Mask: func(o *unstructured.Unstructured) {
			if o.GetKind() == "ResourceSlice" {
				unstructured.RemoveNestedField(o.Object, "spec", "pool", "generation")
			}
		},
		Settled: func(s *reconciletest.Server) error {
			all := reconciletest.List[*resourcev1.ResourceSlice](s, "resourceslices", "")
			if err := want("slices", len(all), 1); err != nil {
				return err
			}
			var names []string
			for _, d := range all[0].Spec.Devices {
				names = append(names, d.Name)
			}
			slices.Sort(names)
			return errors.Join(want("pool", all[0].Spec.Pool.Name, "gpus"),
				want("devices", names, []string{"gpu-1", "gpu-2", "gpu-3"}))
		},
	})
}
