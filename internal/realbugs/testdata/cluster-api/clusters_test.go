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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	corecluster "sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterclass"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterresourceset"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterresourcesetbinding"
	topologycluster "sigs.k8s.io/cluster-api/core/reconcilers/topology/cluster"
	topologymachinedeployment "sigs.k8s.io/cluster-api/core/reconcilers/topology/machinedeployment"
	topologymachineset "sigs.k8s.io/cluster-api/core/reconcilers/topology/machineset"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// providersOf stand in for the providers of the infrastructure and of the control plane of clusters.
var providersOf = []func(context.Context, *rest.Config) error{
	reports(infra.WithResource("genericinfrastructureclusters"), `{"status":{"initialization":{"provisioned":true}}}`),
	reports(controls.WithResource("genericcontrolplanes"),
		`{"status":{"initialization":{"controlPlaneInitialized":true},"version":"v1.35.0"}}`),
}

func reports(of schema.GroupVersionResource, patch string) func(context.Context, *rest.Config) error {
	return each(of, func(ctx context.Context, c dynamic.ResourceInterface, o *unstructured.Unstructured,
		gone bool) error {
		_, is, _ := unstructured.NestedMap(o.Object, "status", "initialization")
		if gone || is || o.GetDeletionTimestamp() != nil {
			return nil
		}
		return merge(ctx, c, o.GetName(), patch, "status")
	})
}

func TestCluster(t *testing.T) {
	of := func(name string) string {
		return fmt.Sprintf(`
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: GenericInfrastructureCluster
metadata: {name: %s, namespace: default}
spec: {controlPlaneEndpoint: {host: %s.example.com, port: 6443}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: GenericControlPlane
metadata: {name: %s, namespace: default}
spec: {replicas: 1, version: v1.35.0}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %s, namespace: default}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: GenericInfrastructureCluster, name: %s}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: GenericControlPlane, name: %s}
---
`, name, name, name, name, name, name)
	}
	check(t, func(ctx context.Context, p program, o controller.Options) error {
		return (&corecluster.Reconciler{Client: p.mgr.GetClient(), APIReader: p.mgr.GetAPIReader(),
			ClusterCache: p.workload, RemoteConnectionGracePeriod: 50 * time.Second}).SetupWithManager(ctx, p.mgr, o)
	}, reconciletest.Scenario{
		Beside: providersOf,
		Steps: append(reconciletest.ApplyYAML(of("one")+of("old"), of("two")),
			reconciletest.Delete("clusters.cluster.x-k8s.io", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"one", "two"} {
				c, err := there[*clusterv1.Cluster](s, "clusters.cluster.x-k8s.io", name)
				if err == nil {
					err = errors.Join(want("phase of "+name, c.Status.Phase, clusterv1.ClusterPhaseProvisioned),
						want("endpoint of "+name, c.Spec.ControlPlaneEndpoint.Host, name+".example.com"))
				}
				if err != nil {
					return err
				}
			}
			_, left := reconciletest.Get[*clusterv1.Cluster](s, "clusters.cluster.x-k8s.io", "default", "old")
			return want("old is there", left, false)
		},
	})
}

// class is a ClusterClass with its templates, and a variable of some type.
func class(name, variable string) string {
	return fmt.Sprintf(`
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: GenericInfrastructureClusterTemplate
metadata: {name: %s, namespace: default}
spec: {template: {spec: {region: a}}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: GenericControlPlaneTemplate
metadata: {name: %s, namespace: default}
spec: {template: {spec: {kind: plain}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: GenericInfrastructureMachineTemplate
metadata: {name: %s, namespace: default}
spec: {template: {spec: {size: small}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: GenericBootstrapConfigTemplate
metadata: {name: %s, namespace: default}
spec: {template: {spec: {files: none}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: %s, namespace: default}
spec:
  infrastructure:
    templateRef:
      apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
      kind: GenericInfrastructureClusterTemplate
      name: %s
  controlPlane:
    templateRef:
      apiVersion: controlplane.cluster.x-k8s.io/v1beta2
      kind: GenericControlPlaneTemplate
      name: %s
  workers:
    machineDeployments:
    - class: workers
      bootstrap:
        templateRef:
          apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
          kind: GenericBootstrapConfigTemplate
          name: %s
      infrastructure:
        templateRef:
          apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
          kind: GenericInfrastructureMachineTemplate
          name: %s
  variables:
  - {name: region, required: false, schema: {openAPIV3Schema: {type: %s}}}
---
`, name, name, name, name, name, name, name, name, name, variable)
}

