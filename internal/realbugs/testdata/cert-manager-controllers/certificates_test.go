package check

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	apiutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// chain are the controllers that issue a Certificate of a CA together.
var chain = []string{"certificates-trigger", "certificates-readiness", "certificates-key-manager",
	"certificates-request-manager", "certificates-issuing", "certificates-revision-manager",
	"certificaterequests-approver", "certificaterequests-issuer-ca", "issuers"}

// checkOne runs one of the chain, beside all others, while a Certificate gets other names.
func checkOne(t *testing.T, name string) {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(chain), func(other string) bool { return other == name })
	check(t, name, others, reconciletest.Scenario{
		Steps: reconciletest.ApplyYAML(secretOf("default", "ca", made().caCert, made().caKey)+
			issuerOf("Issuer", "ca", "ca: {secretName: ca}")+certificateOf("a.example.com"),
			certificateOf("a.example.com", "b.example.com")),
		Settled: issued("a.example.com", "b.example.com"),
		Mask:    unlike,
	})
}

// unlike takes out what differs from run to run, since it is random: keys, requests and what is signed; and what counts
// how often a certificate was issued: revisions, and with them which CertificateRequests there are.
func unlike(o *unstructured.Unstructured) {
	switch o.GetKind() {
	case "Secret":
		delete(o.Object, "data")
	case "CertificateRequest":
		o.Object = nil
	case "Certificate":
		unstructured.RemoveNestedField(o.Object, "status", "revision")
	}
}

// issued says that the Certificate is there for names, and that nothing more is to be done.
func issued(names ...string) func(*reconciletest.Server) error {
	return func(s *reconciletest.Server) error {
		crt, err := there[*cmapi.Certificate](s, "certificates.cert-manager.io", "default", "web")
		secret, err2 := there[*corev1.Secret](s, "secrets", "default", "web")
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		block, _ := pem.Decode(secret.Data["tls.crt"])
		if block == nil {
			return errors.New("there is no certificate")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		is := func(of cmapi.CertificateConditionType) bool {
			return apiutil.CertificateHasCondition(crt, cmapi.CertificateCondition{Type: of,
				Status: cmmeta.ConditionTrue})
		}
		return errors.Join(want("names", cert.DNSNames, names),
			want("ready", is(cmapi.CertificateConditionReady), true),
			want("issuing", is(cmapi.CertificateConditionIssuing), false))
	}
}

func TestTrigger(t *testing.T) { checkOne(t, "certificates-trigger") }

func TestReadiness(t *testing.T) { checkOne(t, "certificates-readiness") }

func TestRequestManager(t *testing.T) { checkOne(t, "certificates-request-manager") }

func TestIssuing(t *testing.T) { checkOne(t, "certificates-issuing") }

func TestRevisionManager(t *testing.T) {
	others := slices.DeleteFunc(slices.Clone(chain), func(other string) bool {
		return other == "certificates-revision-manager"
	})
	check(t, "certificates-revision-manager", others, reconciletest.Scenario{
		Steps: reconciletest.ApplyYAML(secretOf("default", "ca", made().caCert, made().caKey)+
			issuerOf("Issuer", "ca", "ca: {secretName: ca}")+certificateOf("a.example.com"),
			certificateOf("b.example.com"), certificateOf("c.example.com")),
		Settled: func(s *reconciletest.Server) error {
			all := reconciletest.List[*cmapi.CertificateRequest](s, "certificaterequests.cert-manager.io", "default")
			return errors.Join(issued("c.example.com")(s), want("requests that are kept", len(all), 1))
		},
		Mask: unlike,
	})
}
