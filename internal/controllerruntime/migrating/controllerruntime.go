//lint:file-ignore U1000 some of it is there for MIGRATING.md only

package migrating

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/thermostat-go/thermostat/informer/clientgo"
	"github.com/thermostat-go/thermostat/internal/controllerruntime/migrating/v1"
)

// theirs runs the program that is written with controller-runtime.
func theirs(ctx context.Context, cfg *rest.Config, dns names, address string) error {
	twice := true // tests run the program more than once in a process
	ctrl.SetLogger(logr.Discard())

	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1.AddToScheme(scheme); err != nil {
		return err
	}
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                true,
		LeaderElectionNamespace:       "default",
		LeaderElectionID:              "websites",
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        address,
		Metrics:                       metricsserver.Options{BindAddress: address},
		Controller:                    config.Controller{SkipNameValidation: &twice},
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(m).
		For(&v1.Website{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 5}).
		Complete(&websiteReconciler{m.GetClient(), m.GetEventRecorder("websites"), dns})
	if err != nil {
		return err
	}
	return m.Start(ctx)
}

type websiteReconciler struct {
	client.Client
	events events.EventRecorder
	dns    names
}

func (r *websiteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site v1.Website
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &site)
	}
	if controllerutil.AddFinalizer(&site, finalizer) {
		if err := r.Update(ctx, &site); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.dns.Register(ctx, site.Name); err != nil {
		return ctrl.Result{}, err
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	done, err := controllerutil.CreateOrUpdate(ctx, r.Client, d, func() error {
		labels := map[string]string{"website": site.Name}
		d.Spec.Replicas = &site.Spec.Replicas
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		if len(d.Spec.Template.Spec.Containers) == 0 {
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web"}}
		}
		d.Spec.Template.Spec.Containers[0].Image = site.Spec.Image
		return ctrl.SetControllerReference(&site, d, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if done == controllerutil.OperationResultCreated {
		r.events.Eventf(&site, d, corev1.EventTypeNormal, "Created", "Deploy", "Created Deployment %s", d.Name)
	}
	return ctrl.Result{}, r.report(ctx, &site, d)
}

func (r *websiteReconciler) finalize(ctx context.Context, site *v1.Website) error {
	if !controllerutil.ContainsFinalizer(site, finalizer) {
		return nil
	}
	if err := r.dns.Remove(ctx, site.Name); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(site, finalizer)
	return client.IgnoreNotFound(r.Update(ctx, site))
}

func (r *websiteReconciler) report(ctx context.Context, site *v1.Website, d *appsv1.Deployment) error {
	before := site.DeepCopy()
	changed := meta.SetStatusCondition(&site.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: status(d), Reason: "Replicas", ObservedGeneration: site.Generation,
	})
	if !changed {
		return nil
	}
	return r.Status().Patch(ctx, site, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// theirSources are sources of other kinds.
func theirSources(m ctrl.Manager, r reconcile.Reconciler) error {
	sitesOf := func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{
			Namespace: o.GetNamespace(), Name: o.GetLabels()["website"],
		}}}
	}
	return ctrl.NewControllerManagedBy(m).Named("sources").
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(sitesOf)).
		Complete(r)
}

// theirConditions is the same with predicates.
func theirConditions(m ctrl.Manager, r *websiteReconciler) error {
	return ctrl.NewControllerManagedBy(m).Named("conditions").
		For(&v1.Website{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Complete(r)
}

// theirIndex finds the pods of a node.
func theirIndex(ctx context.Context, m ctrl.Manager) ([]corev1.Pod, error) {
	err := m.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	})
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	err = m.GetClient().List(ctx, &pods, client.MatchingFields{"spec.nodeName": "node-7"})
	return pods.Items, err
}

// theirResults are what Reconcile returns.
func theirResults(err error) []func() (ctrl.Result, error) {
	return []func() (ctrl.Result, error){
		func() (ctrl.Result, error) { return ctrl.Result{}, nil },
		func() (ctrl.Result, error) { return ctrl.Result{RequeueAfter: time.Minute}, nil },
		func() (ctrl.Result, error) { return ctrl.Result{}, err },
		func() (ctrl.Result, error) { return ctrl.Result{}, reconcile.TerminalError(err) },
	}
}

// withOurInformers is a manager of controller-runtime whose cache has the informers of package clientgo.
func withOurInformers(cfg *rest.Config) (ctrl.Manager, error) {
	return ctrl.NewManager(clientgo.Wire(cfg), ctrl.Options{
		Cache: cache.Options{NewInformer: clientgo.NewSharedIndexInformer},
	})
}
