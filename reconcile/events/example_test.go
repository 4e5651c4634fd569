package events_test

import (
	"context"
	"fmt"
	"log"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/program"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
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

// An Event as kubectl describe shows it.
func ExampleRecorder_Eventf() {
	server := must(reconciletest.Start(reconciletest.Options{}))
	defer server.Close()
	recorder := must(events.NewRecorder(server.Config(), "pauses"))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- recorder.Run(ctx) }()

	d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	recorder.Eventf(d, corev1.EventTypeNormal, "Paused", "revision %d is not rolled out", 3)
	stop() // what has been recorded is written before Run returns
	fmt.Println(<-ended)
	for _, e := range reconciletest.List[*corev1.Event](server, "events", "default") {
		fmt.Println(e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
	}
	// Output:
	// <nil>
	// Normal Paused Deployment web revision 3 is not rolled out
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
