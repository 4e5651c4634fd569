// Package check runs the two controllers of the CSI sidecar external-resizer, each by itself, as its main does, with a
// driver outside.
package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubernetes-csi/external-resizer/v2/pkg/controller"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/modifier"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/modifycontroller"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/resizer"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

const driverName = "disks.example.com"

// driver is that of the volumes, in place of a connection by gRPC: outside are records of how large they are, and with
// which parameters.
type driver struct{}

func (driver) GetDriverName(context.Context) (string, error)                 { return driverName, nil }
func (driver) SupportsPluginControllerService(context.Context) (bool, error) { return true, nil }
func (driver) SupportsControllerResize(context.Context) (bool, error)        { return true, nil }
func (driver) SupportsNodeResize(context.Context) (bool, error)              { return false, nil }
func (driver) SupportsControllerModify(context.Context) (bool, error)        { return true, nil }
func (driver) SupportsControllerSingleNodeMultiWriter(context.Context) (bool, error) {
	return false, nil
}
func (driver) CloseConnection() {}

func (driver) Expand(ctx context.Context, volume string, size int64, _ map[string]string,
	_ *csi.VolumeCapability) (int64, bool, error) {
	if err := ask(ctx, http.MethodPut, "/sizes/"+volume, size, nil); err != nil {
		return 0, false, status.Error(codes.Unavailable, err.Error())
	}
	return size, false, nil
}

func (driver) Modify(ctx context.Context, volume string, _, parameters map[string]string) error {
	if err := ask(ctx, http.MethodPut, "/parameters/"+volume, parameters, nil); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

const timeout, resync, longest = 10 * time.Second, 10 * time.Minute, 5 * time.Minute

func retry() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, longest)
}

func resize(ctx context.Context, cfg *rest.Config) error {
	client := kubernetes.NewForConfigOrDie(cfg)
	all := informers.NewSharedInformerFactory(client, resync)
	r, err := resizer.NewResizerFromClient(driver{}, timeout, client, driverName)
	if err != nil {
		return err
	}
	c := controller.NewResizeController(driverName, r, client, resync, all, retry(), true, longest)
	all.Start(ctx.Done())
	c.Run(10, ctx, nil)
	all.Shutdown()
	return nil
}

func modify(ctx context.Context, cfg *rest.Config) error {
	client := kubernetes.NewForConfigOrDie(cfg)
	all := informers.NewSharedInformerFactory(client, resync)
	m, err := modifier.NewModifierFromClient(driver{}, timeout, client, all, false, driverName)
	if err != nil {
		return err
	}
	c := modifycontroller.NewModifyController(driverName, m, client, resync, longest, false, all, retry())
	all.Start(ctx.Done())
	c.Run(10, ctx, nil)
	all.Shutdown()
	return nil
}

// diskOf is a volume of the driver for the claim of its name, with more of its spec.
func diskOf(name, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: disks
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: default, name: %s}
  csi: {driver: disks.example.com, volumeHandle: %s}
  %s
---
`, name, name, name, spec)
}

func claimOf(name, size, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: default}
spec:
  storageClassName: disks
  volumeName: %s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: %s}}
  %s
---
`, name, name, size, spec)
}

const class = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks}
provisioner: disks.example.com
allowVolumeExpansion: true
---
`

func TestResizer(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: resize, Outside: outside(nil), Limit: time.Minute,
		Beside: []func(context.Context, *rest.Config) error{binder},
		Server: reconciletest.Options{Kinds: builtin.Kinds()},
		Steps: reconciletest.ApplyYAML(class+diskOf("a", "")+claimOf("a", "1Gi", "")+diskOf("b", "")+
			claimOf("b", "1Gi", ""), claimOf("a", "2Gi", ""), claimOf("a", "4Gi", "")+claimOf("b", "3Gi", "")),
		Settled: func(s *reconciletest.Server) error {
			for name, size := range map[string]string{"a": "4Gi", "b": "3Gi"} {
				v, err := there[*corev1.PersistentVolume](s, "persistentvolumes", "", name)
				c, err2 := there[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", name)
				if err := errors.Join(err, err2); err != nil {
					return err
				}
				if err := errors.Join(want(name, v.Spec.Capacity.Storage(), size),
					want("claim "+name, c.Status.Capacity.Storage(), size),
					want("what is under way", len(c.Status.AllocatedResourceStatuses), 0)); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

func TestModifier(t *testing.T) {
	of := func(name, iops string) string {
		return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: %s}
driverName: disks.example.com
parameters: {iops: %q}
---
`, name, iops)
	}
	by := func(class string) string { return "volumeAttributesClassName: " + class }
	reconciletest.Check(t, reconciletest.Scenario{
		Run: modify, Outside: outside(nil), Limit: time.Minute,
		Beside: []func(context.Context, *rest.Config) error{binder},
		Server: reconciletest.Options{Kinds: builtin.Kinds()},
		Steps: append(reconciletest.ApplyYAML(class+of("silver", "100")+of("gold", "200")+
			diskOf("a", by("silver"))+claimOf("a", "1Gi", by("silver")), claimOf("a", "1Gi", by("gold")),
			claimOf("a", "1Gi", by("platinum")), of("platinum", "400")), reconciletest.Wait(15*time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			v, err := there[*corev1.PersistentVolume](s, "persistentvolumes", "", "a")
			c, err2 := there[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", "a")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			if v.Spec.VolumeAttributesClassName == nil || c.Status.CurrentVolumeAttributesClassName == nil {
				return errors.New("there is no class")
			}
			return errors.Join(want("the volume", *v.Spec.VolumeAttributesClassName, "platinum"),
				want("the claim", *c.Status.CurrentVolumeAttributesClassName, "platinum"))
		},
	})
}
