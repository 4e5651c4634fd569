package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach"
	"k8s.io/kubernetes/pkg/volume"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// diskOf is a PersistentVolume.
func diskOf(name, policy string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 2Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: %s
  storageClassName: manual
  csi: {driver: disks.example.com, volumeHandle: %s}
---
`, name, policy, name)
}

func claimOf(name, class, size string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: default}
spec:
  storageClassName: %s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: %s}}
---
`, name, class, size)
}

// podWith is a pod with a volume.
func podWith(name, volume string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, labels: {app: %s}}
spec:
  containers: [{name: c, image: one}]
  volumes: [{name: data, %s}]
---
`, name, name, volume)
}

func TestPersistentVolumeBinder(t *testing.T) {
	check(t, names.PersistentVolumeBinderController, reconciletest.Scenario{
		World: &reconciletest.World{Except: []string{"persistentvolumeclaims"}},
		Steps: append(reconciletest.ApplyYAML(diskOf("one", "Retain")+claimOf("data", "manual", "1Gi")+
			claimOf("late", "manual", "1Gi"), diskOf("two", "Retain")),
			reconciletest.Delete("persistentvolumeclaims", "default", "data")),
		Settled: func(s *reconciletest.Server) error {
			one, err := there[*corev1.PersistentVolume](s, "persistentvolumes", "", "one")
			two, err2 := there[*corev1.PersistentVolume](s, "persistentvolumes", "", "two")
			late, err3 := there[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", "late")
			if err := errors.Join(err, err2, err3); err != nil {
				return err
			}
			bound := one
			if late.Spec.VolumeName == "two" {
				bound = two
			}
			return errors.Join(want("the claim", late.Status.Phase, "Bound"),
				want("its volume", bound.Status.Phase, "Bound"))
		},
		Mask: func(o *unstructured.Unstructured) { // which volume depends on which was free
			for _, path := range []string{"claimRef", "volumeName"} {
				unstructured.RemoveNestedField(o.Object, "spec", path)
			}
			unstructured.RemoveNestedField(o.Object, "status")
		},
	})
}

func TestPersistentVolumeProtection(t *testing.T) {
	release := reconciletest.StepFunc("the volume is bound", func(ctx context.Context, cfg *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(cfg).CoreV1().PersistentVolumes()
		v, err := client.Get(ctx, "used", metav1.GetOptions{})
		if err != nil {
			return err
		}
		v.Status.Phase = corev1.VolumeBound
		_, err = client.UpdateStatus(ctx, v, metav1.UpdateOptions{})
		return err
	})
	check(t, names.PersistentVolumeProtectionController, reconciletest.Scenario{
		Server: reconciletest.Options{CollectAfter: never},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(diskOf("free", "Retain") + diskOf("used", "Retain"))[0],
			release, reconciletest.Delete("persistentvolumes", "", "free"),
			reconciletest.Delete("persistentvolumes", "", "used")},
		Settled: func(s *reconciletest.Server) error {
			v, err := there[*corev1.PersistentVolume](s, "persistentvolumes", "", "used")
			if err != nil {
				return err
			}
			return errors.Join(gone[*corev1.PersistentVolume](s, "persistentvolumes", "", "free"),
				want("finalizers", v.Finalizers, []string{"kubernetes.io/pv-protection"}))
		},
	})
}

func TestPersistentVolumeClaimProtection(t *testing.T) {
	check(t, names.PersistentVolumeClaimProtectionController, reconciletest.Scenario{
		Server: reconciletest.Options{CollectAfter: never},
		World:  &reconciletest.World{},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(claimOf("data", "manual", "1Gi") +
			claimOf("kept", "manual", "1Gi") + podWith("user", "persistentVolumeClaim: {claimName: data}"))[0],
			reconciletest.Delete("persistentvolumeclaims", "default", "data"), // which has to wait for the pod
			reconciletest.Delete("pods", "default", "user")},
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", "kept")
			if err != nil {
				return err
			}
			return errors.Join(gone[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", "data"),
				want("finalizers", c.Finalizers, []string{"kubernetes.io/pvc-protection"}))
		},
	})
}

func TestVolumeAttributesClassProtection(t *testing.T) {
	of := func(name string) string {
		return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: %s}
driverName: disks.example.com
parameters: {iops: "100"}
---
`, name)
	}
	const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec:
  storageClassName: manual
  volumeAttributesClassName: used
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`
	check(t, names.VolumeAttributesClassProtectionController, reconciletest.Scenario{
		Server: reconciletest.Options{CollectAfter: never},
		Beside: []func(context.Context, *rest.Config) error{
			manager(names.PersistentVolumeClaimProtectionController, nil)},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(of("free") + of("used") + of("kept") + claim)[0],
			reconciletest.Delete("volumeattributesclasses", "", "used"), // which has to wait
			reconciletest.Delete("volumeattributesclasses", "", "free")},
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"used", "kept"} {
				c, err := there[*storagev1.VolumeAttributesClass](s, "volumeattributesclasses", "", name)
				if err != nil {
					return err
				}
				if err := want(name, c.Finalizers, []string{"kubernetes.io/vac-protection"}); err != nil {
					return err
				}
			}
			return gone[*storagev1.VolumeAttributesClass](s, "volumeattributesclasses", "", "free")
		},
	})
}

func TestEphemeralVolume(t *testing.T) {
	const volume = "ephemeral: {volumeClaimTemplate: {spec: {storageClassName: manual, " +
		"accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}"
	check(t, names.EphemeralVolumeController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(podWith("one", volume)+podWith("old", volume), podWith("two", volume)),
			reconciletest.Delete("pods", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"one", "two"} {
				pod, err := there[*corev1.Pod](s, "pods", "default", name)
				claim, none := there[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default",
					name+"-data")
				if err := errors.Join(err, none); err != nil {
					return err
				}
				if !metav1.IsControlledBy(claim, pod) || !ready(pod) {
					return fmt.Errorf("the pod %s has no claim of its own, or is not ready", name)
				}
			}
			return gone[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", "old-data")
		},
	})
}

func TestPersistentVolumeExpander(t *testing.T) {
	const class = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: legacy}
provisioner: kubernetes.io/gce-pd
allowVolumeExpansion: true
`
	const disk = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: one, annotations: {pv.kubernetes.io/provisioned-by: kubernetes.io/gce-pd}}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: legacy
  claimRef: {namespace: default, name: data}
  gcePersistentDisk: {pdName: one}
