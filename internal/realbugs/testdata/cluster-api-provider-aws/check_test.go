package check

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	infrav1 "sigs.k8s.io/cluster-api-provider-aws/v2/api/v1beta2"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// TestManagedCluster: the infrastructure of a cluster of EKS has the endpoint of its control plane. One cluster comes
// later, another one goes. Nothing is switched off; no schedule begins after a minute.
func TestManagedCluster(t *testing.T) {
	of := func(name string) string {
		return fmt.Sprintf(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %[1]s, namespace: default}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSManagedCluster, name: %[1]s}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: AWSManagedControlPlane, name: %[1]s}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: AWSManagedCluster
metadata: {name: %[1]s, namespace: default}
spec: {}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: AWSManagedControlPlane
metadata: {name: %[1]s, namespace: default}
spec: {region: eu-central-1}
---
`, name)
	}
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Namespaces: []string{"default"}},
		Beside: []func(context.Context, *rest.Config) error{core},
		Limit:  time.Minute,
		Steps: append(reconciletest.ApplyYAML(of("one")+of("old"), of("two")),
			reconciletest.Delete("clusters.cluster.x-k8s.io", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*infrav1.AWSManagedCluster](s, "awsmanagedclusters", "default", "old")}
			for _, name := range []string{"one", "two"} {
				c, err := there[*infrav1.AWSManagedCluster](s, "awsmanagedclusters", "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want(name+" is ready", c.Status.Ready, true),
					want("endpoint of "+name, c.Spec.ControlPlaneEndpoint.Host, name+".eks.example.com"))
			}
			return errors.Join(errs...)
		},
	})
}
