// Package check runs the controller of AWSManagedClusters of Cluster API's provider for AWS, as its main does, with the
// defaults of its flags. It asks no cloud. Webhooks, leader election and HTTP are left out.
package check

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "sigs.k8s.io/cluster-api-provider-aws/v2/api/v1beta2"
	"sigs.k8s.io/cluster-api-provider-aws/v2/controllers"
	ekscontrolplanev1 "sigs.k8s.io/cluster-api-provider-aws/v2/controlplane/eks/api/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme,
		infrav1.AddToScheme, ekscontrolplanev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	again, recovers, period := true, true, 10*time.Minute
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache:                  cache.Options{SyncPeriod: &period},
		Controller:             config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	//nolint:staticcheck // The program takes the older recorder.
	recorder := mgr.GetEventRecorderFor("awsmanagedcluster-controller")
	if err := (&controllers.AWSManagedClusterReconciler{Client: mgr.GetClient(), Recorder: recorder}).SetupWithManager(
		ctx, mgr, controller.Options{MaxConcurrentReconciles: 5, RecoverPanic: &recovers}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

var (
	clusters = clusterv1.GroupVersion.WithResource("clusters")
	planes   = ekscontrolplanev1.GroupVersion.WithResource("awsmanagedcontrolplanes")
	managed  = infrav1.GroupVersion.WithResource("awsmanagedclusters")
)

// core stands in for the controllers of Clusters and of AWSManagedControlPlanes: a Cluster owns its infrastructure and
// its control plane, and that has an endpoint as soon as it is owned. What fails is tried again by the next resync.
func core(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	patch := func(of schema.GroupVersionResource, name string, value map[string]any) {
		if data, err := json.Marshal(value); err == nil {
			_, _ = client.Resource(of).Namespace("default").Patch(ctx, name, types.MergePatchType, data,
				metav1.PatchOptions{})
		}
	}
	owned := func(o *unstructured.Unstructured, of schema.GroupVersionResource) bool {
		cluster, err := client.Resource(clusters).Namespace("default").Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil || cluster.GetDeletionTimestamp() != nil || o.GetDeletionTimestamp() != nil {
			return false
		}
		if owners := o.GetOwnerReferences(); len(owners) > 0 && owners[0].UID == cluster.GetUID() {
			return true
		}
		patch(of, o.GetName(), map[string]any{"metadata": map[string]any{"ownerReferences": []any{
			*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))}}})
		return false
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
	for of, do := range map[schema.GroupVersionResource]func(*unstructured.Unstructured){
		managed: func(o *unstructured.Unstructured) { owned(o, managed) },
		planes: func(o *unstructured.Unstructured) {
			host, _, _ := unstructured.NestedString(o.Object, "spec", "controlPlaneEndpoint", "host")
			if owned(o, planes) && host == "" {
				patch(planes, o.GetName(), map[string]any{"spec": map[string]any{"controlPlaneEndpoint": map[string]any{
					"host": o.GetName() + ".eks.example.com", "port": 443}}})
			}
		},
	} {
		if _, err := factory.ForResource(of).Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { do(o.(*unstructured.Unstructured)) },
			UpdateFunc: func(_, o any) { do(o.(*unstructured.Unstructured)) }}); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
