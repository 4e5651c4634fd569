package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A complete program: it works while it leads, campaigns again when it lost the Lease, and hands over at once when it
// is asked to end.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	restConfig, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	elector, err := leaderelection.New(leaderelection.Config{REST: restConfig, Namespace: "prod",
		Name: "my-controller"})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.ListenAndServe(":8080", healthz(elector))) }()

	for ctx.Err() == nil {
		err := elector.Run(ctx, func(ctx context.Context) error {
			return work(ctx, restConfig, elector) // and return when ctx ends
		})
		err = leaderelection.ExitIfStuck(err)
		if err != nil && !errors.Is(err, leaderelection.ErrLost) {
			log.Fatal(err)
		}
	}
}

func healthz(elector *leaderelection.Elector) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := elector.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// What the work writes goes through a fence.
func work(ctx context.Context, restConfig *rest.Config, elector *leaderelection.Elector) error {
	fenced := rest.CopyConfig(restConfig)
	fenced.Wrap(elector.Fence)
	clients, err := kubernetes.NewForConfig(fenced)
	if err != nil {
		return err
	}
	_ = clients
	<-ctx.Done()
	return nil
}

// One tenure, on an API server in memory.
func ExampleElector_Run() {
	server, err := reconciletest.Start(reconciletest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	elector, err := leaderelection.New(leaderelection.Config{REST: server.Config(), Namespace: "default",
		Name: "my-controller", SkipFirstWait: true})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	err = elector.Run(ctx, func(context.Context) error {
		lease, _ := reconciletest.Get[*coordinationv1.Lease](server, "leases.coordination.k8s.io", "default",
			"my-controller")
		fmt.Println("leading for", *lease.Spec.LeaseDurationSeconds, "s, unless the Lease is renewed")
		stop()
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading for 15 s, unless the Lease is renewed
	// <nil>
}
