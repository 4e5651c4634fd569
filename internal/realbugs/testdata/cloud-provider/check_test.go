package check

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// nodeOf is a Node, with more of its spec.
func nodeOf(name, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s}
spec: {%s}
---
`, name, spec)
}

// serviceOf is a Service with ports.
func serviceOf(name, kind string, ports ...int) string {
	text := fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec:
  type: %s
  selector: {app: web}
  ports:
`, name, kind)
	for _, port := range ports {
		text += fmt.Sprintf("  - {name: p%d, port: %d}\n", port, port)
	}
	return text + "---\n"
}

func TestService(t *testing.T) {
	check(t, services, reconciletest.Scenario{
		Outside: outside(nil),
		Steps: append(reconciletest.ApplyYAML(nodeOf("first", "providerID: example://first")+
			serviceOf("kept", "LoadBalancer", 80)+serviceOf("old", "LoadBalancer", 80)+
			serviceOf("inner", "LoadBalancer", 80),
			nodeOf("second", "providerID: example://second")+serviceOf("kept", "LoadBalancer", 80, 443),
			serviceOf("inner", "ClusterIP", 80)),
			reconciletest.Delete("services", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			kept, err := there[*corev1.Service](s, "services", "default", "kept")
			inner, err2 := there[*corev1.Service](s, "services", "default", "inner")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return errors.Join(gone[*corev1.Service](s, "services", "default", "old"),
				want("addresses", len(kept.Status.LoadBalancer.Ingress), 1),
				want("addresses of an inner service", len(inner.Status.LoadBalancer.Ingress), 0),
				want("its finalizers", len(inner.Finalizers), 0))
		},
	})
}

func TestNode(t *testing.T) {
	const fresh = "taints: [{key: node.cloudprovider.kubernetes.io/uninitialized, value: 'true', effect: NoSchedule}]"
	check(t, nodes, reconciletest.Scenario{
		Outside: outside(map[string]string{"/instances/first": `{"Address": "192.0.2.1"}`,
			"/instances/second": `{"Address": "192.0.2.2"}`}),
		Steps: append(reconciletest.ApplyYAML(nodeOf("first", fresh), nodeOf("second", fresh)),
			put("/instances/first", instance{Address: "192.0.2.11"}), reconciletest.Wait(10*time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			for name, address := range map[string]string{"first": "192.0.2.11", "second": "192.0.2.2"} {
				n, err := there[*corev1.Node](s, "nodes", "", name)
				if err != nil {
					return err
				}
				isNew := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
					return t.Key == "node.cloudprovider.kubernetes.io/uninitialized"
				})
				if err := errors.Join(want("it is new", isNew, false),
					want("instance", n.Spec.ProviderID, "example://"+name),
					want("zone", n.Labels[corev1.LabelTopologyZone], "a"),
					want("addresses", n.Status.Addresses, []corev1.NodeAddress{
						{Type: corev1.NodeInternalIP, Address: address}})); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return nil
		},
	})
}

func TestNodeLifecycle(t *testing.T) {
	check(t, nodeLives, reconciletest.Scenario{
		Outside: outside(map[string]string{"/instances/first": `{}`, "/instances/second": `{}`,
			"/instances/third": `{}`}),
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(nodeOf("first", "") + nodeOf("second", "") +
			nodeOf("third", ""))[0], put("/instances/second", instance{Off: true}), reconciletest.Wait(time.Minute),
			remove("/instances/third"), reconciletest.Wait(time.Minute)},
		Settled: func(s *reconciletest.Server) error {
			first, err := there[*corev1.Node](s, "nodes", "", "first")
			second, err2 := there[*corev1.Node](s, "nodes", "", "second")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			off := func(n *corev1.Node) bool {
				return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
					return t.Key == "node.cloudprovider.kubernetes.io/shutdown"
				})
			}
			return errors.Join(gone[*corev1.Node](s, "nodes", "", "third"), want("first is off", off(first), false),
				want("second is off", off(second), true))
		},
	})
}

func TestRoute(t *testing.T) {
	of := func(name string, number int) string {
		pods := fmt.Sprintf("10.244.%d.0/24", number)
		return nodeOf(name, "podCIDR: "+pods+", podCIDRs: ["+pods+"]")
	}
	check(t, routes, reconciletest.Scenario{
		Outside: outside(map[string]string{"/routes/foreign": `{"Node": "foreign", "CIDR": "10.0.0.0/24"}`}),
		Steps: append(reconciletest.ApplyYAML(of("first", 1)+of("second", 2), of("third", 3)),
			reconciletest.Delete("nodes", "", "second"), reconciletest.Wait(time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"first", "third"} {
				n, err := there[*corev1.Node](s, "nodes", "", name)
				if err != nil {
					return err
				}
				reached := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
					return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionFalse
				})
				if err := want(name+" is reached", reached, true); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
