package check

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	trust "github.com/cert-manager/trust-manager/pkg/apis/trust/v1alpha1"
	"github.com/cert-manager/trust-manager/pkg/bundle"
	"github.com/cert-manager/trust-manager/pkg/bundle/controller"
	"github.com/cert-manager/trust-manager/test/dummy"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// run is main with --secret-targets-enabled, without other flags, certificates and webhooks.
func run(ctx context.Context, cfg *rest.Config) error {
	scheme, again := runtime.NewScheme(), true
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, trust.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	options := controller.Options{Namespace: "trust", SecretTargetsEnabled: true}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Cache: bundle.CacheOpts(options),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again}})
	if err != nil {
		return err
	}
	if err := bundle.SetupWithManager(ctx, mgr, options); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

const namespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: trust}
---
apiVersion: v1
kind: Namespace
metadata: {name: always, labels: {trusts: us}}
---
apiVersion: v1
kind: Namespace
metadata: {name: once, labels: {trusts: us}}
---
apiVersion: trust.cert-manager.io/v1alpha1
kind: Bundle
metadata: {name: ours}
spec:
  sources: [{configMap: {name: source, key: ca.crt}}]
  target:
    configMap: {key: ca.crt}
    secret: {key: ca.crt}
    namespaceSelector: {matchLabels: {trusts: us}}
`

const leaves = `
apiVersion: v1
kind: Namespace
metadata: {name: once, labels: {trusts: nobody}}
`

// source is the ConfigMap with a certificate.
func source(certificate string) string {
	return "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: source, namespace: trust}\ndata:\n  ca.crt: |" +
		"\n    " + strings.ReplaceAll(strings.TrimSpace(certificate), "\n", "\n    ") + "\n"
}

func TestBundle(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run:    run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds()},
		Steps: reconciletest.ApplyYAML(namespaces+source(dummy.TestCertificate1), source(dummy.TestCertificate2),
			leaves),
		Settled: func(s *reconciletest.Server) error {
			_, left := reconciletest.Get[*corev1.ConfigMap](s, "configmaps", "once", "ours")
			_, secret := reconciletest.Get[*corev1.Secret](s, "secrets", "once", "ours")
			made, ok := reconciletest.Get[*corev1.ConfigMap](s, "configmaps", "always", "ours")
			switch {
			case left || secret:
				return fmt.Errorf("the namespace that left has the bundle: %t, as a Secret: %t", left, secret)
			case !ok || !strings.Contains(made.Data["ca.crt"], strings.TrimSpace(dummy.TestCertificate2)):
				return fmt.Errorf("the bundle has not the new certificate")
			}
			return nil
		},
	})
}
