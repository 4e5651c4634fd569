package check

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sigs.k8s.io/agent-sandbox/controllers"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	extensionscontrollers "sigs.k8s.io/agent-sandbox/extensions/controllers"
	"sigs.k8s.io/agent-sandbox/internal/metrics"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// run is main with --extensions, without flags, certificates and webhooks, and without claims.
func run(ctx context.Context, cfg *rest.Config) error {
	again := true
	if err := extensions.AddToScheme(controllers.Scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: controllers.Scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again}})
	if err != nil {
		return err
	}
	tracer := metrics.NewNoOp()
	err = (&controllers.SandboxReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Tracer: tracer,
		ClusterDomain: "cluster.local"}).SetupWithManager(mgr, 10)
	if err != nil {
		return err
	}
	err = (&extensionscontrollers.SandboxTemplateReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(),
		Recorder: mgr.GetEventRecorder("sandboxtemplate-controller"), Tracer: tracer}).SetupWithManager(mgr, 1)
	if err != nil {
		return err
	}
	if err := warmPools(mgr).SetupWithManager(mgr, 1); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

const pool = `
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: python, namespace: default}
spec:
  podTemplate: {spec: {containers: [{name: c, image: c}]}}
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata: {name: warm, namespace: default}
spec: {replicas: 3, sandboxTemplateRef: {name: python}}
`

// noMore says that a pool never has more Sandboxes than replicas, of those that are not about to go.
func noMore(w reconciletest.Write, s *reconciletest.Server) error {
	pool, ok := reconciletest.Get[*unstructured.Unstructured](s, "sandboxwarmpools.extensions.agents.x-k8s.io",
		"default", "warm")
	if w.Resource.Resource != "sandboxes" || w.Old != nil || !ok {
		return nil
	}
	n := 0
	for _, o := range reconciletest.List[*unstructured.Unstructured](s, "sandboxes.agents.x-k8s.io", "default") {
		if o.GetDeletionTimestamp() == nil && metav1.IsControlledBy(o, pool) {
			n++
		}
	}
	if n > 3 {
		return fmt.Errorf("there are %d Sandboxes in a pool of 3", n)
	}
	return nil
}

func TestWarmPool(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run:    run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds()},
		World:  &reconciletest.World{},
		Steps:  reconciletest.ApplyYAML(pool),
		Always: noMore,
	})
}
