package events_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
)

// A controller that records an Event about each Deployment that is paused.
func ExampleNewRecorder() {
	base := must(clientcmd.BuildConfigFromFlags("", clientcmd.RecommendedHomeFile))
	recorder := must(events.NewRecorder(base, "pauses"))
	cfg := must(reconcile.ClientConfig(base))
	deployments := must(informer.NewResource[*appsv1.Deployment](cfg,
		appsv1.SchemeGroupVersion.WithResource("deployments"), informer.ResourceOptions{}))
	cache := must(informer.New(deployments, informer.Options[*appsv1.Deployment]{}))
	c := must(reconcile.NewController("pauses", reconcile.Func(
		func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			if d, ok := cache.Get(key); ok && d.Spec.Paused {
				recorder.Event(d, corev1.EventTypeNormal, "Paused", "the Deployment rolls out no changes")
			}
			return reconcile.Result{}, nil
		}), reconcile.Options{}))
	reconcile.For(c, cache)
	m := must(reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{c},
		Beside:      map[string]func(context.Context) error{"events": recorder.Run},
	}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
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
