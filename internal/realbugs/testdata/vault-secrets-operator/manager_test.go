// Package check runs the controllers of SecretTransformations and of VaultAuths of Vault's operator, each by itself,
// with the manager of its main. They do not ask Vault. Leader election and HTTP are left out, and so is the cache of
// Vault's clients, of which there are none.
package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	secretsv1beta1 "github.com/hashicorp/vault-secrets-operator/api/v1beta1"
	"github.com/hashicorp/vault-secrets-operator/common"
	"github.com/hashicorp/vault-secrets-operator/controllers"
	"github.com/hashicorp/vault-secrets-operator/vault"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// team is the namespace of the users.
const team = "team"

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// adds adds a controller to a manager.
type adds func(mgr ctrl.Manager) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute. definitions are the
// custom resources that it reads.
func check(t *testing.T, add adds, s reconciletest.Scenario, definitions ...string) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, add) }
	s.Server = reconciletest.Options{Rules: cel.Rules{}, Kinds: builtin.Kinds(), Namespaces: []string{"default", team}}
	for _, resource := range definitions {
		s.Server.CRDs = append(s.Server.CRDs, "crd/secrets.hashicorp.com_"+resource+".yaml")
	}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

func run(ctx context.Context, cfg *rest.Config, add adds) error {
	scheme := runtime.NewScheme()
	for _, to := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, secretsv1beta1.AddToScheme} {
		if err := to(scheme); err != nil {
			return err
		}
	}
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	if err := add(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

//nolint:staticcheck // The program takes the older recorder.
func transformations(mgr ctrl.Manager) error {
	return (&controllers.SecretTransformationReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(),
		Recorder: mgr.GetEventRecorderFor("SecretTransformation")}).SetupWithManager(mgr)
}

//nolint:staticcheck // The program takes the older recorder.
func auths(mgr ctrl.Manager) error {
	return (&controllers.VaultAuthReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(),
		Recorder: mgr.GetEventRecorderFor("VaultAuth"), ClientFactory: noClients{},
		GlobalVaultAuthOptions: &common.GlobalVaultAuthOptions{}}).SetupWithManager(mgr)
}

// noClients stands in for the cache of Vault's clients: it has none.
type noClients struct{ vault.CachingClientFactory }

func (noClients) Prune(context.Context, client.Client, client.Object, vault.CachingClientFactoryPruneRequest) (
	int, error) {
	return 0, nil
}
