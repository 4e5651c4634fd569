package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func namespace(name string) string {
	return fmt.Sprintf("\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", name)
}

func configMap(namespace, name, value string) string {
	return fmt.Sprintf("\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {key: %q}\n---\n",
		name, namespace, value)
}

func TestServiceAccount(t *testing.T) {
	check(t, names.ServiceAccountController, reconciletest.Scenario{
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(namespace("team"))[0],
			reconciletest.Delete("serviceaccounts", "team", "default"), reconciletest.ApplyYAML(namespace("other"))[0]},
		Settled: func(s *reconciletest.Server) error {
			for _, namespace := range []string{"default", "team", "other"} {
				if _, err := there[*corev1.ServiceAccount](s, "serviceaccounts", namespace, "default"); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// authority makes a certificate of an authority, and its key, in files.
func authority(t *testing.T) (certificate, key string, text []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Unix(0, 0),
		NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	text = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	certificate, key = filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "ca.key")
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
	if err := errors.Join(os.WriteFile(certificate, text, 0o600), os.WriteFile(key, private, 0o600)); err != nil {
		t.Fatal(err)
	}
	return certificate, key, text
}

func TestRootCACertificatePublisher(t *testing.T) {
	file, _, text := authority(t)
	check(t, names.RootCACertificatePublisherController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(namespace("team"), configMap("team", "kube-root-ca.crt", "edited")),
			reconciletest.Delete("configmaps", "team", "kube-root-ca.crt")),
		Settled: func(s *reconciletest.Server) error {
			for _, namespace := range []string{"default", "team"} {
				m, err := there[*corev1.ConfigMap](s, "configmaps", namespace, "kube-root-ca.crt")
				if err != nil {
					return err
				}
				if err := want(namespace, m.Data, map[string]string{"ca.crt": string(text)}); err != nil {
					return err
				}
			}
			return nil
		},
	}, func(o *configuration) { o.SAController.RootCAFile = file })
}

func TestClusterTrustBundlePublisher(t *testing.T) {
	file, _, text := authority(t)
	other := fmt.Sprintf(`
apiVersion: certificates.k8s.io/v1
kind: ClusterTrustBundle
metadata: {name: "example.com:signer:%%s"}
spec: {signerName: example.com/signer, trustBundle: %q}
`, text)
	stale := fmt.Sprintf(`
apiVersion: certificates.k8s.io/v1
kind: ClusterTrustBundle
metadata: {name: "kubernetes.io:kube-apiserver-serving:stale"}
spec: {signerName: kubernetes.io/kube-apiserver-serving, trustBundle: %q}
`, text)
	check(t, names.KubeAPIServerClusterTrustBundlePublisherController, reconciletest.Scenario{
		Steps: reconciletest.ApplyYAML(fmt.Sprintf(other, "one"), stale),
		Settled: func(s *reconciletest.Server) error {
			var signers []string
			for _, b := range reconciletest.List[*certificatesv1.ClusterTrustBundle](s, "clustertrustbundles", "") {
				signers = append(signers, b.Spec.SignerName)
			}
			slices.Sort(signers)
			return errors.Join(
				want("signers", signers, []string{"example.com/signer", "kubernetes.io/kube-apiserver-serving"}),
				gone[*certificatesv1.ClusterTrustBundle](s, "clustertrustbundles", "",
					"kubernetes.io:kube-apiserver-serving:stale"))
		},
	}, func(o *configuration) { o.SAController.RootCAFile = file })
}

// request is a CertificateSigningRequest, by a user with these common name and organization.
func request(t *testing.T, name, signer, commonName, organization, usages string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{
		CommonName: commonName, Organization: []string{organization}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return fmt.Sprintf(`
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: %s}
spec: {signerName: %s, usages: [%s], request: %s}
---
`, name, signer, usages, base64.StdEncoding.EncodeToString(text))
}

// everything answers a SubjectAccessReview: everybody may do everything.
func everything(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodPost {
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"authorization.k8s.io/v1",`+
			`"resources":[{"name":"subjectaccessreviews","kind":"SubjectAccessReview","verbs":["create"]}]}`)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{},`+
		`"status":{"allowed":true}}`)
}

// approved returns an error unless a request is approved, or not.
func approved(s *reconciletest.Server, name string, should bool) error {
	r, err := there[*certificatesv1.CertificateSigningRequest](s, "certificatesigningrequests", "", name)
	if err != nil {
		return err
	}
	return want(name+" is approved", slices.ContainsFunc(r.Status.Conditions,
		func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved
		}), should)
}

