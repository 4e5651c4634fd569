package reconcile_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// Of all Secrets of the cluster the cache holds those that a ConfigMap names.
func ExampleReferences() {
	cfg, err := reconcile.ClientConfig(&rest.Config{Host: "https://127.0.0.1"})
	if err != nil {
		panic(err)
	}
	sites, err := informer.NewCached(cfg, corev1.SchemeGroupVersion.WithResource("configmaps"),
		informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		panic(err)
	}
	client, err := informer.NewResource[*corev1.Secret](cfg, corev1.SchemeGroupVersion.WithResource("secrets"),
		informer.ResourceOptions{})
	if err != nil {
		panic(err)
	}
	secrets, err := informer.NewReferenced(client.In, informer.Options[*corev1.Secret]{})
	if err != nil {
		panic(err)
	}
	secretOf := func(site *corev1.ConfigMap) reconcile.Key {
		return reconcile.Key{Namespace: site.Namespace, Name: site.Data["secret"]}
	}

	publish := reconcile.Func(func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
		site, ok := sites.Cache.Get(key)
		if !ok {
			return reconcile.Result{}, nil
		}
		secret, exists, err := secrets.Get(secretOf(site))
		if err != nil || !exists {
			return reconcile.Result{}, err // the Secret's creation brings the key up again
		}
		fmt.Println(secret.Name)
		return reconcile.Result{}, nil
	})
	c, err := reconcile.NewController("sites", publish, reconcile.Options{})
	if err != nil {
		panic(err)
	}
	reconcile.For(c, sites.Cache)
	reconcile.References(c, sites.Cache, secrets, func(site *corev1.ConfigMap) []reconcile.Key {
		return []reconcile.Key{secretOf(site)}
	})
	// A Manager runs the controller and both informers.
}
