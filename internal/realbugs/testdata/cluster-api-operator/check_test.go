package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"

	operatorv1 "sigs.k8s.io/cluster-api-operator/api/v1alpha2"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// release is a ConfigMap with a version of a provider: a Deployment and its service account.
func release(of, version string) string {
	components := fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s-manager, namespace: %[3]s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s-controller-manager, namespace: %[3]s}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {serviceAccountName: %[1]s-manager, containers: [{name: manager, image: "registry.example.com/%[1]s:%[2]s"}]}
`, of, version, system)
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: %s-%s
  namespace: %s
  labels: {release-of: %s, provider.cluster.x-k8s.io/version: %s}
data:
  metadata: |
    apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
    kind: Metadata
    releaseSeries: [{major: 1, minor: 13, contract: v1beta2}]
  components: |
    %s
---
`, of, version, system, of, version, strings.ReplaceAll(components, "\n", "\n    "))
}

// provider asks for a version of one, with more in its spec.
func provider(kind, name, version, more string) string {
	return fmt.Sprintf(`
apiVersion: operator.cluster.x-k8s.io/v1alpha2
kind: %s
metadata: {name: %s, namespace: %s}
spec: {version: %s, fetchConfig: {selector: {matchLabels: {release-of: %s}}}%s}
---
`, kind, name, system, version, name, more)
}

// runs returns an error unless the Deployment of a provider has so many replicas of a version.
func runs(s *reconciletest.Server, name, version string, replicas int) error {
	d, err := there[*appsv1.Deployment](s, "deployments", system, name+"-controller-manager")
	if err != nil {
		return err
	}
	return errors.Join(want("replicas of "+name, d.Status.AvailableReplicas, replicas),
		want("image of "+name, d.Spec.Template.Spec.Containers[0].Image, "registry.example.com/"+name+":"+version))
}

// TestCoreProvider: Cluster API is upgraded, gets one more replica, and is installed anew.
func TestCoreProvider(t *testing.T) {
	const name, resource, first, second = "cluster-api", "coreproviders", "v1.13.0", "v1.13.1"
	of := func(version, more string) string { return provider("CoreProvider", name, version, more) }
	check(t, core, reconciletest.Scenario{
		Steps: append(append(reconciletest.ApplyYAML(release(name, first)+of(first, ""),
			release(name, second)+of(second, ""), of(second, ", deployment: {replicas: 2}")),
			reconciletest.Delete(resource, system, name)), reconciletest.ApplyYAML(of(second, ""))...),
		Settled: func(s *reconciletest.Server) error {
			p, err := there[*operatorv1.CoreProvider](s, resource, system, name)
			if err != nil {
				return err
			}
			if p.Status.InstalledVersion == nil {
				return errors.New("no version is installed")
			}
			return errors.Join(want("version", *p.Status.InstalledVersion, second), runs(s, name, second, 1))
		},
	})
}

// TestInfrastructureProvider: a provider waits for Cluster API, gets one more replica, and other flags.
func TestInfrastructureProvider(t *testing.T) {
	const resource, version = "infrastructureproviders", "v1.13.0"
	of := func(name, more string) string { return provider("InfrastructureProvider", name, version, more) }
	check(t, infrastructure, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{installs},
		Steps: append(reconciletest.ApplyYAML(release("metal", version)+release("old", version)+of("metal", "")+
			of("old", ""), provider("CoreProvider", "cluster-api", version, ""),
			of("metal", ", deployment: {replicas: 2}"),
			of("metal", ", deployment: {replicas: 2}, manager: {verbosity: 5}")),
			reconciletest.Delete(resource, system, "old")),
		Settled: func(s *reconciletest.Server) error {
			p, err := there[*operatorv1.InfrastructureProvider](s, resource, system, "metal")
			if err != nil {
				return err
			}
			return errors.Join(want("a version of metal is installed", p.Status.InstalledVersion != nil, true),
				runs(s, "metal", version, 2), gone[*operatorv1.InfrastructureProvider](s, resource, system, "old"),
				gone[*appsv1.Deployment](s, "deployments", system, "old-controller-manager"))
		},
	})
}
