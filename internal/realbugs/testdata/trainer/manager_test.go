// Package check runs the controllers of Kubeflow Trainer as its main does, with the defaults of its flags. They share
// channels in memory, so that all of them run, and each scenario is about one.
package check

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrlpkg "sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	runtimecore "github.com/kubeflow/trainer/v2/pkg/runtime/core"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// check runs Check. Nothing is switched off; no schedule begins after a minute. There are no PodGroups, as without the
// plugins for the scheduler.
func check(t *testing.T, s reconciletest.Scenario) {
	t.Helper()
	s.Run = run
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd"}, cel.Rules{}, builtin.Kinds()
	s.Beside = []func(context.Context, *rest.Config) error{finishes}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// run is main without webhooks, their certificates and HTTP.
func run(ctx context.Context, cfg *rest.Config) error {
	scheme, again := runtime.NewScheme(), true
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, trainer.AddToScheme,
		jobsetv1alpha2.AddToScheme, schedulerplugins.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme,
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &again}})
	if err != nil {
		return err
	}
	runtimes, err := runtimecore.New(ctx, mgr.GetClient(), mgr.GetFieldIndexer())
	if err != nil {
		return err
	}
	if failed, err := controller.SetupControllers(mgr, runtimes, ctrlpkg.Options{}); err != nil {
		return fmt.Errorf("%s: %w", failed, err)
	}
	return mgr.Start(ctx)
}

// finishes is in place of the controller of JobSets and of what it starts: one that is not suspended is done at once.
func finishes(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	jobs := jobsetv1alpha2.SchemeGroupVersion.WithResource("jobsets")
	finish := func(o any) {
		u := o.(*unstructured.Unstructured)
		suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
		_, done, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
		if suspended || done || u.GetDeletionTimestamp() != nil {
			return
		}
		// What fails is tried again at the next resync.
		_, _ = client.Resource(jobs).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True","reason":"AllJobsCompleted",`+
				`"message":"jobset completed successfully","lastTransitionTime":%q}]}}`,
				jobsetv1alpha2.JobSetCompleted, time.Now().UTC().Format(time.RFC3339)),
			metav1.PatchOptions{}, "status")
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
	if _, err := factory.ForResource(jobs).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: finish, UpdateFunc: func(_, o any) { finish(o) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
