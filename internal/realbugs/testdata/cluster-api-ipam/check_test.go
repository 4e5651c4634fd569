package check

import (
	"errors"
	"fmt"
	"testing"

	"sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"
	ipamv1 "sigs.k8s.io/cluster-api/exp/ipam/api/v1beta1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// pool is one of addresses of a kind; in is the namespace, as a field of its metadata, or nothing.
func pool(kind, name, in, spec string) string {
	return fmt.Sprintf(`
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: %s
metadata: {name: %s%s}
spec: {%s}
---
`, kind, name, in, spec)
}

// address is one of a pool, as the controller of claims makes it for a claim of its name.
func address(name, namespace, kind, of, is string) string {
	return fmt.Sprintf(`
apiVersion: ipam.cluster.x-k8s.io/v1beta1
kind: IPAddress
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  claimRef: {name: %[1]s}
  poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: %[3]s, name: %[4]s}
  address: %[5]s
  prefix: 24
  gateway: 10.0.0.1
---
`, name, namespace, kind, of, is)
}

const (
	ipAddresses = "ipaddresses.ipam.cluster.x-k8s.io"
	namespaced  = "inclusterippools.ipam.cluster.x-k8s.io"
	global      = "globalinclusterippools.ipam.cluster.x-k8s.io"
)

// counted returns an error unless the addresses of a pool are counted as they are.
func counted(name string, is *v1alpha2.InClusterIPPoolStatusIPAddresses, total, used, outOfRange int) error {
	if is == nil {
		return fmt.Errorf("nothing is counted of %s", name)
	}
	return want("the addresses of "+name, *is, v1alpha2.InClusterIPPoolStatusIPAddresses{Total: total,
		Free: total - used, Used: used, OutOfRange: outOfRange})
}

// TestInClusterIPPool: a pool counts its addresses. It gets a smaller range, in which one of them is not; another pool
// goes when its last address has gone.
func TestInClusterIPPool(t *testing.T) {
	const kind = "InClusterIPPool"
	of := func(name, spec string) string { return pool(kind, name, ", namespace: default", spec) }
	check(t, pools, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(
			of("nodes", "addresses: [10.0.0.10-10.0.0.19], prefix: 24, gateway: 10.0.0.1")+
				of("old", "addresses: [10.0.1.0/28], prefix: 28"),
			address("first", "default", kind, "nodes", "10.0.0.10")+
				address("second", "default", kind, "nodes", "10.0.0.19")+
				address("gone", "default", kind, "old", "10.0.1.2"),
			of("nodes", "addresses: [10.0.0.10-10.0.0.15], excludedAddresses: [10.0.0.12], prefix: 24, "+
				"gateway: 10.0.0.1")),
			reconciletest.Delete(ipAddresses, "default", "gone"), reconciletest.Delete(namespaced, "default", "old"),
			reconciletest.Delete(ipAddresses, "default", "first")),
		Settled: func(s *reconciletest.Server) error {
			p, err := there[*v1alpha2.InClusterIPPool](s, "inclusterippools", "default", "nodes")
			if err != nil {
				return err
			}
			return errors.Join(counted("nodes", p.Status.Addresses, 5, 1, 1),
				gone[*v1alpha2.InClusterIPPool](s, "inclusterippools", "default", "old"),
				gone[*ipamv1.IPAddress](s, ipAddresses, "default", "first"))
		},
	})
}

// TestGlobalInClusterIPPool: a pool counts the addresses that all namespaces have of it, and has more of its own later.
// Another one goes, and a third one comes.
func TestGlobalInClusterIPPool(t *testing.T) {
	const kind = "GlobalInClusterIPPool"
	of := func(name, spec string) string { return pool(kind, name, "", spec) }
	check(t, globalPools, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(
			of("nodes", "addresses: [10.0.0.10-10.0.0.19], prefix: 24, gateway: 10.0.0.1")+
				of("old", "addresses: [10.0.1.0/28], prefix: 28"),
			address("first", "default", kind, "nodes", "10.0.0.10")+
				address("first", "other", kind, "nodes", "10.0.0.11")+
				address("third", "other", kind, "nodes", "10.0.0.12"),
			of("nodes", "addresses: [10.0.0.10-10.0.0.19, 10.0.0.100], prefix: 24, gateway: 10.0.0.1")),
			reconciletest.Delete(global, "", "old"), reconciletest.Delete(ipAddresses, "default", "first"),
			reconciletest.ApplyYAML(
				of("new", "addresses: [10.0.2.0/28], allocateReservedIPAddresses: true, prefix: 28") +
					address("fourth", "default", kind, "new", "10.0.2.0"))[0]),
		Settled: func(s *reconciletest.Server) error {
			p, err := there[*v1alpha2.GlobalInClusterIPPool](s, "globalinclusterippools", "", "nodes")
			if err != nil {
				return err
			}
			n, err := there[*v1alpha2.GlobalInClusterIPPool](s, "globalinclusterippools", "", "new")
			if err != nil {
				return err
			}
			return errors.Join(counted("nodes", p.Status.Addresses, 11, 2, 0),
				counted("new", n.Status.Addresses, 16, 1, 0),
				gone[*v1alpha2.GlobalInClusterIPPool](s, "globalinclusterippools", "", "old"))
		},
	})
}
