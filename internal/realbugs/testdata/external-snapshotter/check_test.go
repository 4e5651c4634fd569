package check

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/yaml"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	clientset "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	controller "github.com/kubernetes-csi/external-snapshotter/v8/pkg/common-controller"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/features"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/metrics"
	sidecar "github.com/kubernetes-csi/external-snapshotter/v8/pkg/sidecar-controller"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const resync = 15 * time.Minute

func init() {
	if err := snapshotscheme.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	// With it the controllers wait for their workers.
	err := utilfeature.DefaultMutableFeatureGate.Set(string(features.ReleaseLeaderElectionOnExit) + "=true")
	if err != nil {
		panic(err)
	}
}

func limiter() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 5*time.Minute)
}

// both are the two mains, without flags: that of the snapshot controller, and that of the sidecar with a driver in
// memory, which is slow for a time. As two processes they have an informer each.
func both(slow time.Duration) []reconciletest.Program {
	return []reconciletest.Program{{Name: "controller", Run: runController}, {Name: "sidecar",
		Run: func(ctx context.Context, cfg *rest.Config) error {
			return runSidecar(ctx, cfg, driver{time.Now().Add(slow)})
		}}}
}

func runController(ctx context.Context, cfg *rest.Config) error {
	client, core, err := clients(cfg)
	if err != nil {
		return err
	}
	factory := snapshots.NewSharedInformerFactory(client, resync)
	coreFactory := informers.NewSharedInformerFactory(core, resync)
	groups, contents, classes := groupInformers(factory)
	v1 := factory.Snapshot().V1()
	common := controller.NewCSISnapshotCommonController(client, core, v1.VolumeSnapshots(),
		v1.VolumeSnapshotContents(), v1.VolumeSnapshotClasses(), groups, contents, classes,
		coreFactory.Core().V1().PersistentVolumeClaims(), coreFactory.Core().V1().PersistentVolumes(), nil,
		metrics.NewMetricsManager(), resync, limiter(), limiter(), limiter(), limiter(), false, true, false)
	factory.Start(ctx.Done())
	coreFactory.Start(ctx.Done())
	var workers sync.WaitGroup
	common.Run(10, ctx.Done(), &workers)
	workers.Wait()
	factory.Shutdown()
	coreFactory.Shutdown()
	return nil
}

func runSidecar(ctx context.Context, cfg *rest.Config, d driver) error {
	client, core, err := clients(cfg)
	if err != nil {
		return err
	}
	factory := snapshots.NewSharedInformerFactory(client, resync)
	_, contents, classes := groupInformers(factory)
	v1 := factory.Snapshot().V1()
	side := sidecar.NewCSISnapshotSideCarController(client, core, "driver", v1.VolumeSnapshotContents(),
		v1.VolumeSnapshotClasses(), d, nil, time.Minute, resync, "snapshot", -1, "groupsnapshot", -1, true,
		limiter(), false, contents, classes, limiter())
	factory.Start(ctx.Done())
	var workers sync.WaitGroup
	side.Run(10, ctx.Done(), &workers)
	workers.Wait()
	factory.Shutdown()
	return nil
}

func clients(cfg *rest.Config) (clientset.Interface, kubernetes.Interface, error) {
	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	core, err := kubernetes.NewForConfig(cfg)
	return client, core, err
}

// driver takes each snapshot at once, but none before a time.
type driver struct{ from time.Time }

var taken = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (d driver) CreateSnapshot(_ context.Context, name, _ string, _, _ map[string]string) (string, string, time.Time,
	int64, bool, error) {
	if time.Now().Before(d.from) {
		return "", "", taken, 0, false, status.Error(codes.DeadlineExceeded, "the driver is slow")
	}
	return "driver", name, taken, 1 << 30, true, nil
}

func (driver) DeleteSnapshot(context.Context, string, map[string]string) error { return nil }

func (driver) GetSnapshotStatus(context.Context, string, map[string]string) (bool, time.Time, int64, string, error) {
	return true, taken, 1 << 30, "", nil
}

const volume = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: class}
driver: driver
deletionPolicy: Delete
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: volume}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  csi: {driver: driver, volumeHandle: volume}
  claimRef: {kind: PersistentVolumeClaim, namespace: default, name: data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: volume, resources: {requests: {storage: 1Gi}}}
`

const snapshot = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: snapshot, namespace: default}
spec: {volumeSnapshotClassName: class, source: {persistentVolumeClaimName: data}}
`

const restored = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: restored, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: fast
  resources: {requests: {storage: 1Gi}}
  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: snapshot}
`

func restoreAndDelete(ctx context.Context, cfg *rest.Config) error {
	claim := &corev1.PersistentVolumeClaim{}
	if err := yaml.Unmarshal([]byte(restored), claim); err != nil {
		return err
	}
	_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().PersistentVolumeClaims("default").Create(ctx, claim,
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	time.Sleep(time.Second) // the controller sees the claim
	return clientset.NewForConfigOrDie(cfg).SnapshotV1().VolumeSnapshots("default").Delete(ctx, "snapshot",
		metav1.DeleteOptions{})
}

func TestSnapshots(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Programs: both(0),
		Server:   reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds()},
		World: &reconciletest.World{Takes: func(o reconciletest.Object) time.Duration {
			if o.GetName() == "restored" {
				return time.Minute
			}
			return time.Second
		}},
		Steps: append(reconciletest.ApplyYAML(volume, snapshot),
			reconciletest.StepFunc("restore the snapshot, and delete it", restoreAndDelete)),
	})
}

func TestSlowDriver(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Programs: both(5 * time.Minute),
		Server:   reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds()},
		World:    &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(volume, snapshot),
			reconciletest.Delete("volumesnapshots.snapshot.storage.k8s.io", "default", "snapshot")),
	})
}
