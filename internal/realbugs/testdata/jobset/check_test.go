package check

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// run is main without flags, certificates and webhooks.
func run(ctx context.Context, cfg *rest.Config) error {
	scheme, again := runtime.NewScheme(), true
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, jobset.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again}})
	if err != nil {
		return err
	}
	if err := controllers.SetupJobSetIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := controllers.SetupPodIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	err = controllers.NewJobSetReconciler(mgr.GetClient(), scheme, recorder(mgr, "jobset")).
		SetupWithManager(mgr)
	if err != nil {
		return err
	}
	err = controllers.NewPodReconciler(mgr.GetClient(), scheme, recorder(mgr, "pod")).SetupWithManager(mgr)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// workers has what the webhook would default.
const workers = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train, namespace: default}
spec:
  successPolicy: {operator: All}
  startupPolicy: {startupPolicyOrder: AnyOrder}
  network: {enableDNSHostnames: true, publishNotReadyAddresses: true}
  replicatedJobs:
  - name: worker
    replicas: 2
    template:
      spec:
        completionMode: Indexed
        template:
          spec:
            restartPolicy: OnFailure
            containers: [{name: c, image: c}]
`

func TestJobSet(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run:    run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds()},
		World:  &reconciletest.World{},
		Steps:  reconciletest.ApplyYAML(workers),
	})
}
