package reconcile_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// Each ConfigMap names a kind, whose definition may be installed later, and has one object of it. The objects of the
// kind are followed while a ConfigMap names it.
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

	apply := reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		app, ok := apps.Cache.Get(key)
		if !ok {
			return reconcile.Result{}, nil
		}
		parts, err := kinds.Get(kindOf(app)) // complete: the key has waited for it
		switch {
		case apierrors.IsNotFound(err):
			fmt.Println(key, "names a kind that is not installed") // when it is, this is called again
			return reconcile.Result{}, nil
		case err != nil:
			return reconcile.Result{}, err // a kind that is refused, or the app has changed since
		}
		for part := range parts.All() {
			if ref := metav1.GetControllerOf(part); ref != nil && ref.UID == app.UID {
				return reconcile.Result{}, nil
			}
		}
		// A client of the kind: it sends no request yet, and shares its connections with the others.
		client, err := informer.NewResource[*unstructured.Unstructured](cfg, kindOf(app), informer.ResourceOptions{})
		if err != nil {
			return reconcile.Result{}, err
		}
		part := &unstructured.Unstructured{}
		part.SetGroupVersionKind(kindOf(app).GroupVersion().WithKind(app.Data["kind"]))
		part.SetGenerateName(app.Name + "-")
		part.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(app,
			corev1.SchemeGroupVersion.WithKind("ConfigMap"))})
		_, err = client.In(app.Namespace).Create(ctx, part, metav1.CreateOptions{})
		return reconcile.Result{}, err
	})
	c, err := reconcile.NewController("apps", apply, reconcile.Options{})
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
