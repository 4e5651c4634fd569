// Package check runs the controllers of Kueue as its main does, with the defaults of its configuration. They share
// their caches in memory, so that the scheduler and all controllers run, and each scenario is about one of them.
// Integrations of jobs and MultiKueue are left out: the modules of other kinds of jobs do not compile with this
// Kubernetes.
package check

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/controller/failurerecovery"
	"sigs.k8s.io/kueue/pkg/controller/tas"
	tasindexer "sigs.k8s.io/kueue/pkg/controller/tas/indexer"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/metrics"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// check runs Check. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, s reconciletest.Scenario) {
	t.Helper()
	registered()
	s.Run = run
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd"}, cel.Rules{}, builtin.Kinds()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// gate switches a feature on, as --feature-gates does.
func gate(t *testing.T, name string) {
	t.Helper()
	if err := utilfeature.DefaultMutableFeatureGate.Set(name + "=true"); err != nil {
		t.Fatal(err)
	}
}

// registered registers the metrics, once in a process.
var registered = sync.OnceFunc(metrics.Register)

// run is main without leader election, webhooks, certificates and HTTP.
func run(ctx context.Context, cfg *rest.Config) error {
	scheme, again := runtime.NewScheme(), true
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme,
		configapi.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	c, off := configapi.Configuration{}, false
	scheme.Default(&c)
	c.LeaderElection.LeaderElect = &off
	cfg = rest.CopyConfig(cfg)
	cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(*c.ClientConnection.QPS, int(*c.ClientConnection.Burst))
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      ctrlcache.Options{DefaultTransform: ctrlcache.TransformStripManagedFields()},
		Controller: config.Controller{SkipNameValidation: &again}})
	if err != nil {
		return err
	}
	locals := metrics.NewLocalQueueMetricsConfig(c.Metrics.LocalQueueMetrics)
	cache := schdcache.New(mgr.GetClient(), schdcache.WithResourceMetrics(c.Metrics.EnableClusterQueueResources),
		schdcache.WithLocalQueueMetrics(locals))
	requeuer, preempts := qcache.NewRequeuer(), expectations.New()
	if err := mgr.Add(requeuer); err != nil {
		return err
	}
	queues := qcache.NewManager(mgr.GetClient(), cache, requeuer,
		qcache.WithPodsReadyRequeuingTimestamp(configapi.EvictionTimestamp), qcache.WithLocalQueueMetrics(locals),
		qcache.WithPreemptionExpectations(preempts))
	if err := indexer.Setup(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if features.Enabled(features.TopologyAwareScheduling) {
		if err := tasindexer.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
	}
	if name, err := core.SetupControllers(mgr, queues, cache, &c, nil, preempts, nil); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if features.Enabled(features.FailureRecoveryPolicy) {
		if name, err := failurerecovery.SetupControllers(mgr, &c, nil); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if features.Enabled(features.TopologyAwareScheduling) {
		if name, err := tas.SetupControllers(mgr, queues, cache, &c, nil); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := mgr.Add(scheduler.New(queues, cache, mgr.GetClient(),
		mgr.GetEventRecorderFor(constants.AdmissionName),
		scheduler.WithPodsReadyRequeuingTimestamp(configapi.EvictionTimestamp),
		scheduler.WithFairSharing(c.FairSharing), scheduler.WithAdmissionFairSharing(c.AdmissionFairSharing),
		scheduler.WithPreemptionExpectations(preempts))); err != nil {
		return err
	}
	// In main the queues wake the scheduler when ctx ends, and not when its own one does, so that it waits until the
	// process ends. Here they do it when the manager has ended.
	ending, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { queues.CleanUpOnContext(ending) })
	running.Go(func() { cache.CleanUpOnContext(ending) })
	err = mgr.Start(ctx)
	end()
	running.Wait()
	return err
}

// want returns an error unless something is as it should be.
func want(what string, is, should any) error {
	if fmt.Sprint(is) == fmt.Sprint(should) {
		return nil
	}
	return fmt.Errorf("%s: %v, want %v", what, is, should)
}

// there returns an object, or an error if there is none.
func there[T reconciletest.Object](s *reconciletest.Server, resource, namespace, name string) (T, error) {
	o, ok := reconciletest.Get[T](s, resource, namespace, name)
	if !ok {
		return o, fmt.Errorf("%s %s/%s is not there", resource, namespace, name)
	}
	return o, nil
}

// gone returns an error if there is an object.
func gone[T reconciletest.Object](s *reconciletest.Server, resource, namespace, name string) error {
	if _, there := reconciletest.Get[T](s, resource, namespace, name); there {
		return fmt.Errorf("%s %s/%s is still there", resource, namespace, name)
	}
	return nil
}