---
`
	bound := reconciletest.StepFunc("the claim is bound", func(ctx context.Context, cfg *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(cfg).CoreV1().PersistentVolumeClaims("default")
		c, err := client.Get(ctx, "data", metav1.GetOptions{})
		if err != nil {
			return err
		}
		volumes := kubernetes.NewForConfigOrDie(cfg).CoreV1().PersistentVolumes()
		v, err := volumes.Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			return err
		}
		v.Spec.ClaimRef.UID = c.UID
		if _, err := volumes.Update(ctx, v, metav1.UpdateOptions{}); err != nil {
			return err
		}
		c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, c.Spec.Resources.Requests
		_, err = client.UpdateStatus(ctx, c, metav1.UpdateOptions{})
		return err
	})
	claim := func(size string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  namespace: default
  annotations: {volume.kubernetes.io/storage-provisioner: kubernetes.io/gce-pd}
spec:
  storageClassName: legacy
  volumeName: one
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: %s}}
---
`, size)
	}
	check(t, names.PersistentVolumeExpanderController, reconciletest.Scenario{
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(disk + claim("1Gi") + "---" + class)[0], bound,
			reconciletest.StepFunc("more is asked for", func(ctx context.Context, cfg *rest.Config) error {
				claims := kubernetes.NewForConfigOrDie(cfg).CoreV1().PersistentVolumeClaims("default")
				_, err := claims.Patch(ctx, "data", types.MergePatchType,
					[]byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`), metav1.PatchOptions{})
				return err
			})},
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", "data")
			if err != nil {
				return err
			}
			return want("who resizes", c.Annotations["volume.kubernetes.io/storage-resizer"], "pd.csi.storage.gke.io")
		},
	})
}

// noPlugins stands in for what looks for Flexvolume drivers in a directory: that waits for the operating system.
type noPlugins struct{}

func (noPlugins) Init() error                         { return nil }
func (noPlugins) Probe() ([]volume.ProbeEvent, error) { return nil, nil }

// newAttachDetach is that of package app, without Flexvolume.
func newAttachDetach(ctx context.Context, with app.ControllerContext, name string) (app.Controller, error) {
	plugins, err := app.ProbeAttachableVolumePlugins(klog.FromContext(ctx),
		with.ComponentConfig.PersistentVolumeBinderController.VolumeConfiguration)
	if err != nil {
		return nil, err
	}
	client, err := with.NewClient("attachdetach-controller")
	if err != nil {
		return nil, err
	}
	core, storage := with.InformerFactory.Core().V1(), with.InformerFactory.Storage().V1()
	o := with.ComponentConfig.AttachDetachController
	c, err := attachdetach.NewAttachDetachController(ctx, client, core.Pods(), core.Nodes(),
		core.PersistentVolumeClaims(), core.PersistentVolumes(), storage.CSINodes(), storage.CSIDrivers(),
		storage.VolumeAttachments(), plugins, noPlugins{}, o.DisableAttachDetachReconcilerSync,
		o.ReconcilerSyncLoopPeriod.Duration, o.DisableForceDetachOnTimeout, attachdetach.DefaultTimerConfig)
	return loop{name, func(ctx context.Context) { c.Run(ctx) }}, err
}

// loop is a controller that a function runs.
type loop struct {
	name string
	run  func(context.Context)
}

func (l loop) Name() string            { return l.name }
func (l loop) Run(ctx context.Context) { l.run(ctx) }

// attaches is the driver: it says of each VolumeAttachment that it is attached.
func attaches(ctx context.Context, cfg *rest.Config) error {
	client := kubernetes.NewForConfigOrDie(cfg).StorageV1().VolumeAttachments()
	w, err := client.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if a, ok := e.Object.(*storagev1.VolumeAttachment); ok && !a.Status.Attached && a.DeletionTimestamp == nil {
			a.Status.Attached = true
			_, _ = client.UpdateStatus(ctx, a, metav1.UpdateOptions{})
		}
	}
	<-ctx.Done()
	return nil
}

func TestAttachDetach(t *testing.T) {
	const driver = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disks.example.com}
spec: {attachRequired: true}
---
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: node}
spec: {drivers: [{name: disks.example.com, nodeID: node, topologyKeys: []}]}
---
apiVersion: v1
kind: Node
metadata: {name: node, annotations: {volumes.kubernetes.io/controller-managed-attach-detach: "true"}}
---
`
	check(t, names.PersistentVolumeAttachDetachController, reconciletest.Scenario{
		World:  &reconciletest.World{},
		Beside: []func(context.Context, *rest.Config) error{attaches},
		Steps: append(reconciletest.ApplyYAML(driver+diskOf("one", "Retain")+diskOf("two", "Retain")+
			withVolume(claimOf("one", "manual", "1Gi"), "one")+withVolume(claimOf("two", "manual", "1Gi"), "two")+
			podWith("one", "persistentVolumeClaim: {claimName: one}")+
			podWith("two", "persistentVolumeClaim: {claimName: two}")),
			reconciletest.Delete("pods", "default", "two")),
		Settled: func(s *reconciletest.Server) error {
			var attached []string
			for _, a := range reconciletest.List[*storagev1.VolumeAttachment](s, "volumeattachments", "") {
				attached = append(attached, *a.Spec.Source.PersistentVolumeName)
			}
			slices.Sort(attached)
			return want("attached", attached, []string{"one"})
		},
	})
}

// withVolume gives a claim its volume.
func withVolume(claim, name string) string {
	return fmt.Sprintf("%s  volumeName: %s\n---\n", claim[:len(claim)-len("---\n")], name)
}

func TestResourceClaim(t *testing.T) {
	const template = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu, namespace: default}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpus}}]}}}
