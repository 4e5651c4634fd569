// Package check runs the controller of IPAddressAllocations of vSphere's cloud provider, as its main does for routable
// pods in a VPC. The cluster and its supervisor are one here. The other controllers of the provider are left out.
package check

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	nsxclients "github.com/vmware-tanzu/nsx-operator/pkg/client/clientset/versioned"
	nsxinformers "github.com/vmware-tanzu/nsx-operator/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"k8s.io/cloud-provider-vsphere/pkg/cloudprovider/vsphereparavirtual/controllers/routablepod/ipaddressallocation"
	"k8s.io/cloud-provider-vsphere/pkg/cloudprovider/vsphereparavirtual/ippoolmanager/helper"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// supervisor is the namespace of the cluster in its supervisor.
const supervisor = "supervisor"

func run(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	nsx, err := nsxclients.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	allocations := nsxinformers.NewSharedInformerFactoryWithOptions(nsx, helper.DefaultResyncTime,
		nsxinformers.WithNamespace(supervisor))
	nodes := factory.Core().V1().Nodes()
	controller := ipaddressallocation.NewController(ctx, client, nodes.Lister(), nodes.Informer().HasSynced,
		allocations.Crd().V1alpha1().IPAddressAllocations())
	var running sync.WaitGroup
	running.Go(func() { err = controller.Run(ctx, 1) })
	factory.Start(ctx.Done())
	allocations.Start(ctx.Done())
	running.Wait()
	factory.Shutdown()
	allocations.Shutdown()
	if ctx.Err() != nil {
		return nil // its caches may not have been filled
	}
	return err
}

// resource is that of IPAddressAllocations.
var resource = schema.GroupVersionResource{Group: "crd.nsx.vmware.com", Version: "v1alpha1",
	Resource: "ipaddressallocations"}

// addresses are what NSX has for the nodes.
var addresses = map[string]string{"one": "10.1.1.0/24", "two": "10.1.2.0/24", "three": "10.1.3.0/24",
	"old": "10.1.4.0/24"}

// nsx stands in for NSX's operator: each IPAddressAllocation is ready as soon as it is there. What fails is tried again
// by the next resync.
func nsx(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	do := func(o any) {
		allocation := o.(*unstructured.Unstructured)
		if is, _, _ := unstructured.NestedString(allocation.Object, "status", "allocationIPs"); is != "" {
			return
		}
		allocation = allocation.DeepCopy()
		allocation.Object["status"] = map[string]any{"allocationIPs": addresses[allocation.GetName()],
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "IPAddressAllocationReady",
				"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}
		_, _ = client.Resource(resource).Namespace(supervisor).UpdateStatus(ctx, allocation, metav1.UpdateOptions{})
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
	if _, err := factory.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: do, UpdateFunc: func(_, o any) { do(o) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
