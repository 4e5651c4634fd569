package check

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var (
	clusters = clusterv1.GroupVersion.WithResource("clusters")
	machines = clusterv1.GroupVersion.WithResource("machines")
	configs  = bootstrapv1.GroupVersion.WithResource("kubeadmconfigs")
)

// provisioned is what a cluster reports whose infrastructure is there, and initialized when it has a control plane too.
const (
	provisioned = `{"status":{"initialization":{"infrastructureProvisioned":true}}}`
	initialized = `{"status":{"initialization":{"infrastructureProvisioned":true,"controlPlaneInitialized":true},
		"conditions":[{"type":"ControlPlaneInitialized","status":"True","reason":"Initialized","message":"",
		"lastTransitionTime":"2000-01-01T00:00:00Z"}]}}`
)

// core stands in for the controllers of Clusters and Machines: a cluster has its infrastructure at once, and a control
// plane as soon as the first machine of that has its data; a machine owns its KubeadmConfig, and is a node when it has
// its data. What fails is tried again by the next resync.
func core(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	patch := func(of schema.GroupVersionResource, name, patch string, subresources ...string) {
		_, _ = client.Resource(of).Namespace("default").Patch(ctx, name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}, subresources...)
	}
	cluster := func(c *unstructured.Unstructured) {
		if is, _, _ := unstructured.NestedMap(c.Object, "status", "initialization"); is == nil {
			patch(clusters, c.GetName(), provisioned, "status")
		}
	}
	machine := func(m *unstructured.Unstructured) {
		c, err := client.Resource(configs).Namespace("default").Get(ctx, m.GetName(), metav1.GetOptions{})
		if err != nil || m.GetDeletionTimestamp() != nil {
			return
		}
		owners := c.GetOwnerReferences()
		if len(owners) == 0 || owners[0].UID != m.GetUID() {
			owned, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": []any{
				*metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))}}})
			if err == nil {
				patch(configs, c.GetName(), string(owned))
			}
			return
		}
		if made, _, _ := unstructured.NestedBool(c.Object, "status", "initialization", "dataSecretCreated"); !made {
			return
		}
		if _, control := m.GetLabels()[clusterv1.MachineControlPlaneLabel]; control {
			patch(clusters, "one", initialized, "status")
		}
		if node, _, _ := unstructured.NestedMap(m.Object, "status", "nodeRef"); node == nil {
			patch(machines, m.GetName(), `{"status":{"nodeRef":{"name":"`+m.GetName()+`"}}}`, "status")
		}
	}
	config := func(c *unstructured.Unstructured) {
		if m, err := client.Resource(machines).Namespace("default").Get(ctx, c.GetName(),
			metav1.GetOptions{}); err == nil {
			machine(m)
		}
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
	for of, do := range map[schema.GroupVersionResource]func(*unstructured.Unstructured){
		clusters: cluster, machines: machine, configs: config} {
		if _, err := factory.ForResource(of).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
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
