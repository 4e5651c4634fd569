package check

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	apiutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const requests = "certificaterequests.cert-manager.io"

func TestApprover(t *testing.T) {
	check(t, "certificaterequests-approver", nil, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(requestOf("a", "ca", "")+requestOf("b", "ca", ""),
			requestOf("c", "other", "")), reconciletest.Delete(requests, "default", "a")),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"b", "c"} {
				cr, err := there[*cmapi.CertificateRequest](s, requests, "default", name)
				if err == nil {
					err = want(name+" is approved", apiutil.CertificateRequestIsApproved(cr), true)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// ready says that requests have been answered.
func ready(names ...string) func(*reconciletest.Server) error {
	return func(s *reconciletest.Server) error {
		for _, name := range names {
			cr, err := there[*cmapi.CertificateRequest](s, requests, "default", name)
			if err == nil {
				err = errors.Join(want(name, apiutil.CertificateRequestReadyReason(cr),
					cmapi.CertificateRequestReasonIssued), want("signed", len(cr.Status.Certificate) > 0, true))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// unsigned takes out certificates, whose serial numbers and signatures are random.
func unsigned(o *unstructured.Unstructured) {
	unstructured.RemoveNestedField(o.Object, "status", "certificate")
	if o.GetKind() == "CertificateRequest" {
		unstructured.RemoveNestedField(o.Object, "status", "ca")
	}
}

func TestRequestsOfCA(t *testing.T) {
	check(t, "certificaterequests-issuer-ca", []string{"certificaterequests-approver", "issuers"},
		reconciletest.Scenario{
			Steps: append(reconciletest.ApplyYAML(requestOf("a", "ca", "")+requestOf("b", "ca", ""),
				issuerOf("Issuer", "ca", "ca: {secretName: ca}")+
					secretOf("default", "ca", made().caCert, made().caKey), requestOf("c", "ca", "")),
				reconciletest.Delete(requests, "default", "b")),
			Settled: ready("a", "c"),
			Mask:    unsigned,
		})
}

func TestRequestsOfSelfSigned(t *testing.T) {
	const by = "cert-manager.io/private-key-secret-name: key"
	check(t, "certificaterequests-issuer-selfsigned", []string{"certificaterequests-approver", "issuers"},
		reconciletest.Scenario{
			Steps: append(reconciletest.ApplyYAML(requestOf("a", "self", by)+requestOf("b", "self", by),
				issuerOf("Issuer", "self", "selfSigned: {}"), secretOf("default", "key", nil, made().key)),
				reconciletest.Delete(requests, "default", "b")),
			Settled: ready("a"),
			Mask:    unsigned,
		})
}

// signingRequestOf is a CertificateSigningRequest of Kubernetes to an Issuer.
func signingRequestOf(name string) string {
	return fmt.Sprintf(`
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: %s}
spec:
  request: %q
  signerName: issuers.cert-manager.io/default.ca
  usages: [digital signature, server auth]
---
`, name, base64.StdEncoding.EncodeToString(made().request))
}

// approve is what an administrator does.
func approve(name string) reconciletest.Step {
	return reconciletest.StepFunc("approve "+name, func(ctx context.Context, cfg *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(cfg).CertificatesV1().CertificateSigningRequests()
		r, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range r.Status.Conditions {
			if c.Type == certificatesv1.CertificateApproved {
				return nil
			}
		}
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Approved"})
		_, err = client.UpdateApproval(ctx, name, r, metav1.UpdateOptions{})
		return err
	})
}

func TestSigningRequestsOfCA(t *testing.T) {
	check(t, "certificatesigningrequests-issuer-ca", []string{"issuers"}, reconciletest.Scenario{
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(signingRequestOf("a") + signingRequestOf("b"))[0],
			approve("a"), reconciletest.ApplyYAML(issuerOf("Issuer", "ca", "ca: {secretName: ca}") +
				secretOf("default", "ca", made().caCert, made().caKey))[0]},
		Settled: func(s *reconciletest.Server) error {
			a, err := there[*certificatesv1.CertificateSigningRequest](s, "certificatesigningrequests", "", "a")
			b, err2 := there[*certificatesv1.CertificateSigningRequest](s, "certificatesigningrequests", "", "b")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return errors.Join(want("a is signed", len(a.Status.Certificate) > 0, true),
				want("b is signed", len(b.Status.Certificate) > 0, false))
		},
		Mask: unsigned,
	})
}
