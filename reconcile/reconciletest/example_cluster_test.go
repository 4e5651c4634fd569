package reconciletest_test

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// newBudgets is what main calls, too: the controller gives each Deployment a PodDisruptionBudget. It returns the cache
// of these, too, for the test to wait on.
func newBudgets(cfg *rest.Config, namespace string) (*reconcile.Manager,
	*informer.SharedIndexInformer[*policyv1.PodDisruptionBudget], error) {
	cfg.Wrap(reconcile.TrackWrites)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	deployments, err := informer.New[*appsv1.Deployment](client.AppsV1().Deployments(namespace),
		informer.Options[*appsv1.Deployment]{})
	if err != nil {
		return nil, nil, err
	}
	budgets, err := informer.New[*policyv1.PodDisruptionBudget](client.PolicyV1().PodDisruptionBudgets(namespace),
		informer.Options[*policyv1.PodDisruptionBudget]{})
	if err != nil {
		return nil, nil, err
	}
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	c, err := reconcile.NewController("budgets",
		reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			d, ok := deployments.Get(key)
			if !ok || d.DeletionTimestamp != nil {
				return reconcile.Result{}, nil
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
		}), reconcile.Options{})
	if err != nil {
		return nil, nil, err
	}
	reconcile.For(c, deployments)
	reconcile.Owns(c, budgets, kind)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	return m, budgets, err
}

// testBudgets is TestBudgets in a test file of yours.
func testBudgets(t *testing.T) {
	plane := cluster.Shared(t)
	namespace := plane.Namespace(t)
	m, budgets, err := newBudgets(plane.Config(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- m.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // real time
	defer cancel()

	labels := map[string]string{"app": "web"}
	deployments := plane.Client().AppsV1().Deployments(namespace)
	_, err = deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	web := reconcile.Key{Namespace: namespace, Name: "web"}
	there := func() bool { _, ok := budgets.Get(web); return ok }
	if err := budgets.WaitUntil(ctx, there); err != nil {
		t.Fatal(err)
	}
	background := metav1.DeletePropagationBackground
	err = deployments.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil {
		t.Fatal(err)
	}
	if err := budgets.WaitUntil(ctx, func() bool { return !there() }); err != nil {
		t.Fatal(err) // the garbage collector deletes the budget
	}
}

// The same loop against a real control plane, in real time: for what only a real server does.
func Example_cluster() {
	var t *testing.T // that of your TestBudgets
	testBudgets(t)
}
