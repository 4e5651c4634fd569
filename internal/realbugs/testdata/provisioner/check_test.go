// Package check runs the controller of the library for provisioners of volumes, with the options of the CSI sidecar
// external-provisioner, and disks outside.
package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

// driver makes a disk for each volume: outside is a record with its claim.
type driver struct{}

func (driver) Provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume,
	controller.ProvisioningState, error) {
	claim := o.PVC.Namespace + "/" + o.PVC.Name
	if err := ask(ctx, http.MethodPut, "/disks/"+o.PVName, claim, nil); err != nil {
		return nil, controller.ProvisioningInBackground, err
	}
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes: o.PVC.Spec.AccessModes, Capacity: o.PVC.Spec.Resources.Requests,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: provisioner, VolumeHandle: o.PVName}}}}, controller.ProvisioningFinished, nil
}

func (driver) Delete(ctx context.Context, v *corev1.PersistentVolume) error {
	return ask(ctx, http.MethodDelete, "/disks/"+v.Spec.CSI.VolumeHandle, nil, nil)
}

// disks are the records, whose paths have the UID of a claim. State counts them by their claims.
type disks struct{ *records }

func (d disks) State() any {
	of := map[string]any{}
	for _, claim := range d.records.State().(map[string]any) {
		n, _ := of[claim.(string)].(int)
		of[claim.(string)] = n + 1
	}
	return of
}

func run(ctx context.Context, cfg *rest.Config) error {
	retry := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 5*time.Minute)
	save := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 5*time.Minute)
	c := controller.NewProvisionController(ctx, kubernetes.NewForConfigOrDie(cfg), provisioner, driver{},
		controller.LeaderElection(false), controller.FailedProvisionThreshold(0), controller.FailedDeleteThreshold(0),
		controller.RateLimiter(retry), controller.CreateProvisionedPVLimiter(save), controller.AddFinalizer(true),
		controller.Threadiness(10), controller.ResyncPeriod(time.Hour))
	var running sync.WaitGroup
	c.ControllerWaitGroup(&running)
	c.Run(ctx)
	running.Wait()
	return nil
}

const class = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks}
provisioner: disks.example.com
reclaimPolicy: Delete
---
`

func claimOf(name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: default}
spec:
  storageClassName: disks
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
`, name)
}

func TestProvisioner(t *testing.T) {
	made := outside(nil)[host]
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run, Limit: time.Minute,
		Outside: map[string]func() reconciletest.API{
			host: func() reconciletest.API { return disks{made().(*records)} },
		},
		Beside: []func(context.Context, *rest.Config) error{binder},
		Server: reconciletest.Options{Kinds: builtin.Kinds()},
		Steps: append(reconciletest.ApplyYAML(class+claimOf("a")+claimOf("b"), claimOf("c")),
			reconciletest.Delete("persistentvolumeclaims", "default", "b")),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"a", "c"} {
				c, err := there[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", name)
				if err != nil {
					return err
				}
				if err := want(name, c.Status.Phase, corev1.ClaimBound); err != nil {
					return err
				}
			}
			return errors.Join(gone[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", "b"),
				want("volumes", len(reconciletest.List[*corev1.PersistentVolume](s, "persistentvolumes", "")), 2))
		},
	})
}
