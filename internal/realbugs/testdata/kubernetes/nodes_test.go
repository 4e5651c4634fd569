package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// node is a Node, with more of its spec.
func node(name, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {kubernetes.io/hostname: %s}}
spec: {%s}
---
`, name, name, spec)
}

// podOn is a pod that a scheduler has bound to a node.
func podOn(name, node, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec: {nodeName: %s, %s containers: [{name: c, image: one}]}
---
`, name, node, spec)
}

func TestPodGC(t *testing.T) {
	check(t, names.PodGarbageCollectorController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(node("first", "") + node("second", "") +
			podOn("kept", "first", "") + podOn("orphan", "second", ""))[0],
			reconciletest.Delete("nodes", "", "second"), reconciletest.Wait(2 * time.Minute)},
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*corev1.Pod](s, "pods", "default", "kept")
			return errors.Join(err, gone[*corev1.Pod](s, "pods", "default", "orphan"))
		},
	})
}

func TestTTL(t *testing.T) {
	check(t, names.TTLController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(node("first", "")+node("second", ""), node("third", "")),
			reconciletest.Delete("nodes", "", "second")),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"first", "third"} {
				n, err := there[*corev1.Node](s, "nodes", "", name)
				if err != nil {
					return err
				}
				if err := want(name, n.Annotations["node.alpha.kubernetes.io/ttl"], "0"); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

func TestNodeIPAM(t *testing.T) {
	check(t, names.NodeIpamController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(node("first", "")+node("second", ""), node("third", "")),
			reconciletest.Delete("nodes", "", "second")),
		Settled: func(s *reconciletest.Server) error {
			ranges := map[string]bool{}
			for _, n := range reconciletest.List[*corev1.Node](s, "nodes", "") {
				ranges[n.Spec.PodCIDR] = n.Spec.PodCIDR != ""
			}
			return want("nodes with a range of their own", len(ranges), 2)
		},
		Mask: func(o *unstructured.Unstructured) { // which range depends on which have been given away before
			unstructured.RemoveNestedField(o.Object, "spec", "podCIDR")
			unstructured.RemoveNestedField(o.Object, "spec", "podCIDRs")
		},
	}, func(o *configuration) {
		o.KubeCloudShared.AllocateNodeCIDRs, o.KubeCloudShared.ClusterCIDR = true, "10.244.0.0/16"
	})
}

// newTaintEviction is that of package app, with the index of pods that it needs and other controllers add: alone it
// evicts nothing.
func newTaintEviction(ctx context.Context, with app.ControllerContext, name string) (app.Controller, error) {
	if err := controller.AddPodNodeNameIndexer(with.InformerFactory.Core().V1().Pods().Informer()); err != nil {
		return nil, err
	}
	return app.NewControllerDescriptors()[name].BuildController(ctx, with)
}

func TestTaintEviction(t *testing.T) {
	const taint = "taints: [{key: example.com/broken, effect: NoExecute}]"
	const tolerates = "tolerations: [{key: example.com/broken, operator: Exists}],"
	const while = "tolerations: [{key: example.com/broken, operator: Exists, effect: NoExecute, " +
		"tolerationSeconds: 60}],"
	check(t, names.TaintEvictionController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(node("first", "")+node("second", "")+podOn("a", "first", "")+
			podOn("b", "second", "")+podOn("c", "second", tolerates)+podOn("d", "second", while),
			node("second", taint)),
			reconciletest.Wait(2*time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*corev1.Pod](s, "pods", "default", "a")
			_, err2 := there[*corev1.Pod](s, "pods", "default", "c")
			return errors.Join(err, err2, gone[*corev1.Pod](s, "pods", "default", "b"),
				gone[*corev1.Pod](s, "pods", "default", "d"))
		},
	})
}

// kubelet says once that a node is well, and then renews a Lease every ten seconds.
func kubelet(name string) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(cfg)
		leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &name}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for said := false; ; {
			n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err == nil && !said {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
					LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
				_, err := client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
				said = err == nil
			}
			lease.Spec.RenewTime = new(metav1.NowMicro())
			if lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(10 * time.Second):
			}
		}
	}
}

func TestNodeLifecycle(t *testing.T) {
	silent := reconciletest.StepFunc("one is ready once", func(ctx context.Context, cfg *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes()
		n, err := client.Get(ctx, "second", metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		_, err = client.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
	check(t, names.NodeLifecycleController, reconciletest.Scenario{
		Server: reconciletest.Options{Namespaces: []string{"default", corev1.NamespaceNodeLease}},
		World:  &reconciletest.World{Except: []string{"nodes"}},
		Beside: []func(context.Context, *rest.Config) error{kubelet("first")},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(node("first", "") + node("second", "") +
			podOn("a", "first", "") + podOn("b", "second", ""))[0], silent, reconciletest.Wait(5 * time.Minute)},
		Settled: func(s *reconciletest.Server) error {
			second, err := there[*corev1.Node](s, "nodes", "", "second")
			if err != nil {
				return err
			}
			tainted := slices.ContainsFunc(second.Spec.Taints, func(t corev1.Taint) bool {
				return t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute
			})
			return want("tainted", tainted, true)
		},
	})
}
