// Command tenant is the operator of examples/tenant, written with controller-runtime. README.md compares the two.
//
// # Reading order
//
// main.go: what runs. controller.go: what is done for one Tenant. children.go: what a namespace has.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/thermostat-go/thermostat/examples/tenant/api/v1"
)

var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
}

// options are the flags.
type options struct {
	platform        string // the namespace of the operator, its Lease and the Secrets that are copied
	metrics, probes string // addresses; 0: none
}

func main() {
	var o options
	pflag.StringVar(&o.platform, "platform-namespace", "platform", "namespace of the Lease and of what is copied")
	pflag.StringVar(&o.metrics, "metrics-bind-address", "127.0.0.1:8080", "where /metrics is served")
	pflag.StringVar(&o.probes, "health-probe-bind-address", "127.0.0.1:8081", "where /healthz and /readyz are served")
	pflag.CommandLine.AddGoFlagSet(flag.CommandLine) // controller-runtime's flag kubeconfig
	pflag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), o); err != nil {
		ctrl.Log.Error(err, "The operator ends")
		os.Exit(1)
	}
}

// Fields of Tenants by which they are found.
const (
	byNamespace = "namespace"
	bySecret    = "spec.pullSecret"
)

// run runs the operator until ctx ends, and returns nil then.
func run(ctx context.Context, cfg *rest.Config, o options) error {
	owned, err := labels.Parse(v1.OwnerLabel)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.ResourceQuota{}:       {Label: owned},
			&corev1.LimitRange{}:          {Label: owned},
			&networkingv1.NetworkPolicy{}: {Label: owned},
			&corev1.ServiceAccount{}:      {Label: owned},
			&rbacv1.RoleBinding{}:         {Label: owned},
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{
				o.platform: {}, cache.AllNamespaces: {LabelSelector: owned}}},
		}},
		Metrics:                       metricsserver.Options{BindAddress: o.metrics},
		HealthProbeBindAddress:        o.probes,
		LeaderElection:                true,
		LeaderElectionID:              "tenant",
		LeaderElectionNamespace:       o.platform,
		LeaderElectionReleaseOnCancel: true,
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)}, // as the tests need it
	})
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &v1.Tenant{}, byNamespace, func(o client.Object) []string {
		return namespacesOf(o.(*v1.Tenant))
	}); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &v1.Tenant{}, bySecret, func(o client.Object) []string {
		return []string{o.(*v1.Tenant).Spec.PullSecret}
	}); err != nil {
		return err
	}
	r := &TenantReconciler{mgr.GetClient(), mgr.GetAPIReader(), o.platform}
	owner := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		name, ok := o.GetAnnotations()[v1.OwnerLabel]
		if !ok {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
	err = ctrl.NewControllerManagedBy(mgr).
		For(&v1.Tenant{}).
		Watches(&corev1.Namespace{}, owner).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.wanting)). // one may be in the way
		Watches(&corev1.ResourceQuota{}, owner).
		Watches(&corev1.LimitRange{}, owner).
		Watches(&networkingv1.NetworkPolicy{}, owner).
		Watches(&corev1.ServiceAccount{}, owner).
		Watches(&rbacv1.RoleBinding{}, owner).
		Watches(&corev1.Secret{}, owner).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.naming)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(r)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
