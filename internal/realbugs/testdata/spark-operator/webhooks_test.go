package check

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/kubeflow/spark-operator/v2/internal/controller/mutatingwebhookconfiguration"
	"github.com/kubeflow/spark-operator/v2/internal/controller/validatingwebhookconfiguration"
	"github.com/kubeflow/spark-operator/v2/pkg/certificate"
	"github.com/kubeflow/spark-operator/v2/pkg/common"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const (
	system = "spark-operator"
	// ours is the name of both configurations and of the Secret with the certificates, and service that of the Service.
	ours, service = "spark-operator-webhook", "spark-operator-webhook-svc"
)

// adds adds a controller to a manager.
type adds func(mgr ctrl.Manager, certificates *certificate.Provider) error

// serve returns what the main of the webhooks runs, with one of its controllers and without the webhooks.
func serve(add adds) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		scheme := runtime.NewScheme()
		if err := clientgoscheme.AddToScheme(scheme); err != nil {
			return err
		}
		again, named := true, cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", ours)}
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{
			Scheme: scheme,
			Cache: cache.Options{
				DefaultNamespaces: map[string]cache.Config{"default": {}},
				ByObject: map[client.Object]cache.ByObject{
					&admissionv1.MutatingWebhookConfiguration{}:   named,
					&admissionv1.ValidatingWebhookConfiguration{}: named,
				},
			},
			Metrics:                metricsserver.Options{BindAddress: "0"},
			HealthProbeBindAddress: "0",
			Controller:             config.Controller{SkipNameValidation: &again},
		})
		if err != nil {
			return err
		}
		direct, err := client.New(cfg, client.Options{Scheme: scheme})
		if err != nil {
			return err
		}
		certificates := certificate.NewProvider(direct, service, system, false)
		if err := certificates.SyncSecret(ctx, ours, system); err != nil {
			return err
		}
		if err := add(mgr, certificates); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
}

func mutating(mgr ctrl.Manager, certificates *certificate.Provider) error {
	return mutatingwebhookconfiguration.NewReconciler(mgr.GetClient(), certificates, ours).
		SetupWithManager(mgr, controller.Options{})
}

func validating(mgr ctrl.Manager, certificates *certificate.Provider) error {
	return validatingwebhookconfiguration.NewReconciler(mgr.GetClient(), certificates, ours).
		SetupWithManager(mgr, controller.Options{})
}

// earlier is the Secret of an earlier start of the webhooks, with certificates that are valid in virtual time, too.
var earlier = sync.OnceValues(func() (*corev1.Secret, error) {
	name := service + "." + system + ".svc"
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	server := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	keys := make([]*rsa.PrivateKey, 2)
	for i := range keys {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	secret := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: ours}, Data: map[string][]byte{}}
	add := func(key, kind string, data []byte) {
		secret.Data[key] = pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
	}
	for i, of := range []struct {
		certificate            *x509.Certificate
		inCertificate, inOfKey string
	}{{authority, common.CACertPem, common.CAKeyPem}, {server, common.ServerCertPem, common.ServerKeyPem}} {
		data, err := x509.CreateCertificate(rand.Reader, of.certificate, authority, &keys[i].PublicKey, keys[0])
		if err != nil {
			return nil, err
		}
		add(of.inCertificate, "CERTIFICATE", data)
		add(of.inOfKey, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(keys[i]))
	}
	return secret, nil
})

// configuration is one of webhooks for some resources of Spark's operator.
func configuration(kind, name string, resources ...string) string {
	var all strings.Builder
	fmt.Fprintf(&all, `
apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata: {name: %s, labels: {app.kubernetes.io/name: spark-operator}}
webhooks:
`, kind, name)
	for _, resource := range resources {
		fmt.Fprintf(&all, `
- name: %[1]s.sparkoperator.k8s.io
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: spark-operator-webhook-svc, namespace: spark-operator, port: 9443, path: /%[1]s}}
  sideEffects: NoneOnDryRun
  failurePolicy: Fail
  rules: [{apiGroups: [sparkoperator.k8s.io], apiVersions: [v1beta2], resources: [%[1]s], operations: [CREATE]}]
`, resource)
	}
	return all.String() + "---\n"
}

// checkBundles runs Check on a controller that gives the webhooks of a kind their authority: one webhook comes later,
// and the configuration is made anew. That of others has none. bundles are those of a configuration.
func checkBundles(t *testing.T, add adds, kind, resource string, bundles func(s *reconciletest.Server, name string) (
	[][]byte, error)) {
	t.Helper()
	secret, err := earlier()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := yaml.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(file, manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	reconciletest.Check(t, reconciletest.Scenario{
		Run: serve(add),
		Server: reconciletest.Options{Manifests: []string{file}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Namespaces: []string{"default", system}},
		Limit: time.Minute,
		Steps: append(reconciletest.ApplyYAML(
			configuration(kind, ours, "sparkapplications")+configuration(kind, "theirs", "sparkapplications"),
			configuration(kind, ours, "sparkapplications", "scheduledsparkapplications")),
			reconciletest.Delete(resource, "", ours), reconciletest.ApplyYAML(
				configuration(kind, ours, "scheduledsparkapplications", "sparkapplications"))[0]),
		Settled: func(s *reconciletest.Server) error {
			of, err := bundles(s, ours)
			if err != nil {
				return err
			}
			errs := []error{want("webhooks", len(of), 2)}
			for _, bundle := range of {
				errs = append(errs, want("bundle", string(bundle), string(secret.Data[common.CACertPem])))
			}
			others, err := bundles(s, "theirs")
			if err != nil {
				return err
			}
			return errors.Join(append(errs, want("bundles of others", others, [][]byte{nil}))...)
		},
	})
}

// TestMutatingWebhookConfiguration: the mutating webhooks get their authority.
func TestMutatingWebhookConfiguration(t *testing.T) {
	const resource = "mutatingwebhookconfigurations"
	checkBundles(t, mutating, "MutatingWebhookConfiguration", resource,
		func(s *reconciletest.Server, name string) (all [][]byte, err error) {
			c, err := there[*admissionv1.MutatingWebhookConfiguration](s, resource, "", name)
			if err != nil {
				return nil, err
			}
			for _, w := range c.Webhooks {
				all = append(all, w.ClientConfig.CABundle)
			}
			return all, nil
		})
}

// TestValidatingWebhookConfiguration: the same for those that validate.
func TestValidatingWebhookConfiguration(t *testing.T) {
	const resource = "validatingwebhookconfigurations"
	checkBundles(t, validating, "ValidatingWebhookConfiguration", resource,
		func(s *reconciletest.Server, name string) (all [][]byte, err error) {
			c, err := there[*admissionv1.ValidatingWebhookConfiguration](s, resource, "", name)
			if err != nil {
				return nil, err
			}
			for _, w := range c.Webhooks {
				all = append(all, w.ClientConfig.CABundle)
			}
			return all, nil
		})
}
