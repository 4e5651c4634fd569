package inspect_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/inspect"
)

// A bundle, as for a bug report, is written and read again. Bundle.Handler serves its pages.
func ExampleWriteBundle() {
	c, err := reconcile.NewController("web", reconcile.Func(
		func(context.Context, reconcile.Key) (reconcile.Result, error) { return reconcile.Result{}, nil }),
		reconcile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	reconcile.WatchesChan(c, "keys", make(chan reconcile.Key), func(k reconcile.Key) []reconcile.Key {
		return []reconcile.Key{k}
	})
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := inspect.WriteBundle(context.Background(), &file, m); err != nil {
		log.Fatal(err)
	}
	bundle, err := inspect.ReadBundle(&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bundle.Manager.Stage, len(bundle.Keys["web"]))
	// Output: NotStarted 0
}
