// Package check runs controllers of Knative's webhooks by themselves, with the clients and the informers that the main
// of a webhook gives them by injection. Leader election, the webhooks' HTTP, metrics and probes are left out.
package check

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/webhook"
	"knative.dev/pkg/webhook/certificates"
	certresources "knative.dev/pkg/webhook/certificates/resources"
	"knative.dev/pkg/webhook/resourcesemantics/defaulting"
	"knative.dev/pkg/webhook/resourcesemantics/validation"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

const (
	system = "samples"
	// certs is the Secret with the certificates of the webhook, and hook the name of each of its configurations.
	certs, hook = "webhook-certs", "webhook.samples.knative.dev"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("SYSTEM_NAMESPACE", system); err != nil {
		panic(err)
	}
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, c injection.ControllerConstructor, s reconciletest.Scenario) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error {
		cfg = rest.CopyConfig(cfg)
		cfg.QPS, cfg.Burst = rest.DefaultQPS, rest.DefaultBurst
		ctx = logging.WithLogger(injection.WithConfig(ctx, cfg), zap.NewNop().Sugar())
		ctx = webhook.WithOptions(ctx, webhook.Options{ServiceName: "webhook", SecretName: certs, Port: 8443})
		ctx, informers := injection.Default.SetupInformers(ctx, cfg)
		impl := c(ctx, configmap.NewStaticWatcher())
		wait, err := controller.RunInformers(ctx.Done(), informers...)
		if err == nil {
			err = controller.StartAll(ctx, impl)
		}
		wait()
		return err
	}
	s.Server.Kinds, s.Server.Namespaces = builtin.Kinds(), []string{"default", system}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// secret is the one with the certificates, and has some data.
func secret(data string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: %s}
data: {%s}
---
`, certs, system, data)
}

// configuration is one of the webhook, as it is installed.
func configuration(kind, timeout string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %sWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: %s
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: %s
  clientConfig: {service: {name: webhook, namespace: %s}}
---
`, kind, hook, hook, timeout, system)
}

// TestCertificates: the Secret that was installed gets its certificates, also when it is made anew.
func TestCertificates(t *testing.T) {
	check(t, certificates.NewController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(secret("")), reconciletest.Delete("secrets", system, certs),
			reconciletest.ApplyYAML(secret(""))[0], reconciletest.Wait(time.Hour)),
		Settled: func(s *reconciletest.Server) error {
			made, err := there[*corev1.Secret](s, "secrets", system, certs)
			if err != nil {
				return err
			}
			_, err = tls.X509KeyPair(made.Data[certresources.ServerCert], made.Data[certresources.ServerKey])
			return errors.Join(err, want("there is a CA", len(made.Data[certresources.CACert]) > 0, true))
		},
	})
}

// widgets are the kind that the webhooks are about.
var widgets = schema.GroupVersionKind{Group: "samples.knative.dev", Version: "v1", Kind: "Widget"}

func nothing(context.Context, *unstructured.Unstructured) error { return nil }

// rotated are the steps that install a webhook with the CA "first", change that to "second", change the webhook, and
// install it anew.
func rotated(kind, resource string) []reconciletest.Step {
	return append(reconciletest.ApplyYAML(secret("ca-cert.pem: Zmlyc3Q=")+configuration(kind, "10"),
		secret("ca-cert.pem: c2Vjb25k"), configuration(kind, "5")), reconciletest.Delete(resource, "", hook),
		reconciletest.ApplyYAML(configuration(kind, "5"))[0])
}

// complete returns an error unless a webhook has what its controller fills in.
func complete(client admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations) error {
	var path string
	if client.Service != nil && client.Service.Path != nil {
		path = *client.Service.Path
	}
	return errors.Join(want("CA", string(client.CABundle), "second"), want("path", path, "/hook"),
		want("rules", len(rules), 1))
}

// TestDefaulting: the configuration of a mutating webhook gets its rules, its path and its CA.
func TestDefaulting(t *testing.T) {
	check(t, func(ctx context.Context, _ configmap.Watcher) *controller.Impl {
		return defaulting.NewAdmissionController(ctx, hook, "/hook", nil, nil, true,
			map[schema.GroupVersionKind]defaulting.Callback{
				widgets: defaulting.NewCallback(nothing, webhook.Create, webhook.Update)})
	}, reconciletest.Scenario{
		Steps: rotated("Mutating", "mutatingwebhookconfigurations"),
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*admissionv1.MutatingWebhookConfiguration](s, "mutatingwebhookconfigurations", "", hook)
			if err != nil {
				return err
			}
			return complete(c.Webhooks[0].ClientConfig, c.Webhooks[0].Rules)
		},
	})
}

// TestValidation: the same for a validating webhook.
func TestValidation(t *testing.T) {
	check(t, func(ctx context.Context, _ configmap.Watcher) *controller.Impl {
		return validation.NewAdmissionController(ctx, hook, "/hook", nil, nil, true,
			map[schema.GroupVersionKind]validation.Callback{
				widgets: validation.NewCallback(nothing, webhook.Create, webhook.Delete)})
	}, reconciletest.Scenario{
		Steps: rotated("Validating", "validatingwebhookconfigurations"),
		Settled: func(s *reconciletest.Server) error {
			c, err := there[*admissionv1.ValidatingWebhookConfiguration](s, "validatingwebhookconfigurations", "", hook)
			if err != nil {
				return err
			}
			return complete(c.Webhooks[0].ClientConfig, c.Webhooks[0].Rules)
		},
	})
}
