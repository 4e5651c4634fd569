// Package check runs the controllers of Backups and Restores of MariaDB's operator, each by itself, with the manager of
// its main. Webhooks, leader election and HTTP are left out.
package check

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mariadbv1alpha1 "github.com/mariadb-operator/mariadb-operator/api/v1alpha1"
	"github.com/mariadb-operator/mariadb-operator/internal/controller"
	"github.com/mariadb-operator/mariadb-operator/pkg/builder"
	condition "github.com/mariadb-operator/mariadb-operator/pkg/condition"
	"github.com/mariadb-operator/mariadb-operator/pkg/controller/batch"
	"github.com/mariadb-operator/mariadb-operator/pkg/controller/rbac"
	"github.com/mariadb-operator/mariadb-operator/pkg/discovery"
	"github.com/mariadb-operator/mariadb-operator/pkg/environment"
	"github.com/mariadb-operator/mariadb-operator/pkg/refresolver"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// adds adds a controller to a manager.
type adds func(mgr ctrl.Manager, b *builder.Builder) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, add adds, s reconciletest.Scenario) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, add) }
	s.Server = reconciletest.Options{Rules: cel.Rules{}, Kinds: builtin.Kinds(), Namespaces: []string{"default"}}
	for _, resource := range []string{"mariadbs", "backups", "restores"} {
		s.Server.CRDs = append(s.Server.CRDs, "crd/k8s.mariadb.com_"+resource+".yaml")
	}
	s.World = &reconciletest.World{Takes: func(reconciletest.Object) time.Duration { return 5 * time.Second }}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

func run(ctx context.Context, cfg *rest.Config, add adds) error {
	scheme := runtime.NewScheme()
	for _, to := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mariadbv1alpha1.AddToScheme} {
		if err := to(scheme); err != nil {
			return err
		}
	}
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	client, err := clientdiscovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	served, err := discovery.NewDiscovery(discovery.WithClient(client))
	if err != nil {
		return err
	}
	env := &environment.OperatorEnv{
		MariadbOperatorName:      "mariadb-operator",
		MariadbOperatorNamespace: "default",
		MariadbOperatorImage:     "docker-registry3.mariadb.com/mariadb-operator/mariadb-operator:0.38.1",
		RelatedMariadbImage:      "docker-registry1.mariadb.com/library/mariadb:11.4.5",
		MariadbDefaultVersion:    "11.4",
	}
	if err := add(mgr, builder.NewBuilder(scheme, env, served)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func backups(mgr ctrl.Manager, b *builder.Builder) error {
	c := mgr.GetClient()
	return (&controller.BackupReconciler{Client: c, Scheme: mgr.GetScheme(), Builder: b,
		RefResolver: refresolver.New(c), ConditionComplete: condition.NewComplete(c),
		RBACReconciler: rbac.NewRBACReconiler(c, b), BatchReconciler: batch.NewBatchReconciler(c, b),
	}).SetupWithManager(mgr)
}

func restores(mgr ctrl.Manager, b *builder.Builder) error {
	c := mgr.GetClient()
	return (&controller.RestoreReconciler{Client: c, Scheme: mgr.GetScheme(), Builder: b,
		RefResolver: refresolver.New(c), ConditionComplete: condition.NewComplete(c),
		RBACReconciler: rbac.NewRBACReconiler(c, b), BatchReconciler: batch.NewBatchReconciler(c, b),
	}).SetupWithManager(mgr)
}

// reports stands in for another controller of the operator: it gives a condition, which is True, to each object of a
// resource that lacks it. What fails is tried again by the next resync.
func reports(resource, kind string) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		of := mariadbv1alpha1.GroupVersion.WithResource(resource)
		report := func(o any) {
			u, status := o.(*unstructured.Unstructured), mariadbv1alpha1.BackupStatus{}
			is, _, _ := unstructured.NestedMap(u.Object, "status") // none, if it is no map
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(is, &status); err != nil ||
				meta.IsStatusConditionTrue(status.Conditions, kind) {
				return
			}
			_, _ = client.Resource(of).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType,
				[]byte(fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":"Reported",
					"message":"","lastTransitionTime":"2000-01-01T00:00:00Z"}]}}`, kind)), metav1.PatchOptions{},
				"status")
		}
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
		if _, err := factory.ForResource(of).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: report, UpdateFunc: func(_, o any) { report(o) }}); err != nil {
			return err
		}
		factory.Start(ctx.Done())
		<-ctx.Done()
		factory.Shutdown()
		return nil
	}
}
