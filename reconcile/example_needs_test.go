package reconcile_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// Each ConfigMap names a kind, whose definition may be installed later. The objects of the kind are followed while a
// ConfigMap names it.
func ExampleNeeds() {
	cfg, err := reconcile.ClientConfig(&rest.Config{Host: "https://127.0.0.1"})
	if err != nil {
		panic(err)
	}
	apps, err := informer.NewCached(cfg, corev1.SchemeGroupVersion.WithResource("configmaps"),
		informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		panic(err)
	}
	kinds, err := reconcile.NewDynamic("kinds of apps",
		func(kind schema.GroupVersionResource) (*informer.SharedIndexInformer[*unstructured.Unstructured], error) {
			of, err := informer.NewCached(cfg, kind, informer.Options[*unstructured.Unstructured]{
				Name: kind.GroupResource().String(),
			})
			if err != nil {
				return nil, err
			}
			return of.Cache, nil
		})
	if err != nil {
		panic(err)
	}
	kindOf := func(app *corev1.ConfigMap) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: app.Data["group"], Version: "v1", Resource: app.Data["resource"]}
	}

	count := reconcile.Func(func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
		app, ok := apps.Cache.Get(key)
		if !ok {
			return reconcile.Result{}, nil
		}
		parts, err := kinds.Get(kindOf(app)) // complete: the key has waited for it
		if err != nil {
			return reconcile.Result{}, err // the app has changed since
		}
		n := 0
		for part := range parts.All() {
			if ref := metav1.GetControllerOf(part); ref != nil && ref.UID == app.UID {
				n++
			}
		}
		fmt.Println(key, "has", n, "parts")
		return reconcile.Result{}, nil
	})
	c, err := reconcile.NewController("apps", count, reconcile.Options{})
	if err != nil {
		panic(err)
	}
	reconcile.For(c, apps.Cache)
	reconcile.Needs(c, apps.Cache, kinds,
		func(app *corev1.ConfigMap) []schema.GroupVersionResource {
			return []schema.GroupVersionResource{kindOf(app)}
		},
		func(parts *informer.SharedIndexInformer[*unstructured.Unstructured]) {
			reconcile.Owns(c, parts, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		})
	// A Manager runs the controller, and the informers of the kinds that are named.
}
