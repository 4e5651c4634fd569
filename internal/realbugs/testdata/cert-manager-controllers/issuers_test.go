package check

import (
	"errors"
	"testing"

	apiutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// usable says whether an issuer is ready for its spec as it is.
func usable(i cmapi.GenericIssuer) error {
	is := apiutil.IssuerHasCondition(i, cmapi.IssuerCondition{Type: cmapi.IssuerConditionReady,
		Status: cmmeta.ConditionTrue})
	return want(i.GetName()+" is ready", is, true)
}

func TestIssuers(t *testing.T) {
	check(t, "issuers", nil, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(issuerOf("Issuer", "ca", "ca: {secretName: ca}")+
			issuerOf("Issuer", "self", "selfSigned: {}")+issuerOf("Issuer", "old", "selfSigned: {}"),
			secretOf("default", "ca", made().caCert, made().caKey),
			issuerOf("Issuer", "self", "ca: {secretName: ca}")),
			reconciletest.Delete("issuers.cert-manager.io", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			ca, err := there[*cmapi.Issuer](s, "issuers.cert-manager.io", "default", "ca")
			self, err2 := there[*cmapi.Issuer](s, "issuers.cert-manager.io", "default", "self")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return errors.Join(usable(ca), usable(self))
		},
	})
}

func TestClusterIssuers(t *testing.T) {
	check(t, "clusterissuers", nil, reconciletest.Scenario{
		Server: reconciletest.Options{Namespaces: []string{"default", "cert-manager"}},
		Steps: append(reconciletest.ApplyYAML(issuerOf("ClusterIssuer", "ca", "ca: {secretName: ca}")+
			issuerOf("ClusterIssuer", "self", "selfSigned: {}"),
			secretOf("cert-manager", "ca", made().caCert, made().caKey)),
			reconciletest.Delete("clusterissuers.cert-manager.io", "", "self")),
		Settled: func(s *reconciletest.Server) error {
			ca, err := there[*cmapi.ClusterIssuer](s, "clusterissuers.cert-manager.io", "", "ca")
			if err != nil {
				return err
			}
			return usable(ca)
		},
	})
}

// ingressOf has certificates for some hosts, each in a Secret of its own.
func ingressOf(hosts ...string) string {
	text := `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: default, annotations: {cert-manager.io/issuer: ca}}
spec:
  defaultBackend: {service: {name: web, port: {number: 80}}}
  tls:
`
	for _, host := range hosts {
		text += "  - {hosts: [" + host + ".example.com], secretName: " + host + "}\n"
	}
	return text
}

func TestIngressShim(t *testing.T) {
	check(t, "ingress-shim", nil, reconciletest.Scenario{
		Steps: reconciletest.ApplyYAML(ingressOf("a", "b"), ingressOf("a", "b", "c"), ingressOf("a", "c")),
		Settled: func(s *reconciletest.Server) error {
			var names []string
			for _, c := range reconciletest.List[*cmapi.Certificate](s, "certificates.cert-manager.io", "default") {
				names = append(names, c.Spec.DNSNames...)
			}
			return want("names", names, []string{"a.example.com", "c.example.com"})
		},
	})
}