func classes(ctx context.Context, p program, o controller.Options) error {
	return (&clusterclass.Reconciler{Client: p.mgr.GetClient()}).SetupWithManager(ctx, p.mgr, o)
}

func TestClusterClass(t *testing.T) {
	topology(t)
	check(t, classes, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(class("plain", "string")+class("old", "string"),
			class("plain", "integer")), reconciletest.Delete("clusterclasses.cluster.x-k8s.io", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*clusterv1.ClusterClass](s, "clusterclasses.cluster.x-k8s.io", "plain")
			if err != nil {
				return err
			}
			if len(c.Status.Variables) != 1 || len(c.Status.Variables[0].Definitions) != 1 {
				return fmt.Errorf("variables: %v", c.Status.Variables)
			}
			of, err := there[*unstructured.Unstructured](s,
				"genericcontrolplanetemplates.controlplane.cluster.x-k8s.io", "plain")
			if err != nil {
				return err
			}
			return errors.Join(want("type of the variable",
				c.Status.Variables[0].Definitions[0].Schema.OpenAPIV3Schema.Type, "integer"),
				want("owners of a template", len(of.GetOwnerReferences()), 1),
				want("generation", c.Status.ObservedGeneration, c.Generation))
		},
	})
}

func TestClusterTopology(t *testing.T) {
	topology(t)
	of := func(name string, replicas int) string {
		return fmt.Sprintf(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %s, namespace: default, labels: {topology.cluster.x-k8s.io/owned: ""}}
spec:
  topology:
    classRef: {name: plain}
    version: v1.35.0
    controlPlane: {replicas: 1}
    workers:
      machineDeployments:
      - {name: a, class: workers, replicas: %d}
---
`, name, replicas)
	}
	check(t, func(ctx context.Context, p program, o controller.Options) error {
		return (&topologycluster.Reconciler{Client: p.mgr.GetClient(), APIReader: p.mgr.GetAPIReader(),
			ClusterCache: p.workload}).SetupWithManager(ctx, p.mgr, o)
	}, reconciletest.Scenario{
		Beside: append(slices.Clone(providersOf), manager(classes)),
		Steps: slices.Concat(reconciletest.ApplyYAML(class("plain", "string"), of("one", 1)),
			[]reconciletest.Step{up("one")}, reconciletest.ApplyYAML(of("one", 2))),
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*clusterv1.Cluster](s, "clusters.cluster.x-k8s.io", "one")
			if err != nil {
				return err
			}
			all := reconciletest.List[*clusterv1.MachineDeployment](s, "machinedeployments.cluster.x-k8s.io", "default")
			if len(all) != 1 || all[0].Spec.Replicas == nil {
				return fmt.Errorf("there are %d MachineDeployments", len(all))
			}
			return errors.Join(want("replicas", *all[0].Spec.Replicas, 2),
				want("control plane", c.Spec.ControlPlaneRef.Kind, "GenericControlPlane"))
		},
	})
}

// labelled is an object of a topology, with a template of its own.
func labelled(kind, name string) string {
	return template(name) + fmt.Sprintf(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: %s
metadata:
  name: %s
  namespace: default
  labels: {cluster.x-k8s.io/cluster-name: one, topology.cluster.x-k8s.io/owned: ""}
spec:
  clusterName: one
  replicas: 1
  selector: {matchLabels: {app: %s, cluster.x-k8s.io/cluster-name: one}}
  template:%s`, kind, name, name, machineSpec(name, name, "v1.35.0"))
}

// holdTemplates returns an error unless these templates of infrastructure machines are there.
func holdTemplates(s *reconciletest.Server, names ...string) error {
	for _, name := range names {
		if _, err := there[*unstructured.Unstructured](s,
			"genericinfrastructuremachinetemplates.infrastructure.cluster.x-k8s.io", name); err != nil {
			return err
		}
	}
	return nil
}

func TestTopologyMachineDeployment(t *testing.T) {
	topology(t)
	check(t, func(ctx context.Context, p program, o controller.Options) error {
		return (&topologymachinedeployment.Reconciler{Client: p.mgr.GetClient(), APIReader: p.mgr.GetAPIReader()}).
			SetupWithManager(ctx, p.mgr, o)
	}, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(cluster("one", "")+labelled("MachineDeployment", "web")+
			labelled("MachineDeployment", "old"), labelled("MachineDeployment", "more")),
			reconciletest.Delete("machinedeployments.cluster.x-k8s.io", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			_, left := reconciletest.Get[*clusterv1.MachineDeployment](s, "machinedeployments.cluster.x-k8s.io",
				"default", "old")
			return errors.Join(want("old is there", left, false), holdTemplates(s, "more", "web"))
		},
	})
}

