// Command tenant is a platform's operator: it keeps the namespaces of each Tenant, with their quotas, limits, network
// policies, accounts, bindings and copied Secrets. README.md says how to run it, and what it promises.
//
// # Reading order
//
// api/v1/types.go: what the administrators write. main.go: what runs. reconcile.go: what is done for one Tenant.
// children.go: what a namespace has.
package main

import (
	"context"
	_ "embed"
	"errors"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/tenant/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/program"
	"github.com/thermostat-go/thermostat/reconcile/rights"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

const name = "tenant" // of the controller, its field manager and its Lease

//go:embed deploy/rbac.yaml
var role []byte

// options are the flags.
type options struct {
	platform string // the namespace of the operator, its Lease and the Secrets that are copied
	address  string // of metrics and health; "0": none
}

func main() {
	var o options
	kubeconfig := pflag.String("kubeconfig", "", "file that names the API server; not needed in a pod")
	pflag.StringVar(&o.platform, "platform-namespace", "platform", "namespace of the Lease and of what is copied")
	pflag.StringVar(&o.address, "http-address", "127.0.0.1:8080", "of /metrics, /healthz and /readyz; 0: nowhere")
	pflag.Parse()
	program.Main(*kubeconfig, func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, o) })
}

// run runs the operator until ctx ends. It then returns nil or, if it was still starting, an error that wraps ctx's
// cause.
func run(ctx context.Context, base *rest.Config, o options) error {
	needs, err := rights.Parse(role)
	if err := errors.Join(err, rights.Check(ctx, base, needs)); err != nil {
		return err
	}
	elector, err1 := leaderelection.New(leaderelection.Config{REST: base, Namespace: o.platform, Name: name})
	cfg, err2 := reconcile.ClientConfig(base, elector) // for all requests but those about the Lease
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	group := informer.NewGroup(cfg)
	r := newReconciler(group, o)
	if err := group.Err(); err != nil {
		return err
	}
	collector := metrics.New(metrics.Options{})
	collector.Elector(name, elector.Stats)
	collector.Informer(group.Informers()...)
	c, err := reconcile.NewController(name, r, reconcile.Options{Workers: 8, Metrics: collector})
	if err != nil {
		return err
	}
	r.sources(c)
	server, err := serve.New(serve.Options{Address: o.address, Metrics: collector})
	if err != nil {
		return err
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{c}, Elector: elector, Serve: server.Run,
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// newReconciler makes the caches. Of all kinds but Tenants and Namespaces they hold only what Tenants own, and of the
// platform's Secrets those that Tenants name.
func newReconciler(g *informer.Group, o options) *reconciler {
	owned, err := labels.Parse(v1.OwnerLabel)
	if err != nil {
		panic(err) // it is a constant
	}
	core, rbac := corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion
	r := &reconciler{
		platform:   o.platform,
		tenants:    informer.CachedIn(g, v1.GroupVersion.WithResource("tenants"), informer.Options[*v1.Tenant]{}),
		shared:     informer.ReferencedIn(g, core.WithResource("secrets"), informer.Options[*corev1.Secret]{}),
		namespaces: childrenIn[*corev1.Namespace](g, core.WithResource("namespaces"), nil),
		quotas:     childrenIn[*corev1.ResourceQuota](g, core.WithResource("resourcequotas"), owned),
		limits:     childrenIn[*corev1.LimitRange](g, core.WithResource("limitranges"), owned),
		policies: childrenIn[*networkingv1.NetworkPolicy](g,
			networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), owned),
		accounts: childrenIn[*corev1.ServiceAccount](g, core.WithResource("serviceaccounts"), owned),
		secrets:  childrenIn[*corev1.Secret](g, core.WithResource("secrets"), owned),
		bindings: childrenIn[*rbacv1.RoleBinding](g, rbac.WithResource("rolebindings"), owned),
	}
	r.wanting = informer.IndexIn(g, r.tenants.Cache, func(t *v1.Tenant, add func(string)) {
		for _, namespace := range namespacesOf(t) {
			add(namespace)
		}
	})
	return r
}

// sources says what names a Tenant's key: itself, what it owns, the Secret that it names, and the namespaces that it
// wants, since one may be in the way.
func (r *reconciler) sources(c *reconcile.Controller) {
	reconcile.For(c, r.tenants.Cache)
	reconcile.References(c, r.tenants.Cache, r.shared, r.sharedOf)
	reconcile.Watches(c, r.namespaces.Cache, func(o *corev1.Namespace) []reconcile.Key {
		return r.wanting.Keys(o.Name)
	})
	r.namespaces.watch(c)
	r.quotas.watch(c)
	r.limits.watch(c)
	r.policies.watch(c)
	r.accounts.watch(c)
	r.secrets.watch(c)
	r.bindings.watch(c)
}
