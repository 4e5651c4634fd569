package events_test

import (
	"context"
	"log"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/program"
)

// A controller that records an Event about each Deployment that is paused.
func ExampleNewRecorder() {
	program.Main("", func(ctx context.Context, base *rest.Config) error {
		recorder := must(events.NewRecorder(base, "pauses"))
		deployments := must(informer.NewCached(must(reconcile.ClientConfig(base)),
			appsv1.SchemeGroupVersion.WithResource("deployments"), informer.Options[*appsv1.Deployment]{}))
		c := must(reconcile.NewController("pauses", reconcile.Func(
			func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
				if d, ok := deployments.Cache.Get(key); ok && d.Spec.Paused {
					recorder.Event(d, corev1.EventTypeNormal, "Paused", "the Deployment rolls out no changes")
				}
				return reconcile.Result{}, nil
			}), reconcile.Options{}))
		reconcile.For(c, deployments.Cache)
		m := must(reconcile.NewManager(reconcile.ManagerOptions{
			Controllers: []*reconcile.Controller{c},
			Beside:      map[string]func(context.Context) error{"events": recorder.Run},
		}))
		return m.Run(ctx)
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