const client = "kubernetes.io/kube-apiserver-client-kubelet"

func TestCertificateApproving(t *testing.T) {
	check(t, names.CertificateSigningRequestApprovingController, reconciletest.Scenario{
		Server: reconciletest.Options{Aggregated: map[schema.GroupVersion]http.Handler{
			{Group: "authorization.k8s.io", Version: "v1"}: http.HandlerFunc(everything)}},
		Steps: append(reconciletest.ApplyYAML(
			request(t, "kubelet", client, "system:node:a", "system:nodes", "digital signature, client auth"),
			request(t, "user", client, "jane", "people", "digital signature, client auth")+
				request(t, "old", client, "system:node:b", "system:nodes", "digital signature, client auth")),
			reconciletest.Delete("certificatesigningrequests", "", "old")),
		Settled: func(s *reconciletest.Server) error {
			return errors.Join(approved(s, "kubelet", true), approved(s, "user", false))
		},
	})
}

func TestCertificateCleaner(t *testing.T) {
	requests := [2]string{}
	for i, name := range []string{"early", "late"} {
		requests[i] = request(t, name, client, "jane", "people", "digital signature, client auth")
	}
	check(t, names.CertificateSigningRequestCleanerController, reconciletest.Scenario{
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(requests[0])[0], reconciletest.Wait(20 * time.Hour),
			reconciletest.ApplyYAML(requests[1])[0], reconciletest.Wait(6 * time.Hour)},
		Settled: func(s *reconciletest.Server) error {
			return gone[*certificatesv1.CertificateSigningRequest](s, "certificatesigningrequests", "", "early")
		},
	})
}

func TestCertificateSigning(t *testing.T) {
	certificate, key, _ := authority(t)
	check(t, names.CertificateSigningRequestSigningController, reconciletest.Scenario{
		Steps: reconciletest.ApplyYAML(request(t, "user", "kubernetes.io/kube-apiserver-client", "jane", "people",
			"digital signature, client auth")),
	}, func(o *configuration) {
		o.CSRSigningController.ClusterSigningCertFile, o.CSRSigningController.ClusterSigningKeyFile = certificate, key
	})
}

func TestPodCertificateRequestCleaner(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) string {
		return fmt.Sprintf(`
apiVersion: certificates.k8s.io/v1
kind: PodCertificateRequest
metadata: {name: %s, namespace: default}
spec:
  signerName: example.com/signer
  podName: web
  podUID: pod-uid
  serviceAccountName: default
  serviceAccountUID: account-uid
  nodeName: node
  nodeUID: node-uid
  maxExpirationSeconds: 86400
  stubPKCS10Request: %s
---
`, name, base64.StdEncoding.EncodeToString(stub))
	}
	check(t, names.PodCertificateRequestCleanerController, reconciletest.Scenario{
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(of("early"))[0], reconciletest.Wait(10 * time.Minute),
			reconciletest.ApplyYAML(of("late"))[0], reconciletest.Wait(12 * time.Minute)},
		Settled: func(s *reconciletest.Server) error {
			return gone[*certificatesv1.PodCertificateRequest](s, "podcertificaterequests", "default", "early")
		},
	})
}

func TestClusterRoleAggregation(t *testing.T) {
	of := func(name, label, verb string) string {
		return fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %s, labels: {to: %s}}
rules: [{apiGroups: [""], resources: [pods], verbs: [%s]}]
---
`, name, label, verb)
	}
	const sum = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sum}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {to: sum}}]}
---
`
	check(t, names.ClusterRoleAggregationController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(sum+of("a", "sum", "get")+of("b", "sum", "list"),
			of("a", "sum", "watch")+of("c", "none", "delete")), reconciletest.Delete("clusterroles", "", "b")),
		Settled: func(s *reconciletest.Server) error {
			r, err := there[*rbacv1.ClusterRole](s, "clusterroles", "", "sum")
			if err != nil {
				return err
			}
			var verbs []string
			for _, rule := range r.Rules {
				verbs = append(verbs, rule.Verbs...)
			}
			return want("verbs", verbs, []string{"watch"})
		},
	})
}

// bootstrapToken is a Secret that expires some time after the begin of virtual time, which is that of 2000.
func bootstrapToken(id string, expires time.Time) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-%s, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData:
  token-id: %s
  token-secret: 0123456789abcdef
  usage-bootstrap-signing: "true"
  expiration: %q
