package check

import (
	"errors"
	"fmt"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// classOf is a StorageClass of the driver.
func classOf(name, mode string) string {
	return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: disks.example.com
volumeBindingMode: %s
---
`, name, mode)
}

// claimOf is a claim, with more of its metadata and its spec.
func claimOf(name, metadata, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: default, %s}
spec:
  storageClassName: disks
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
  %s
---
`, name, metadata, spec)
}

// binds is a world that binds claims, but for the one that never works.
var binds = &reconciletest.World{Fails: func(o reconciletest.Object) bool { return o.GetName() == "broken" }}

// TestCloningProtection: the provisioner has put its finalizer on two claims, and they are deleted. One of the volumes
// that are cloned from them never comes.
func TestCloningProtection(t *testing.T) {
	const kept = "finalizers: [provisioner.storage.kubernetes.io/cloning-protection]"
	from := func(name string) string { return "dataSource: {kind: PersistentVolumeClaim, name: " + name + "}" }
	check(t, cloning, reconciletest.Scenario{
		World: binds,
		Steps: append(reconciletest.ApplyYAML(classOf("disks", "Immediate")+claimOf("source", kept, "")+
			claimOf("other", kept, "")+claimOf("copy", "", from("source"))+claimOf("broken", "", from("other"))),
			reconciletest.Delete("persistentvolumeclaims", "default", "source"),
			reconciletest.Delete("persistentvolumeclaims", "default", "other"),
			reconciletest.Delete("persistentvolumeclaims", "default", "broken")),
		Settled: func(s *reconciletest.Server) error {
			const resource = "persistentvolumeclaims"
			_, err := there[*corev1.PersistentVolumeClaim](s, resource, "default", "copy")
			for _, name := range []string{"source", "other", "broken"} {
				err = errors.Join(err, gone[*corev1.PersistentVolumeClaim](s, resource, "default", name))
			}
			return err
		},
	})
}

// TestSnapshotFinalizers: snapshots have kept the finalizer of the provisioner, and one is still being restored from.
func TestSnapshotFinalizers(t *testing.T) {
	snapshot := func(name string) string {
		return fmt.Sprintf(`
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata:
  name: %s
  namespace: default
  finalizers: [provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection]
spec: {source: {persistentVolumeClaimName: data}}
---
`, name)
	}
	from := func(name string) string {
		return "dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: " + name + "}"
	}
	check(t, sweeping, reconciletest.Scenario{
		World: binds, Server: reconciletest.Options{CRDs: []string{"crd"}},
		Steps: append(reconciletest.ApplyYAML(classOf("disks", "Immediate")+snapshot("first")+snapshot("second")+
			claimOf("restored", "", from("first"))+claimOf("broken", "", from("second"))),
			reconciletest.Wait(6*time.Minute), reconciletest.Delete("persistentvolumeclaims", "default", "broken"),
			reconciletest.Wait(6*time.Minute),
			reconciletest.Delete("volumesnapshots.snapshot.storage.k8s.io", "default", "second")),
		Settled: func(s *reconciletest.Server) error {
			const resource = "volumesnapshots.snapshot.storage.k8s.io"
			first, err := there[*snapshotv1.VolumeSnapshot](s, resource, "default", "first")
			if err != nil {
				return err
			}
			return errors.Join(want("finalizers", len(first.Finalizers), 0),
				gone[*snapshotv1.VolumeSnapshot](s, resource, "default", "second"))
		},
	})
}

func TestCapacity(t *testing.T) {
	node := func(name, in string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {disks.example.com/zone: %s}}
---
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: %s}
spec: {drivers: [{name: disks.example.com, nodeID: %s, topologyKeys: [disks.example.com/zone]}]}
---
`, name, in, name, name)
	}
	check(t, capacities, reconciletest.Scenario{
		Outside: outside(map[string]string{"/capacity/a": "1073741824", "/capacity/b": "2147483648"}),
		Steps: append(reconciletest.ApplyYAML(node("first", "a")+node("second", "b")+
			classOf("disks", "WaitForFirstConsumer")+classOf("old", "WaitForFirstConsumer")),
			put("/capacity/b", 3221225472), reconciletest.Wait(2*time.Minute),
			reconciletest.Delete("storageclasses", "", "old"), reconciletest.Delete("csinodes", "", "first")),
		Settled: func(s *reconciletest.Server) error {
			is := map[string]int64{}
			all := reconciletest.List[*storagev1.CSIStorageCapacity](s, "csistoragecapacities", "default")
			for _, c := range all {
				is[c.StorageClassName+" in "+c.NodeTopology.MatchLabels[zone]] = c.Capacity.Value()
			}
			return errors.Join(want("capacities", is, map[string]int64{"disks in b": 3221225472}),
				want("objects", len(all), 1))
		},
	})
}
