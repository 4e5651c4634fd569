// Package check runs the controllers of Elastic Cloud on Kubernetes as its main does, each by itself, with the defaults
// of its flags. What main does once at its start, it does here: it removes Secrets whose owners are gone.
package check

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	agentv1alpha1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/agent/v1alpha1"
	apmv1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/apm/v1"
	beatv1beta1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/beat/v1beta1"
	commonv1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/common/v1"
	kbv1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/kibana/v1"
	logstashv1alpha1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/logstash/v1alpha1"
	eprv1alpha1 "github.com/elastic/cloud-on-k8s/v3/pkg/apis/packageregistry/v1alpha1"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/common/certificates"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/common/nsmatch"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/common/operator"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/common/password"
	"github.com/elastic/cloud-on-k8s/v3/pkg/controller/common/reconciler"
	controllerscheme "github.com/elastic/cloud-on-k8s/v3/pkg/controller/common/scheme"
	"github.com/elastic/cloud-on-k8s/v3/pkg/utils/cryptutil"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	controllerscheme.SetupScheme()
	os.Exit(m.Run())
}

// operators is the namespace of the operator.
const operators = "elastic-system"

// adds sets a controller up, as main does.
type adds func(ctrlmanager.Manager, operator.Parameters) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, c adds, s reconciletest.Scenario) {
	t.Helper()
	s.Run = manager(c)
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd"}, cel.Rules{}, builtin.Kinds()
	s.Server.Namespaces = []string{"default", operators}
	s.World = &reconciletest.World{}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// manager is main with one controller, without leader election, webhooks, telemetry, reports on licenses and HTTP.
func manager(c adds) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		again := true
		cfg = rest.CopyConfig(cfg)
		cfg.Timeout = time.Minute
		byObject, err := owned()
		if err != nil {
			return err
		}
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: clientgoscheme.Scheme,
			Metrics:                metricsserver.Options{BindAddress: "0"},
			HealthProbeBindAddress: "0",
			Cache: ctrlcache.Options{DefaultNamespaces: map[string]ctrlcache.Config{},
				DefaultTransform: ctrlcache.TransformStripManagedFields(), ByObject: byObject},
			Controller: config.Controller{SkipNameValidation: &again}})
		if err != nil {
			return err
		}
		params, err := parameters(mgr)
		if err != nil {
			return err
		}
		if err := c(mgr, params); err != nil {
			return err
		}
		if err := mgr.Add(collects(mgr.GetClient())); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
}

// owned are the kinds of which main caches only what is the operator's.
func owned() (map[client.Object]ctrlcache.ByObject, error) {
	is, err := labels.NewRequirement(commonv1.TypeLabelName, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	by := ctrlcache.ByObject{Label: labels.NewSelector().Add(*is)}
	return map[client.Object]ctrlcache.ByObject{&corev1.Pod{}: by, &policyv1.PodDisruptionBudget{}: by,
		&appsv1.Deployment{}: by, &appsv1.StatefulSet{}: by, &appsv1.DaemonSet{}: by}, nil
}

// parameters are those of main, by the defaults of its flags.
func parameters(mgr ctrlmanager.Manager) (operator.Parameters, error) {
	const reconciles = 3
	matcher := nsmatch.NewNamespaceMatcher(nil, operators)
	matcher.SetCache(mgr.GetCache())
	hasher, err := cryptutil.NewPasswordHasher(reconciles * 5)
	if err != nil {
		return operator.Parameters{}, err
	}
	generator, err := password.NewGenerator(mgr.GetClient(), 24, operators)
	rotation := certificates.RotationParams{Validity: certificates.DefaultCertValidity,
		RotateBefore: certificates.DefaultRotateBefore}
	return operator.Parameters{ElasticsearchObservationInterval: 10 * time.Second, IPFamily: corev1.IPv4Protocol,
		OperatorNamespace: operators, CACertRotation: rotation, CertRotation: rotation, PasswordHasher: hasher,
		PasswordGenerator: generator, MaxConcurrentReconciles: reconciles, SetDefaultSecurityContext: true,
		ValidateStorageClass: true, NamespaceMatcher: matcher}, err
}

// collects removes what is left of objects that were deleted while the operator was down, ten seconds after its start.
func collects(c client.Client) ctrlmanager.RunnableFunc {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Second):
		}
		// Main tries it again at the next start if it fails.
		_ = reconciler.GarbageCollectAllSoftOwnedOrphanSecrets(ctx, c, map[string]client.Object{
			agentv1alpha1.Kind: &agentv1alpha1.Agent{}, apmv1.Kind: &apmv1.ApmServer{},
			beatv1beta1.Kind: &beatv1beta1.Beat{}, kbv1.Kind: &kbv1.Kibana{},
			eprv1alpha1.Kind: &eprv1alpha1.PackageRegistry{}, logstashv1alpha1.Kind: &logstashv1alpha1.Logstash{}})
		return nil
	}
}

// want returns an error unless something is as it should be.
func want(what string, is, should any) error {
	if fmt.Sprint(is) == fmt.Sprint(should) {
		return nil
	}
	return fmt.Errorf("%s: %v, want %v", what, is, should)
}

// there returns an object, or an error if there is none.
func there[T reconciletest.Object](s *reconciletest.Server, resource, name string) (T, error) {
	o, ok := reconciletest.Get[T](s, resource, "default", name)
	if !ok {
		return o, fmt.Errorf("%s %s is not there", resource, name)
	}
	return o, nil
}

// gone returns an error if there is an object of the name old, or a Secret of it.
func gone[T reconciletest.Object](s *reconciletest.Server, resource string) error {
	if _, there := reconciletest.Get[T](s, resource, "default", "old"); there {
		return fmt.Errorf("%s old is still there", resource)
	}
	for _, secret := range reconciletest.List[*corev1.Secret](s, "secrets", "default") {
		if strings.HasPrefix(secret.Name, "old-") {
			return fmt.Errorf("secret %s is still there", secret.Name)
		}
	}
	return nil
}
