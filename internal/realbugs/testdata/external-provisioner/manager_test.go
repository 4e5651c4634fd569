// Package check runs three controllers of the CSI sidecar external-provisioner, each by itself, as its main does, with
// the defaults of the flags but for --enable-capacity. What a driver would be asked is outside.
package check

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubernetes-csi/external-provisioner/v6/pkg/capacity"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/capacity/topology"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/controller"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const driverName = "disks.example.com"

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, run func(context.Context, *rest.Config) error, s reconciletest.Scenario) {
	t.Helper()
	s.Run = run
	s.Server.Kinds, s.Server.Rules = builtin.Kinds(), cel.Rules{}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// clients are those of main: the limits of the flags, and protobuf for the kinds of Kubernetes.
func clients(cfg *rest.Config) (kubernetes.Interface, snapshots.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 5, 10
	core := rest.CopyConfig(cfg)
	core.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(core)
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := snapshots.NewForConfig(cfg)
	return client, snapshot, err
}

func limiter[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](time.Second, 5*time.Minute)
}

// capable is what the driver says of itself.
var capable = rpc.ControllerCapabilitySet{
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME:           true,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT: true,
	csi.ControllerServiceCapability_RPC_GET_CAPACITY:           true,
}

func cloning(ctx context.Context, cfg *rest.Config) error {
	client, _, err := clients(cfg)
	if err != nil {
		return err
	}
	all := informers.NewSharedInformerFactory(client, controller.ResyncPeriodOfCsiNodeInformer)
	claims := all.Core().V1().PersistentVolumeClaims()
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "claims"})
	c := controller.NewCloningProtectionController(client, claims.Lister(), claims.Informer(), queue, capable)
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	c.Run(ctx, 1, nil)
	all.Shutdown()
	return nil
}

func sweeping(ctx context.Context, cfg *rest.Config) error {
	client, snapshot, err := clients(cfg)
	if err != nil {
		return err
	}
	all := informers.NewSharedInformerFactory(client, controller.ResyncPeriodOfCsiNodeInformer)
	c := controller.NewSnapshotFinalizerController(snapshot, all.Core().V1().PersistentVolumeClaims().Lister(), capable,
		5*time.Minute)
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	c.Run(ctx, nil)
	all.Shutdown()
	return nil
}

const (
	zone    = "disks.example.com/zone"
	manager = "external-provisioner"
)

// driver says how much room there is in a zone: outside is a record for each.
type driver struct{}

func (driver) GetCapacity(ctx context.Context, in *csi.GetCapacityRequest, _ ...grpc.CallOption) (
	*csi.GetCapacityResponse, error) {
	out := &csi.GetCapacityResponse{}
	err := ask(ctx, http.MethodGet, "/capacity/"+in.AccessibleTopology.Segments[zone], nil, &out.AvailableCapacity)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return out, nil
}

// capacities is run with --enable-capacity and --capacity-ownerref-level=-1, which means that nobody owns the objects.
func capacities(ctx context.Context, cfg *rest.Config) error {
	client, _, err := clients(cfg)
	if err != nil {
		return err
	}
	slow := rest.CopyConfig(cfg)
	slow.QPS, slow.Burst = 1, 5
	writer, err := kubernetes.NewForConfig(slow)
	if err != nil {
		return err
	}
	all := informers.NewSharedInformerFactory(client, controller.ResyncPeriodOfCsiNodeInformer)
	segments := topology.NewNodeTopology(driverName, writer, all.Core().V1().Nodes(), all.Storage().V1().CSINodes(),
		workqueue.NewTypedRateLimitingQueueWithConfig(limiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "csitopology"}))
	own := informers.NewSharedInformerFactoryWithOptions(writer, controller.ResyncPeriodOfCsiNodeInformer,
		informers.WithNamespace(metav1.NamespaceDefault), informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = labels.Set{capacity.DriverNameLabel: driverName,
				capacity.ManagedByLabel: manager}.AsSelector().String()
		}))
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter[capacity.QueueKey](),
		workqueue.TypedRateLimitingQueueConfig[capacity.QueueKey]{Name: "csistoragecapacity"})
	c := capacity.NewCentralCapacityController(driver{}, driverName, writer.StorageV1(), queue, nil, manager,
		metav1.NamespaceDefault, segments, all.Storage().V1().StorageClasses(),
		own.Storage().V1().CSIStorageCapacities(), time.Minute, false, 10*time.Second)
	all.Start(ctx.Done())
	own.Start(ctx.Done())
	go segments.RunWorker(ctx)
	all.WaitForCacheSync(ctx.Done())
	c.Run(ctx, 1, nil)
	all.Shutdown()
	own.Shutdown()
	return nil
}
