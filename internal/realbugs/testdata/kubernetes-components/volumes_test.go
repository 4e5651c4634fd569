package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// Annotations of the controller of volumes, and of the scheduler.
const (
	boundByController = "pv.kubernetes.io/bound-by-controller"
	bindCompleted     = "pv.kubernetes.io/bind-completed"
)

// disks stands in for the controller of volumes, which binds a claim to the volume that the scheduler has chosen, and
// for who cleans a disk when its claim is gone.
func disks(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	for {
		// What fails is tried again in the next round. The claims are read last: a volume names one that was there.
		if volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{}); err == nil {
			claims, err := client.CoreV1().PersistentVolumeClaims("default").List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(volumes.Items); i++ {
				_ = bind(ctx, client, &volumes.Items[i], claims.Items)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}

// bind does what there is to do about a volume.
func bind(ctx context.Context, client kubernetes.Interface, v *corev1.PersistentVolume,
	claims []corev1.PersistentVolumeClaim) error {
	volumes, phase := client.CoreV1().PersistentVolumes(), corev1.VolumeAvailable
	if ref := v.Spec.ClaimRef; ref != nil {
		i := slices.IndexFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return c.UID == ref.UID })
		if i < 0 {
			v.Spec.ClaimRef = nil
			delete(v.Annotations, boundByController)
			_, err := volumes.Update(ctx, v, metav1.UpdateOptions{})
			return err
		}
		phase = corev1.VolumeBound
		if err := bound(ctx, client, v, &claims[i]); err != nil {
			return err
		}
	}
	if v.Status.Phase == phase {
		return nil
	}
	v.Status.Phase = phase
	_, err := volumes.UpdateStatus(ctx, v, metav1.UpdateOptions{})
	return err
}

// bound completes the binding of a claim to the volume that names it.
func bound(ctx context.Context, client kubernetes.Interface, v *corev1.PersistentVolume,
	c *corev1.PersistentVolumeClaim) (err error) {
	claims := client.CoreV1().PersistentVolumeClaims(c.Namespace)
	if c.Spec.VolumeName == "" {
		c.Spec.VolumeName = v.Name
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, bindCompleted, "yes")
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, boundByController, "yes")
		if c, err = claims.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if c.Status.Phase == corev1.ClaimBound {
		return nil
	}
	c.Status.Phase, c.Status.Capacity, c.Status.AccessModes = corev1.ClaimBound, v.Spec.Capacity, v.Spec.AccessModes
	_, err = claims.UpdateStatus(ctx, c, metav1.UpdateOptions{})
	return err
}

// TestSchedulerVolumes: a pod runs where the disk is that its claim asks for; the disk of another one comes later, with
// its node.
func TestSchedulerVolumes(t *testing.T) {
	const class = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
`
	disk := func(name, pool string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s, labels: {disk: %[1]s}}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: local
  local: {path: /disks/%[1]s}
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [%[2]s]}]}]}
---
`, name, pool)
	}
	asks := func(name, disk string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: local
  selector: {matchLabels: {disk: %[2]s}}
  resources: {requests: {storage: 10Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec:
  schedulerName: batch-scheduler
  containers: [{name: c, image: "i:1", volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[1]s}}]
---
`, name, disk)
	}
	check(t, nil, reconciletest.Scenario{
		Run: schedules, World: &reconciletest.World{Except: []string{"persistentvolumeclaims"}},
		Beside: []func(context.Context, *rest.Config) error{kubelets, disks},
		Steps: reconciletest.ApplyYAML(class+nodeOf("first", "a")+disk("old-disk", "a")+disk("disk", "a")+
			asks("one", "disk"), asks("two", "new-disk"), nodeOf("second", "b")+disk("new-disk", "b")),
		Settled: func(s *reconciletest.Server) error {
			for name, at := range map[string][]string{"one": {"first", "disk"}, "two": {"second", "new-disk"}} {
				p, err := there[*corev1.Pod](s, "pods", "default", name)
				c, err2 := there[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", name)
				if err := errors.Join(err, err2); err != nil {
					return err
				}
				if err := errors.Join(want("phase of "+name, c.Status.Phase, corev1.ClaimBound),
					want("node and disk of "+name, []string{p.Spec.NodeName, c.Spec.VolumeName}, at)); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
