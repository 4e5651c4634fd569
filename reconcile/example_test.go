package reconcile_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// A complete program, of which any number of processes may run: the one that leads gives each Deployment a
// PodDisruptionBudget.
func Example() {
	base := must(rest.InClusterConfig())
	elector := must(leaderelection.New(leaderelection.Config{REST: base, Namespace: "prod", Name: "budgets"}))
	// A key is reconciled when the caches show what its last run wrote. A process that does not lead does not write.
	cfg := must(reconcile.ClientConfig(base, elector))
	deployments := must(informer.NewResource[*appsv1.Deployment](cfg,
		appsv1.SchemeGroupVersion.WithResource("deployments"), informer.ResourceOptions{}))
	budgets := must(informer.NewResource[*policyv1.PodDisruptionBudget](cfg,
		policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), informer.ResourceOptions{}))
	deploymentCache := must(informer.New(deployments, informer.Options[*appsv1.Deployment]{}))
	budgetCache := must(informer.New(budgets, informer.Options[*policyv1.PodDisruptionBudget]{}))
	kind := deployments.GroupVersionKind()

	c := must(reconcile.NewController("budgets",
		reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			d, ok := deploymentCache.Get(key)
			if !ok || d.DeletionTimestamp != nil {
				return reconcile.Result{}, nil // the garbage collector sees to the budget
			}
			if _, ok := budgetCache.Get(key); ok {
				return reconcile.Result{}, nil
			}
			one := intstr.FromInt32(1)
			_, err := objects.CreateOwned(ctx, objects.NewOwner(deployments.In(d.Namespace), d, kind),
				budgets.In(d.Namespace), &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Name: d.Name},
					Spec:       policyv1.PodDisruptionBudgetSpec{Selector: d.Spec.Selector, MaxUnavailable: &one},
				})
			return reconcile.Result{}, err
		}), reconcile.Options{Workers: 2}))
	reconcile.For(c, deploymentCache)
	reconcile.Owns(c, budgetCache, kind)
	m := must(reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: elector}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := m.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
