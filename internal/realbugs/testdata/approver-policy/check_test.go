package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"testing"

	cmutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	policyapi "github.com/cert-manager/approver-policy/pkg/apis/policy/v1alpha1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// policy allows an issuer to sign for the names that match a pattern.
func policy(name, issuer, pattern string) string {
	return fmt.Sprintf(`
apiVersion: policy.cert-manager.io/v1alpha1
kind: CertificateRequestPolicy
metadata: {name: %s}
spec:
  allowed: {commonName: {value: %q}}
  selector: {issuerRef: {name: %s, kind: Issuer, group: cert-manager.io}}
---
`, name, pattern, issuer)
}

// request asks an issuer to sign for a name. It has what cert-manager's webhook would default.
func request(t *testing.T, name, issuer, common string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: common}}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: asked})
	return fmt.Sprintf(`
apiVersion: cert-manager.io/v1
kind: CertificateRequest
metadata: {name: %s, namespace: default}
spec:
  request: %s
  issuerRef: {name: %s, kind: Issuer, group: cert-manager.io}
  username: jane
  groups: [developers]
---
`, name, base64.StdEncoding.EncodeToString(text), issuer)
}

// TestCertificateRequests: a request waits until there is a policy for it. What is decided is decided for good, so that
// no policy is changed that decides.
func TestCertificateRequests(t *testing.T) {
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(policy("web", "web", "*.example.com")+policy("old", "old", "*")+
			request(t, "good", "web", "a.example.com")+request(t, "bad", "web", "a.example.org")+
			request(t, "early", "db", "db.example.net")+request(t, "old", "web", "b.example.com"),
			policy("db", "db", "*.example.net"), request(t, "late", "db", "late.example.net")),
			reconciletest.Delete("certificaterequestpolicies", "", "old"),
			reconciletest.Delete("certificaterequests", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*cmapi.CertificateRequest](s, "certificaterequests", "default", "old")}
			for name, approved := range map[string]bool{"good": true, "bad": false, "early": true, "late": true} {
				r, err := there[*cmapi.CertificateRequest](s, "certificaterequests", "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want(name+" is approved", cmutil.CertificateRequestIsApproved(r), approved),
					want(name+" is denied", cmutil.CertificateRequestIsDenied(r), !approved))
			}
			return errors.Join(errs...)
		},
	})
}

// TestCertificateRequestPolicies: each generation of a policy is ready.
func TestCertificateRequestPolicies(t *testing.T) {
	const resource = "certificaterequestpolicies"
	check(t, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(policy("web", "web", "*.example.com")+policy("old", "old", "*"),
			policy("web", "web", "*.example.org"), policy("db", "db", "*")),
			reconciletest.Delete(resource, "", "old")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*policyapi.CertificateRequestPolicy](s, resource, "", "old")}
			for _, name := range []string{"web", "db"} {
				p, err := there[*policyapi.CertificateRequestPolicy](s, resource, "", name)
				if err != nil {
					return err
				}
				ready := meta.FindStatusCondition(p.Status.Conditions, policyapi.ConditionTypeReady)
				if ready == nil {
					return fmt.Errorf("%s does not say whether it is ready", name)
				}
				errs = append(errs, want(name+" is ready", ready.Status, "True"),
					want("observed generation of "+name, ready.ObservedGeneration, p.Generation))
			}
			return errors.Join(errs...)
		},
	})
}