---
`, id, id, expires.Format(time.RFC3339))
}

var (
	begin      = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	namespaces = []string{"default", "kube-system", "kube-public"}
)

func TestBootstrapSigner(t *testing.T) {
	info := func(text string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-info, namespace: kube-public}
data: {kubeconfig: %s}
---
`, text)
	}
	far := begin.AddDate(10, 0, 0)
	check(t, names.BootstrapSignerController, reconciletest.Scenario{
		Server: reconciletest.Options{Namespaces: namespaces},
		Steps: append(reconciletest.ApplyYAML(info("one")+bootstrapToken("aaaaaa", far)+bootstrapToken("bbbbbb", far),
			info("two")), reconciletest.Delete("secrets", "kube-system", "bootstrap-token-bbbbbb")),
		Settled: func(s *reconciletest.Server) error {
			m, err := there[*corev1.ConfigMap](s, "configmaps", "kube-public", "cluster-info")
			if err != nil {
				return err
			}
			var signed []string
			for key := range m.Data {
				if strings.HasPrefix(key, "jws-") {
					signed = append(signed, key)
				}
			}
			return want("signatures", signed, []string{"jws-kubeconfig-aaaaaa"})
		},
	})
}

func TestTokenCleaner(t *testing.T) {
	check(t, names.TokenCleanerController, reconciletest.Scenario{
		Server: reconciletest.Options{Namespaces: namespaces},
		Steps: append(reconciletest.ApplyYAML(bootstrapToken("aaaaaa", begin.Add(48*time.Hour))+
			bootstrapToken("bbbbbb", begin.AddDate(10, 0, 0)), bootstrapToken("cccccc", begin.Add(time.Hour))),
			reconciletest.Wait(72*time.Hour)),
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*corev1.Secret](s, "secrets", "kube-system", "bootstrap-token-bbbbbb")
			return errors.Join(err, gone[*corev1.Secret](s, "secrets", "kube-system", "bootstrap-token-aaaaaa"),
				gone[*corev1.Secret](s, "secrets", "kube-system", "bootstrap-token-cccccc"))
		},
	})
}

// newTokens is that of package app, whose constructor is not exported, with a key in memory.
func newTokens(ctx context.Context, with app.ControllerContext, name string) (app.Controller, error) {
	client, err := with.NewClient("tokens-controller")
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return nil, err
	}
	core := with.InformerFactory.Core().V1()
	c, err := serviceaccountcontroller.NewTokensController(klog.FromContext(ctx), core.ServiceAccounts(),
		core.Secrets(), client, serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator})
	return loop{name, func(ctx context.Context) {
		c.Run(ctx, int(with.ComponentConfig.SAController.ConcurrentSATokenSyncs))
	}}, err
}

// tokenOf is a Secret for a token of a service account.
func tokenOf(name, account string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: default, annotations: {kubernetes.io/service-account.name: %s}}
type: kubernetes.io/service-account-token
---
`, name, account)
}

func account(name, secrets string) string {
	return fmt.Sprintf("\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: default}\n%s\n---\n",
		name, secrets)
}

func TestServiceAccountToken(t *testing.T) {
	check(t, names.ServiceAccountTokenController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(account("robot", "")+account("old", "")+tokenOf("robot", "robot")+
			tokenOf("old", "old"), tokenOf("second", "robot")),
			reconciletest.Delete("serviceaccounts", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{"robot", "second"} {
				secret, err := there[*corev1.Secret](s, "secrets", "default", name)
				if err != nil {
					return err
				}
				if len(secret.Data["token"]) == 0 {
					return fmt.Errorf("%s has no token", name)
				}
			}
			return gone[*corev1.Secret](s, "secrets", "default", "old")
		},
	})
}

func TestLegacyTokenCleaner(t *testing.T) {
	const tracked = `
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-apiserver-legacy-service-account-token-tracking, namespace: kube-system}
data: {since: "2000-01-01"}
---
`
	check(t, names.LegacyServiceAccountTokenCleanerController, reconciletest.Scenario{
		Server: reconciletest.Options{Namespaces: namespaces},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(tracked + account("robot", "secrets: [{name: robot}]") +
			account("used", "secrets: [{name: used}]") + tokenOf("robot", "robot") + tokenOf("used", "used") +
			podWith("user", "secret: {secretName: used}"))[0], reconciletest.Wait(6 * 24 * time.Hour)},
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*corev1.Secret](s, "secrets", "default", "used")
			return errors.Join(err, gone[*corev1.Secret](s, "secrets", "default", "robot"))
		},
	}, func(o *configuration) { o.LegacySATokenCleaner.CleanUpPeriod.Duration = 24 * time.Hour })
}