---
`
	of := func(name string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  containers: [{name: c, image: one, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
---
`, name)
	}
	check(t, names.ResourceClaimController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(template+of("one")+of("old"), of("two")),
			reconciletest.Delete("pods", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			var owners []string
			for _, c := range reconciletest.List[*resourcev1.ResourceClaim](s, "resourceclaims", "default") {
				pod, err := there[*corev1.Pod](s, "pods", "default", c.OwnerReferences[0].Name)
				if err != nil {
					return err
				}
				if len(pod.Status.ResourceClaimStatuses) != 1 ||
					*pod.Status.ResourceClaimStatuses[0].ResourceClaimName != c.Name {
					return fmt.Errorf("the pod %s does not name %s", pod.Name, c.Name)
				}
				owners = append(owners, pod.Name)
			}
			slices.Sort(owners)
			return want("claims of", owners, []string{"one", "two"})
		},
	})
}

const gpus = `
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-gpus}
spec:
  driver: gpus.example.com
  nodeName: node
  pool: {name: node, generation: 1, resourceSliceCount: 1}
  devices: [{name: a}, {name: b}]
---
`

// claimed is a pod with a ResourceClaim.
func claimed(name string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s, namespace: default}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpus}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  containers: [{name: c, image: one, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: %s}]
---
`, name, name, name)
}

// allocate is what the scheduler does: each claim gets the device of its name.
func allocate(ctx context.Context, cfg *rest.Config) error {
	client := kubernetes.NewForConfigOrDie(cfg)
	for _, name := range []string{"a", "b"} {
		c, err := client.ResourceV1().ResourceClaims("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "gpus.example.com",
				Pool: "node", Device: name}}}}
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name,
			UID: pod.UID}}
		if _, err := client.ResourceV1().ResourceClaims("default").UpdateStatus(ctx, c,
			metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func TestDeviceTaintEviction(t *testing.T) {
	const taint = `
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: broken}
spec:
  deviceSelector: {driver: gpus.example.com, pool: node, device: a}
  taint: {key: example.com/broken, effect: NoExecute}
`
	check(t, names.DeviceTaintEvictionController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(gpus + claimed("a") + claimed("b"))[0],
			reconciletest.StepFunc("devices are allocated", allocate), reconciletest.ApplyYAML(taint)[0]},
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*corev1.Pod](s, "pods", "default", "b")
			return errors.Join(err, gone[*corev1.Pod](s, "pods", "default", "a"))
		},
	})
}
