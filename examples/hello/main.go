// Command hello is a thermostat for Deployments: it keeps the number of replicas at the value of the annotation
// hello/replicas.
package main

import (
	"context"
	"fmt"
	"log"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/program"
)

func main() { program.Main("", run) }

// run runs the controller until ctx ends.
func run(ctx context.Context, cfg *rest.Config) error {
	cfg = must(reconcile.ClientConfig(cfg)) // the next run waits until the cache shows what this one wrote
	deployments := must(informer.NewCached(cfg, appsv1.SchemeGroupVersion.WithResource("deployments"),
		informer.Options[*appsv1.Deployment]{}))

	keep := reconcile.Func(func(ctx context.Context, key informer.Key) (reconcile.Result, error) {
		d, ok := deployments.Cache.Get(key) // observe
		if !ok {
			return reconcile.Result{}, nil
		}
		want, err := strconv.ParseInt(d.Annotations["hello/replicas"], 10, 32)
		if err != nil || *d.Spec.Replicas == int32(want) { // diff
			return reconcile.Result{}, nil
		}
		log.Printf("scaling %s from %d to %d replicas", key, *d.Spec.Replicas, want)
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, want) // act
		_, err = deployments.In(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return reconcile.Result{}, err
	})

	c := must(reconcile.NewController("hello", keep, reconcile.Options{}))
	reconcile.For(c, deployments.Cache)
	m := must(reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}}))
	return m.Run(ctx)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
