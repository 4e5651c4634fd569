// Package check runs the controller of the CSI sidecar external-attacher, as its main does, with a driver outside.
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
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	csitrans "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"github.com/kubernetes-csi/external-attacher/v4/pkg/controller"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

const driverName = "disks.example.com"

// driver is that of the volumes: outside is a record for each volume that is attached.
type driver struct{}

func path(volume, node string) string { return "/attached/" + volume + "-to-" + node }

func (driver) Attach(ctx context.Context, volume string, _ bool, node string, _ *csi.VolumeCapability,
	_, _ map[string]string) (map[string]string, bool, error) {
	if err := ask(ctx, http.MethodPut, path(volume, node), node, nil); err != nil {
		return nil, false, status.Error(codes.Unavailable, err.Error())
	}
	return nil, false, nil
}

func (driver) Detach(ctx context.Context, volume, node string, _ map[string]string) error {
	if err := ask(ctx, http.MethodDelete, path(volume, node), nil, nil); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

func run(ctx context.Context, cfg *rest.Config) error {
	client, timeout := kubernetes.NewForConfigOrDie(cfg), 15*time.Second
	all := informers.NewSharedInformerFactory(client, 10*time.Minute)
	handler := controller.NewCSIHandler(client, driverName, driver{}, nil, all.Core().V1().PersistentVolumes().Lister(),
		all.Storage().V1().CSINodes().Lister(), all.Storage().V1().VolumeAttachments().Lister(), &timeout, false, false,
		csitrans.New(), "ext4")
	retry := func() workqueue.TypedRateLimiter[string] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 5*time.Minute)
	}
	c := controller.NewCSIAttachController(klog.FromContext(ctx), client, driverName, handler,
		all.Storage().V1().VolumeAttachments(), all.Core().V1().PersistentVolumes(), retry(), retry(), false,
		time.Minute)
	all.Start(ctx.Done())
	c.Run(ctx, 10, nil)
	all.Shutdown()
	return nil
}

// nodeOf is a node on which the driver runs.
func nodeOf(name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s}
---
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: %s}
spec: {drivers: [{name: disks.example.com, nodeID: %s}]}
---
`, name, name, name)
}

// diskOf is a volume of the driver.
func diskOf(name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: manual
  csi: {driver: disks.example.com, volumeHandle: %s}
---
`, name, name)
}

// attach is what Kubernetes writes when a pod with the volume is bound to a node.
func attach(volume, node string) string {
	return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: %s-to-%s}
spec:
  attacher: disks.example.com
  nodeName: %s
  source: {persistentVolumeName: %s}
---
`, volume, node, node, volume)
}

func TestAttacher(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run, Outside: outside(nil), Limit: time.Minute,
		Server: reconciletest.Options{Kinds: builtin.Kinds()},
		Steps: append(reconciletest.ApplyYAML(nodeOf("first")+nodeOf("second")+diskOf("a")+diskOf("b")+
			attach("a", "first"), attach("b", "second")),
			reconciletest.Delete("volumeattachments", "", "a-to-first"),
			reconciletest.Delete("persistentvolumes", "", "a")),
		Settled: func(s *reconciletest.Server) error {
			b, err := there[*storagev1.VolumeAttachment](s, "volumeattachments", "", "b-to-second")
			if err != nil {
				return err
			}
			return errors.Join(want("b is attached", b.Status.Attached, true),
				gone[*storagev1.VolumeAttachment](s, "volumeattachments", "", "a-to-first"),
				gone[*corev1.PersistentVolume](s, "persistentvolumes", "", "a"))
		},
	})
}
