package check

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

// TestIPAddressAllocation: a node has the addresses that were allocated for it. One allocation comes before its node,
// another one after it, and a node goes with its own. Nothing is switched off; no schedule begins after a minute.
func TestIPAddressAllocation(t *testing.T) {
	node := func(name string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %[1]s, labels: {kubernetes.io/hostname: %[1]s}}
---
`, name)
	}
	allocation := func(name string) string {
		return fmt.Sprintf(`
apiVersion: crd.nsx.vmware.com/v1alpha1
kind: IPAddressAllocation
metadata: {name: %s, namespace: %s}
spec: {ipAddressBlockVisibility: Private, allocationSize: 256}
---
`, name, supervisor)
	}
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{Kinds: builtin.Kinds(), Namespaces: []string{"default", supervisor},
			Resources: []reconciletest.Resource{{Kind: "IPAddressAllocation", Status: true,
				GroupVersionResource: resource}}},
		Beside: []func(context.Context, *rest.Config) error{nsx},
		Limit:  time.Minute,
		Steps: append(reconciletest.ApplyYAML(node("one")+allocation("one")+node("old")+allocation("old")+node("two"),
			allocation("two")+allocation("three"), node("three")),
			reconciletest.Delete("nodes", "", "old"),
			reconciletest.Delete("ipaddressallocations.crd.nsx.vmware.com", supervisor, "old")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*corev1.Node](s, "nodes", "", "old")}
			for _, name := range []string{"one", "two", "three"} {
				n, err := there[*corev1.Node](s, "nodes", "", name)
				if err != nil {
					return err
				}
				errs = append(errs, want("addresses of "+name, n.Spec.PodCIDR, addresses[name]))
			}
			return errors.Join(errs...)
		},
	})
}
