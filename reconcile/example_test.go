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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// A complete program, of which any number of processes may run: the one that leads gives each Deployment a
// PodDisruptionBudget.
func Example() {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	// The elector is made first: its own requests pass neither of the two wrappers.
	elector, err := leaderelection.New(leaderelection.Config{REST: cfg, Namespace: "prod", Name: "budgets"})
	if err != nil {
		log.Fatal(err)
	}
	cfg.Wrap(reconcile.TrackWrites) // a key is reconciled when the caches show what its last run wrote
	cfg.Wrap(elector.Fence)         // what does not lead any more does not write
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		log.Fatal(err)
	}
	deployments, err := informer.New[*appsv1.Deployment](client.AppsV1().Deployments(metav1.NamespaceAll),
		informer.Options[*appsv1.Deployment]{})
	if err != nil {
		log.Fatal(err)
	}
	budgets, err := informer.New[*policyv1.PodDisruptionBudget](
		client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll), informer.Options[*policyv1.PodDisruptionBudget]{})
	if err != nil {
		log.Fatal(err)
	}
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")

	c, err := reconcile.NewController("budgets",
		reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			d, ok := deployments.Get(key)
			if !ok || d.DeletionTimestamp != nil {
				return reconcile.Result{}, nil // the garbage collector sees to the budget
			}
			if _, ok := budgets.Get(key); ok {
				return reconcile.Result{}, nil
			}
			one := intstr.FromInt32(1)
			_, err := objects.CreateOwned(ctx, objects.NewOwner(client.AppsV1().Deployments(d.Namespace), d, kind),
				client.PolicyV1().PodDisruptionBudgets(d.Namespace), &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Name: d.Name},
					Spec:       policyv1.PodDisruptionBudgetSpec{Selector: d.Spec.Selector, MaxUnavailable: &one},
				})
			return reconcile.Result{}, err
		}), reconcile.Options{Workers: 2})
	if err != nil {
		log.Fatal(err)
	}
	reconcile.For(c, deployments)
	reconcile.Owns(c, budgets, kind)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: elector})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := m.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
