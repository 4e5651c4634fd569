// Command template is an operator: it keeps a ConfigMap for each Greeting.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/template/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/program"
	"github.com/thermostat-go/thermostat/reconcile/rights"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

const name = "greeter" // of the controller, its field manager, its Lease and the namespace of that

//go:embed deploy/rbac.yaml
var role []byte

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file that names the API server; not needed in a pod")
	address := flag.String("http-address", "127.0.0.1:8080", "of /metrics, /healthz and /readyz; 0: nowhere")
	flag.Parse()
	program.Main(*kubeconfig, func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, *address) })
}

// run runs the operator until ctx ends.
func run(ctx context.Context, base *rest.Config, address string) error {
	needs, err := rights.Parse(role)
	if err := errors.Join(err, rights.Check(ctx, base, needs)); err != nil {
		return err
	}
	elector, err1 := leaderelection.New(leaderelection.Config{REST: base, Namespace: name, Name: name})
	cfg, err2 := reconcile.ClientConfig(base, elector) // for all requests but those about the Lease
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	greetings, err1 := informer.NewCached(cfg, v1.GroupVersion.WithResource("greetings"),
		informer.Options[*v1.Greeting]{})
	configMaps, err2 := informer.NewCached(cfg, corev1.SchemeGroupVersion.WithResource("configmaps"),
		informer.Options[*corev1.ConfigMap]{})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	collector := metrics.New(metrics.Options{})
	collector.Elector(name, elector.Stats)
	collector.Informer(greetings.Cache, configMaps.Cache)

	c, err := reconcile.NewController(name, &reconciler{greetings, configMaps}, reconcile.Options{Metrics: collector})
	if err != nil {
		return err
	}
	reconcile.For(c, greetings.Cache)
	reconcile.For(c, configMaps.Cache) // a ConfigMap has the name of its Greeting
	server, err := serve.New(serve.Options{Address: address, Metrics: collector})
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
