package traces_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/traces"
)

// The spans go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names. The caller shuts the provider down when the
// Manager's Run has returned.
func Example() {
	newController := func(ctx context.Context, pods *informer.SharedIndexInformer[*corev1.Pod],
		r reconcile.Reconciler) (*reconcile.Controller, *sdk.TracerProvider, error) {
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, nil, err
		}
		provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter))
		tracer, err := traces.New(traces.Options{
			TracerProvider: provider,
			Traceparent: func(_ string, key reconcile.Key) string {
				if pod, ok := pods.Get(key); ok {
					return pod.Annotations[traces.Annotation]
				}
				return ""
			},
		})
		if err != nil {
			return nil, nil, err
		}
		c, err := reconcile.NewController("pods", r, reconcile.Options{OnRun: tracer.OnRun})
		if err != nil {
			return nil, nil, err
		}
		reconcile.For(c, pods)
		return c, provider, nil
	}
	fmt.Println(newController != nil)
	// Output: true
}
