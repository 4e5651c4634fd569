package check

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/set"

	netv1alpha1 "knative.dev/networking/pkg/apis/networking/v1alpha1"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/serving/pkg/client/certmanager/injection/informers/acme/v1/challenge"
	cmcertificate "knative.dev/serving/pkg/client/certmanager/injection/informers/certmanager/v1/certificate"
	"knative.dev/serving/pkg/client/certmanager/injection/informers/certmanager/v1/certificaterequest"
	"knative.dev/serving/pkg/client/certmanager/injection/informers/certmanager/v1/clusterissuer"
	"knative.dev/serving/pkg/client/certmanager/injection/informers/certmanager/v1/issuer"
	"knative.dev/serving/pkg/reconciler/certificate"
	"knative.dev/serving/pkg/reconciler/nscert"
	"knative.dev/serving/pkg/reconciler/serverlessservice"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// Two resources are named certificates.
const (
	certificates = "certificates.networking.internal.knative.dev"
	toIssue      = "certificates.cert-manager.io"
)

// TestNamespaceCertificate: a namespace with a label has a certificate for all hosts in it.
func TestNamespaceCertificate(t *testing.T) {
	named := func(name, labels string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}}\n---\n", name, labels)
	}
	const wanted = "wildcard: 'yes'"
	check(t, nscert.NewController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(named("team", wanted)+named("shop", "")+named("old", wanted),
			named("team", "")+named("shop", wanted)), reconciletest.Delete("namespaces", "", "old")),
		Settled: func(s *reconciletest.Server) error {
			all := reconciletest.List[*netv1alpha1.Certificate](s, certificates, "")
			if err := want("certificates", len(all), 1); err != nil {
				return err
			}
			return errors.Join(want("namespace", all[0].Namespace, "shop"),
				want("hosts", all[0].Spec.DNSNames, []string{"*.shop.example.com"}),
				gone[*corev1.Namespace](s, "namespaces", "", "old"))
		},
	}, map[string]string{"domain": "  example.com: ''\n",
		"network": "  namespace-wildcard-cert-selector: '{matchLabels: {" + `wildcard: "yes"` + "}}'\n"})
}

// TestServerlessService: a service leads to the pods of a Deployment, or to the activators as long as there are none.
func TestServerlessService(t *testing.T) {
	deployment := func(namespace, name string, replicas int) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec:
      containers:
      - name: queue-proxy
        image: one
        ports:
        - {name: queue-port, containerPort: 8012}
        - {name: http-autometric, containerPort: 9090}
        - {name: http-usermetric, containerPort: 9091}
---
`, name, namespace, replicas, name, name)
	}
	const activators = `
apiVersion: v1
kind: Service
metadata: {name: activator-service, namespace: knative-serving}
spec: {selector: {app: activator}, ports: [{name: http, port: 80, targetPort: 8012}]}
---
`
	of := func(name, mode, to string) string {
		return fmt.Sprintf(`
apiVersion: networking.internal.knative.dev/v1alpha1
kind: ServerlessService
metadata: {name: %s, namespace: default}
spec: {mode: %s, objectRef: {apiVersion: apps/v1, kind: Deployment, name: %s}, protocolType: http1}
---
`, name, mode, to)
	}
	const resource = "serverlessservices"
	// One holds a lock while it waits for the first list of Deployments, for which virtual time cannot pass if another
	// one waits for the lock.
	threads := controller.DefaultThreadsPerController
	t.Cleanup(func() { controller.DefaultThreadsPerController = threads })
	controller.DefaultThreadsPerController = 1
	check(t, serverlessservice.NewController, reconciletest.Scenario{
		World: &reconciletest.World{},
		Steps: append(reconciletest.ApplyYAML(activators+deployment(system, "activator", 1)+
			deployment("default", "web", 0)+of("web", "Proxy", "web")+of("old", "Serve", "web"),
			deployment("default", "web", 2), of("web", "Serve", "web")),
			reconciletest.Delete(resource, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			is, err := there[*netv1alpha1.ServerlessService](s, resource, "default", "web")
			if err != nil {
				return err
			}
			e, err := there[*corev1.Endpoints](s, "endpoints", "default", "web")
			if err != nil {
				return err
			}
			addresses := set.New[string]()
			for _, subset := range e.Subsets {
				for _, a := range subset.Addresses {
					addresses.Insert(a.IP)
				}
			}
			return errors.Join(want("the service is ready", is.IsReady(), true),
				want("its name", is.Status.ServiceName, "web"), want("addresses", addresses.Len(), 2),
				gone[*netv1alpha1.ServerlessService](s, resource, "default", "old"))
		},
	}, nil)
}

// TestCertificate: cert-manager issues what Knative needs.
func TestCertificate(t *testing.T) {
	// main registers them when the configuration asks for it.
	for _, i := range []injection.InformerInjector{challenge.WithInformer, cmcertificate.WithInformer,
		certificaterequest.WithInformer, clusterissuer.WithInformer, issuer.WithInformer} {
		injection.Default.RegisterInformer(i)
	}
	const ca = `
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: ca}
spec: {ca: {secretName: ca}}
---
`
	of := func(name, hosts string) string {
		return fmt.Sprintf(`
apiVersion: networking.internal.knative.dev/v1alpha1
kind: Certificate
metadata:
  name: %s
  namespace: default
  annotations: {networking.knative.dev/certificate.class: cert-manager.certificate.networking.knative.dev}
spec: {dnsNames: [%s], domain: example.com, secretName: %s}
---
`, name, hosts, name)
	}
	check(t, certificate.NewController, reconciletest.Scenario{
		Beside: beside{reports(issued, nil, "Ready")},
		Steps: append(reconciletest.ApplyYAML(ca+of("web", "web.example.com")+of("old", "old.example.com"),
			of("web", "web.example.com, www.example.com")), reconciletest.Delete(certificates, "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			k, err := there[*netv1alpha1.Certificate](s, certificates, "default", "web")
			if err != nil {
				return err
			}
			c, err := there[*unstructured.Unstructured](s, toIssue, "default", "web")
			if err != nil {
				return err
			}
			hosts, _, _ := unstructured.NestedStringSlice(c.Object, "spec", "dnsNames") // none, if there are none
			return errors.Join(want("the certificate is ready", k.IsReady(), true),
				want("hosts", hosts, []string{"web.example.com", "www.example.com"}),
				gone[*netv1alpha1.Certificate](s, certificates, "default", "old"))
		},
	}, map[string]string{"certmanager": "  issuerRef: '{kind: ClusterIssuer, name: ca}'\n"})
}
