package metrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

// What the example needs and does not show.
var (
	reconciler reconcile.Reconciler
	pods       *informer.SharedIndexInformer[*corev1.Pod]
	elector    *leaderelection.Elector
)

// Metrics in a registry of the program's own, beside one that its Reconciler sets, at /metrics.
func Example() {
	collector := metrics.New(metrics.Options{ControllerRuntimeNames: true}) // with the names of existing dashboards
	collector.RESTClients()
	collector.Informer(pods)
	collector.Elector("my-controller", elector.Stats)
	orphans := prometheus.NewGauge(prometheus.GaugeOpts{Name: "my_orphans", Help: "Pods without an owner."})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector, orphans, collectors.NewGoCollector())

	c, err := reconcile.NewController("my-controller", reconciler, reconcile.Options{Metrics: collector})
	if err != nil {
		log.Fatal(err)
	}
	reconcile.For(c, pods)
	server, err := serve.New(serve.Options{
		Address: "0.0.0.0:8080", Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	})
	if err != nil {
		log.Fatal(err)
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{c}, Elector: elector, Serve: server.Run,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// The names and labels of some metrics.
func ExampleCollector() {
	collector := metrics.New(metrics.Options{})
	collector.Webhook("/validate", "allowed", 3*time.Millisecond)
	page := httptest.NewRecorder()
	collector.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "thermostat_webhook_duration_seconds_count") {
			fmt.Print(line)
		}
	}
	// Output: thermostat_webhook_duration_seconds_count{outcome="allowed",path="/validate"} 1
}
