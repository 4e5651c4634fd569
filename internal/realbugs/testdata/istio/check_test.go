package check

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"istio.io/istio/pilot/pkg/config/kube/gatewaycommon"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// custom is a custom resource.
type custom = *unstructured.Unstructured

// addresses are those that a ServiceEntry has been given.
func addresses(o custom) []any {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "addresses") // none, if it is no list
	return all
}

// TestIPAllocator: which addresses are given depends on which were given before, so they are not compared. Two
// ServiceEntries may have one address for a while, until the allocator finds that.
func TestIPAllocator(t *testing.T) {
	entry := func(name, labels string, hosts string) string {
		return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: default, labels: {%s}}
spec:
  hosts: [%s]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: DNS
---
`, name, labels, hosts)
	}
	check(t, allocator, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(entry("a", "", "a.example.com")+entry("b", "", "b.example.com"),
			entry("a", "", "a.example.com, www.a.example.com")+entry("c", "", "c.example.com"),
			entry("b", "networking.istio.io/enable-autoallocate-ip: 'false'", "b.example.com")),
			reconciletest.Delete("serviceentries", "default", "c")),
		Mask: func(o custom) {
			if all := addresses(o); o.GetKind() == "ServiceEntry" && len(all) > 0 {
				for _, a := range all {
					delete(a.(map[string]any), "value")
				}
				_ = unstructured.SetNestedSlice(o.Object, all, "status", "addresses") // it is a list
			}
		},
		Settled: func(s *reconciletest.Server) error {
			a, err := there[custom](s, "serviceentries", "default", "a")
			b, err2 := there[custom](s, "serviceentries", "default", "b")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return errors.Join(gone[custom](s, "serviceentries", "default", "c"),
				want("addresses of a", len(addresses(a)), 4), want("addresses of b", len(addresses(b)), 0))
		},
	}, "serviceentries")
}

// TestNodeUntainter: nodes are tainted until the pod of Istio's DaemonSet is ready on them.
func TestNodeUntainter(t *testing.T) {
	node := func(name string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s}
spec:
  taints:
  - {key: example.com/gpu, effect: NoSchedule}
  - {key: cni.istio.io/not-ready, effect: NoSchedule}
---
`, name)
	}
	daemons := func(image string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: istio-cni-node, namespace: istio-system}
spec:
  selector: {matchLabels: {k8s-app: istio-cni-node}}
  template:
    metadata: {labels: {k8s-app: istio-cni-node}}
    spec:
      containers: [{name: install-cni, image: %s}]
      tolerations: [{operator: Exists}]
---
`, image)
	}
	check(t, untainter, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(node("first")+daemons("one"), node("second"), daemons("two")),
			reconciletest.Delete("nodes", "", "first")),
		Settled: func(s *reconciletest.Server) error {
			n, err := there[*corev1.Node](s, "nodes", "", "second")
			if err != nil {
				return err
			}
			of := func(key string) bool {
				return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
			}
			return errors.Join(gone[*corev1.Node](s, "nodes", "", "first"),
				want("the taint of Istio is there", of("cni.istio.io/not-ready"), false),
				want("the taint of a user is there", of("example.com/gpu"), true))
		},
	})
}

// TestValidation: a webhook that fails open fails closed when the validation works.
func TestValidation(t *testing.T) {
	configuration := func(name, labels string) string {
		return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %s, labels: {istio.io/rev: default, %s}}
webhooks:
- name: validation.istio.io
  clientConfig: {service: {name: istiod, namespace: istio-system, path: /validate}}
  rules:
  - operations: [CREATE, UPDATE]
    apiGroups: [networking.istio.io]
    apiVersions: ["*"]
    resources: ["*"]
  failurePolicy: Ignore
  sideEffects: None
  admissionReviewVersions: [v1]
---
`, name, labels)
	}
	const resource = "validatingwebhookconfigurations"
	check(t, validator, reconciletest.Scenario{
		Server: reconciletest.Options{Webhooks: map[string]http.Handler{"istiod.istio-system.svc": webhook()}},
		Steps: append(reconciletest.ApplyYAML(configuration("istiod-default-validator", ""),
			configuration("istio-validator-istio-system", ""),
			configuration("istiod-default-validator", "app: istiod")),
			reconciletest.Delete(resource, "", "istio-validator-istio-system")),
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*admissionv1.ValidatingWebhookConfiguration](s, resource, "", "istiod-default-validator")
			if err != nil {
				return err
			}
			return errors.Join(
				gone[*admissionv1.ValidatingWebhookConfiguration](s, resource, "", "istio-validator-istio-system"),
				want("policy", *c.Webhooks[0].FailurePolicy, admissionv1.Fail),
				want("the bundle is that of the CA", string(c.Webhooks[0].ClientConfig.CABundle) == string(authority()),
					true))
		},
	}, "gateways")
}

// TestRootCertificates: each namespace has the certificate of the CA in a ConfigMap.
func TestRootCertificates(t *testing.T) {
	named := func(name, labels string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}}\n---\n", name, labels)
	}
	const foreign = `
apiVersion: v1
kind: ConfigMap
metadata: {name: istio-ca-root-cert, namespace: team}
data: {root-cert.pem: another one, mine: kept}
---
`
	check(t, roots, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(named("team", "")+named("old", ""), foreign,
			named("team", "mine: 'yes'")),
			reconciletest.Delete("configmaps", "default", "istio-ca-root-cert"),
			reconciletest.Delete("namespaces", "", "old")),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"default", system, "team"} {
				m, err := there[*corev1.ConfigMap](s, "configmaps", name, "istio-ca-root-cert")
				if err != nil {
					return err
				}
				if err := want("the certificate is that of the CA", m.Data["root-cert.pem"] == string(authority()),
					true); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return gone[*corev1.Namespace](s, "namespaces", "", "old")
		},
	})
}

// TestGatewayClasses: Istio makes its classes, and leaves them to users after that.
func TestGatewayClasses(t *testing.T) {
	class := func(name, controller, description string) string {
		return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: %s}
spec: {controllerName: %s, description: %s}
---
`, name, controller, description)
	}
	const resource = "gatewayclasses"
	check(t, classes, reconciletest.Scenario{
		Server: reconciletest.Options{Resources: []reconciletest.Resource{{Kind: "GatewayClass", ClusterScoped: true,
			Status: true, GroupVersionResource: schema.GroupVersionResource{Group: "gateway.networking.k8s.io",
				Version: "v1", Resource: resource}}}},
		Steps: append(reconciletest.ApplyYAML(class("mine", "example.com/mine", "mine")),
			reconciletest.Delete(resource, "", "istio-waypoint"),
			reconciletest.ApplyYAML(class("istio", "istio.io/gateway-controller", "ours"))[0],
			reconciletest.Delete(resource, "", "mine")),
		Settled: func(s *reconciletest.Server) error {
			for name := range gatewaycommon.AllClasses {
				if _, err := there[custom](s, resource, "", string(name)); err != nil {
					return err
				}
			}
			ours, err := there[custom](s, resource, "", "istio")
			if err != nil {
				return err
			}
			description, _, _ := unstructured.NestedString(ours.Object, "spec", "description") // empty, if it is none
			return errors.Join(want("description", description, "ours"), gone[custom](s, resource, "", "mine"))
		},
	})
}
