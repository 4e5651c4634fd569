package check

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

var (
	clusters    = clusterv1.GroupVersion.WithResource("clusters")
	machines    = clusterv1.GroupVersion.WithResource("machines")
	machinesets = clusterv1.GroupVersion.WithResource("machinesets")
	infra       = clusterv1.GroupVersionInfrastructure
	controls    = clusterv1.GroupVersionControlPlane
)

// cluster is one that has its infrastructure.
func cluster(name, labels string) string {
	return fmt.Sprintf(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %s, namespace: default, labels: {%s}}
spec:
  controlPlaneEndpoint: {host: %s.example.com, port: 6443}
---
`, name, labels, name)
}

// template is one of infrastructure machines.
func template(name string) string {
	return fmt.Sprintf(`
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: GenericInfrastructureMachineTemplate
metadata: {name: %s, namespace: default}
spec: {template: {spec: {size: %s}}}
---
`, name, name)
}

// machineSpec is the template of machines that a MachineSet or a MachineDeployment has.
func machineSpec(app, infrastructure, version string) string {
	return fmt.Sprintf(`
    metadata: {labels: {app: %s, cluster.x-k8s.io/cluster-name: one}}
    spec:
      clusterName: one
      version: %s
      bootstrap: {dataSecretName: boot}
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: GenericInfrastructureMachineTemplate
        name: %s
---
`, app, version, infrastructure)
}

// initialized is what the control plane of a cluster reports when it is up.
const initialized = `{"status":{"initialization":{"infrastructureProvisioned":true,"controlPlaneInitialized":true},
	"conditions":[{"type":"ControlPlaneInitialized","status":"True","reason":"Initialized","message":"",
	"lastTransitionTime":"2000-01-01T00:00:00Z"},{"type":"InfrastructureReady","status":"True","reason":"Ready",
	"message":"","lastTransitionTime":"2000-01-01T00:00:00Z"}]}}`

// up makes the step that reports a cluster to be up.
func up(name string) reconciletest.Step {
	return status("cluster "+name+" is up", clusters, name, initialized)
}

// status makes the step that merges a patch into the status of an object.
func status(about string, of schema.GroupVersionResource, name, patch string) reconciletest.Step {
	return reconciletest.StepFunc(about, func(ctx context.Context, cfg *rest.Config) error {
		_, err := dynamic.NewForConfigOrDie(cfg).Resource(of).Namespace("default").Patch(ctx, name,
			types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		return err
	})
}

// each calls a function for each object of a resource, when it comes, changes or goes, until ctx ends.
func each(of schema.GroupVersionResource, do func(ctx context.Context, c dynamic.ResourceInterface,
	o *unstructured.Unstructured, gone bool) error) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
		handle := func(o any, gone bool) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			u := o.(*unstructured.Unstructured)
			_ = do(ctx, client.Resource(of).Namespace(u.GetNamespace()), u, gone) // the next resync tries it again
		}
		_, err = factory.ForResource(of).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { handle(o, false) }, UpdateFunc: func(_, o any) { handle(o, false) },
			DeleteFunc: func(o any) { handle(o, true) }})
		if err != nil {
			return err
		}
		factory.Start(ctx.Done())
		<-ctx.Done()
		factory.Shutdown()
		return nil
	}
}

// merge merges a patch into an object, or into its status.
func merge(ctx context.Context, c dynamic.ResourceInterface, name, patch string, sub ...string) error {
	_, err := c.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
	return err
}

// hosts stands in for the controller of machines: they are available at once, and go when they are deleted.
var hosts = each(machines, func(ctx context.Context, c dynamic.ResourceInterface, o *unstructured.Unstructured,
	gone bool) error {
	switch {
	case gone:
		return nil
	case o.GetDeletionTimestamp() != nil:
		if len(o.GetFinalizers()) == 0 {
			return nil
		}
		return merge(ctx, c, o.GetName(), `{"metadata":{"finalizers":null}}`)
	case holds(o, "Available"):
		return nil
	}
	condition := func(of string) map[string]any {
		return map[string]any{"type": of, "status": "True", "reason": of, "message": "",
			"lastTransitionTime": "2000-01-01T00:00:00Z"}
	}
	_, err := c.ApplyStatus(ctx, o.GetName(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "Machine",
		"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()},
		"status": map[string]any{"conditions": []any{condition("Ready"), condition("Available"),
			condition("UpToDate")}}}},
		metav1.ApplyOptions{FieldManager: "hosts", Force: true})
	return err
})

// holds says whether a condition of an object is true.
func holds(o *unstructured.Unstructured, condition string) bool {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if m, ok := c.(map[string]any); ok && m["type"] == condition {
			return m["status"] == "True"
		}
	}
	return false
}

// provider stands in for the provider of infrastructure machines: each gets an ID, and a node that is ready.
func provider(ctx context.Context, cfg *rest.Config) error {
	nodes := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes()
	return each(infra.WithResource("genericinfrastructuremachines"), func(ctx context.Context,
		c dynamic.ResourceInterface, o *unstructured.Unstructured, gone bool) error {
		name := o.GetName()
		if gone {
			return nodes.Delete(ctx, name, metav1.DeleteOptions{})
		}
		if o.GetDeletionTimestamp() != nil {
			return nil
		}
		id := "generic://" + name
		if _, err := nodes.Get(ctx, name, metav1.GetOptions{}); err != nil {
			n, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.NodeSpec{ProviderID: id}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.Unix(946684800, 0), LastHeartbeatTime: metav1.Unix(946684800, 0)}}
			if _, err := nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		if is, _, _ := unstructured.NestedString(o.Object, "spec", "providerID"); is == id {
			return nil
		}
		err := merge(ctx, c, name, `{"status":{"initialization":{"provisioned":true}}}`, "status")
		if err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"providerID": id}})
		if err != nil {
			return err
		}
		return merge(ctx, c, name, string(patch))
	})(ctx, cfg)
}
