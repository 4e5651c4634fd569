//lint:file-ignore U1000 some of it is there for MIGRATING.md only

package migrating

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/controllerruntime/migrating/v1"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

// ours runs the program that is written with thermostat.
func ours(ctx context.Context, base *rest.Config, dns names, address string) error {
	elector, err := leaderelection.New(leaderelection.Config{REST: base, Namespace: "default", Name: "websites"})
	if err != nil {
		return err
	}
	cfg, err := reconcile.ClientConfig(base, elector)
	if err != nil {
		return err
	}
	recorder, err := events.NewRecorder(base, "websites")
	if err != nil {
		return err
	}
	sites, err := informer.NewResource[*v1.Website](cfg, v1.GroupVersion.WithResource("websites"),
		informer.ResourceOptions{})
	if err != nil {
		return err
	}
	siteCache, err := informer.New(sites, informer.Options[*v1.Website]{})
	if err != nil {
		return err
	}
	deployments, err := informer.NewResource[*appsv1.Deployment](cfg,
		appsv1.SchemeGroupVersion.WithResource("deployments"), informer.ResourceOptions{})
	if err != nil {
		return err
	}
	deploymentCache, err := informer.New(deployments, informer.Options[*appsv1.Deployment]{})
	if err != nil {
		return err
	}
	r := &websites{sites, siteCache, deployments, deploymentCache, recorder, dns}
	figures, registry := metrics.New(metrics.Options{}), prometheus.NewRegistry()
	registry.MustRegister(figures)
	c, err := reconcile.NewController("websites", r, reconcile.Options{Workers: 5, Metrics: figures})
	if err != nil {
		return err
	}
	reconcile.For(c, siteCache)
	reconcile.Owns(c, deploymentCache, v1.GroupVersion.WithKind("Website"))
	server, err := serve.New(serve.Options{ // /healthz, /readyz and /metrics
		Address: address, Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	})
	if err != nil {
		return err
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{c},
		Beside:      map[string]func(context.Context) error{"events": recorder.Run},
		Elector:     elector,
		Serve:       server.Run,
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

type websites struct {
	sites           *informer.Resource[*v1.Website]
	siteCache       *informer.SharedIndexInformer[*v1.Website]
	deployments     *informer.Resource[*appsv1.Deployment]
	deploymentCache *informer.SharedIndexInformer[*appsv1.Deployment]
	events          *events.Recorder
	dns             names
}

func (w *websites) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	site, ok := w.siteCache.Get(key)
	if !ok {
		return reconcile.Result{}, nil
	}
	site, alive, err := objects.Finalize(ctx, w.sites.In(key.Namespace), site, finalizer,
		func(ctx context.Context) (bool, error) { return true, w.dns.Remove(ctx, key.Name) })
	if err != nil || !alive {
		return reconcile.Result{}, err
	}
	if err := w.dns.Register(ctx, key.Name); err != nil {
		return reconcile.Result{}, err
	}
	d, err := w.deploy(ctx, site)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, w.report(ctx, site, d)
}

// deploy gives the Deployment of a Website what it should have. A field that is not set here may be set by others.
func (w *websites) deploy(ctx context.Context, site *v1.Website) (*appsv1.Deployment, error) {
	labels := map[string]string{"website": site.Name}
	config := appsv1ac.Deployment(site.Name, site.Namespace).
		WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(site.Spec.Replicas).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().
				WithContainers(corev1ac.Container().WithName("web").WithImage(site.Spec.Image)))))
	seen, exists := w.deploymentCache.Get(informer.KeyOf(site))
	owner := objects.NewOwner(w.sites.In(site.Namespace), site, v1.GroupVersion.WithKind("Website"))
	d, err := objects.ApplyOwned(ctx, owner, w.deployments.In(site.Namespace), seen, config,
		metav1.ApplyOptions{FieldManager: "websites", Force: true}, nil)
	if err == nil && !exists {
		w.events.Eventf(site, corev1.EventTypeNormal, "Created", "Created Deployment %s", d.Name)
	}
	return d, err
}

func (w *websites) report(ctx context.Context, site *v1.Website, d *appsv1.Deployment) error {
	_, err := objects.UpdateStatus(ctx, w.sites.In(site.Namespace), site, func(site *v1.Website) error {
		return objects.SetCondition(&site.Status.Conditions, site.Generation, metav1.Condition{
			Type: "Ready", Status: status(d), Reason: "Replicas",
		})
	})
	return err
}

// ourSources are sources of other kinds.
func ourSources(c *reconcile.Controller, configMaps *informer.SharedIndexInformer[*corev1.ConfigMap]) {
	reconcile.Watches(c, configMaps, func(m *corev1.ConfigMap) []reconcile.Key {
		return []reconcile.Key{{Namespace: m.Namespace, Name: m.Labels["website"]}}
	})
}

// ourConditions names a Website for an update only if one of the conditions holds.
func ourConditions(c *reconcile.Controller, sites *informer.SharedIndexInformer[*v1.Website]) {
	reconcile.For(c, sites, reconcile.GenerationChanged, reconcile.LabelsChanged)
}

// ourIndex finds the pods of a node.
func ourIndex(pods *informer.SharedIndexInformer[*corev1.Pod]) ([]*corev1.Pod, error) {
	byNode, err := informer.AddIndex(pods, func(p *corev1.Pod, add func(string)) { add(p.Spec.NodeName) })
	if err != nil {
		return nil, err
	}
	return slices.Collect(byNode.Get("node-7")), nil
}

// ourResults are what Reconcile returns.
func ourResults(err error) []func() (reconcile.Result, error) {
	return []func() (reconcile.Result, error){
		func() (reconcile.Result, error) { return reconcile.Result{}, nil },
		func() (reconcile.Result, error) { return reconcile.Result{RequeueAfter: time.Minute}, nil },
		func() (reconcile.Result, error) { return reconcile.Result{}, err },
		func() (reconcile.Result, error) { return reconcile.Result{}, reconcile.Terminal(err) },
	}
}
