package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	v1 "github.com/thermostat-go/thermostat/examples/template/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// reconciler makes the cluster match the Greetings.
type reconciler struct {
	greetings  *informer.Cached[*v1.Greeting]
	configMaps *informer.Cached[*corev1.ConfigMap]
}

// Reconcile looks at what is, and applies what should be. It is called again when a Greeting or its ConfigMap changes,
// and after an error. Garbage collection deletes the ConfigMap with its owner.
func (r *reconciler) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	greeting, ok := r.greetings.Cache.Get(key)
	if !ok || greeting.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	owner := objects.NewOwner(r.greetings.In(key.Namespace), greeting, r.greetings.GroupVersionKind())
	want := corev1ac.ConfigMap(key.Name, key.Namespace).WithData(map[string]string{"text": greeting.Spec.Text})
	seen, _ := r.configMaps.Cache.Get(key)
	_, err := objects.ApplyOwned(ctx, owner, r.configMaps.In(key.Namespace), seen, want,
		metav1.ApplyOptions{FieldManager: name, Force: true}, nil)
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Applied",
		Message: "the ConfigMap has the text"}
	var taken *objects.TakenError
	switch {
	case errors.As(err, &taken): // that ConfigMap is followed, too: its end brings the key back
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NameTaken", err.Error()
	case err != nil:
		return reconcile.Result{}, err
	}
	_, err = objects.UpdateStatus(ctx, r.greetings.In(key.Namespace), greeting, func(g *v1.Greeting) error {
		return objects.SetCondition(&g.Status.Conditions, g.Generation, ready)
	})
	return reconcile.Result{}, err
}