// own makes the step that lets a MachineDeployment own MachineSets.
func own(owner string, names ...string) reconciletest.Step {
	return reconciletest.StepFunc(owner+" owns its sets", func(ctx context.Context, cfg *rest.Config) error {
		client := dynamic.NewForConfigOrDie(cfg)
		by, err := client.Resource(clusterv1.GroupVersion.WithResource("machinedeployments")).Namespace("default").
			Get(ctx, owner, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, name := range names {
			patch := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":"MachineDeployment",`+
				`"name":%q,"uid":%q,"controller":true}]}}`, clusterv1.GroupVersion, owner, by.GetUID())
			if err := merge(ctx, client.Resource(machinesets).Namespace("default"), name, patch); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestTopologyMachineSet(t *testing.T) {
	topology(t)
	check(t, func(ctx context.Context, p program, o controller.Options) error {
		return (&topologymachineset.Reconciler{Client: p.mgr.GetClient(), APIReader: p.mgr.GetAPIReader()}).
			SetupWithManager(ctx, p.mgr, o)
	}, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(cluster("one", "")+labelled("MachineDeployment", "web")+
			labelled("MachineSet", "now")+labelled("MachineSet", "old")), own("web", "now", "old"),
			reconciletest.Delete("machinesets.cluster.x-k8s.io", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			_, left := reconciletest.Get[*clusterv1.MachineSet](s, "machinesets.cluster.x-k8s.io", "default", "old")
			return errors.Join(want("old is there", left, false), holdTemplates(s, "now", "web"))
		},
	})
}

func TestClusterResourceSet(t *testing.T) {
	of := func(name, source, value string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: default}
data:
  objects.yaml: |
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: of-%s, namespace: default}
    data: {value: %q}
---
apiVersion: addons.cluster.x-k8s.io/v1beta2
kind: ClusterResourceSet
metadata: {name: %s, namespace: default}
spec:
  strategy: Reconcile
  clusterSelector: {matchLabels: {cni: "yes"}}
  resources: [{kind: ConfigMap, name: %s}]
---
`, source, source, value, name, source)
	}
	check(t, func(ctx context.Context, p program, o controller.Options) error {
		return (&clusterresourceset.Reconciler{Client: p.mgr.GetClient(), ClusterCache: p.workload}).
			SetupWithManager(ctx, p.mgr, o, p.secrets)
	}, reconciletest.Scenario{
		Steps: slices.Concat(reconciletest.ApplyYAML(cluster("one", `cni: "yes"`)+cluster("two", "")),
			[]reconciletest.Step{up("one"), up("two")},
			reconciletest.ApplyYAML(of("net", "cni", "1")+of("old", "other", "1"), of("net", "cni", "2")),
			[]reconciletest.Step{reconciletest.Delete("clusterresourcesets.addons.cluster.x-k8s.io", "default",
				"old")}),
		Settled: func(s *reconciletest.Server) error {
			b, err := there[*addonsv1.ClusterResourceSetBinding](s,
				"clusterresourcesetbindings.addons.cluster.x-k8s.io", "one")
			if err != nil {
				return err
			}
			m, err := there[*corev1.ConfigMap](s, "configmaps", "of-cni")
			if err != nil {
				return err
			}
			_, left := reconciletest.Get[*addonsv1.ClusterResourceSet](s,
				"clusterresourcesets.addons.cluster.x-k8s.io", "default", "old")
			return errors.Join(want("value", m.Data["value"], "2"), want("bindings", len(b.Spec.Bindings), 1),
				want("old is there", left, false))
		},
	})
}

func TestClusterResourceSetBinding(t *testing.T) {
	of := func(name string) string {
		return fmt.Sprintf(`
apiVersion: addons.cluster.x-k8s.io/v1beta2
kind: ClusterResourceSetBinding
metadata: {name: %s, namespace: default}
spec:
  clusterName: %s
  bindings: [{clusterResourceSetName: net, resources: []}]
---
`, name, name)
	}
	check(t, func(ctx context.Context, p program, o controller.Options) error {
		return (&clusterresourcesetbinding.Reconciler{Client: p.mgr.GetClient()}).SetupWithManager(ctx, p.mgr, o)
	}, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(cluster("one", "")+cluster("old", ""), of("one")+of("old")),
			reconciletest.Delete("clusters.cluster.x-k8s.io", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			var is []string
			for _, b := range reconciletest.List[*addonsv1.ClusterResourceSetBinding](s,
				"clusterresourcesetbindings.addons.cluster.x-k8s.io", "default") {
				is = append(is, b.Name)
			}
			return want("bindings", is, []string{"one"})
		},
	})
}
