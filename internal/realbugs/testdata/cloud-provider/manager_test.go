// Package check runs each controller of a cloud controller manager by itself, as its main does, with the defaults of
// the flags.
package check

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/cloud-provider/controllers/route"
	"k8s.io/cloud-provider/controllers/service"
	"k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

// start makes a controller, and returns what runs it.
type start func(client kubernetes.Interface, all informers.SharedInformerFactory,
	metrics *controllers.ControllerManagerMetrics) (run func(context.Context), err error)

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, start start, s reconciletest.Scenario) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(cfg)
		all := informers.NewSharedInformerFactory(client, 12*time.Hour)
		run, err := start(client, all, controllers.NewControllerManagerMetrics("cloud-controller-manager"))
		if err != nil {
			return err
		}
		all.Start(ctx.Done())
		run(ctx)
		all.Shutdown()
		return nil
	}
	s.Server.Kinds = builtin.Kinds()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

func services(client kubernetes.Interface, all informers.SharedInformerFactory,
	metrics *controllers.ControllerManagerMetrics) (func(context.Context), error) {
	c, err := service.New(cloud{}, client, all.Core().V1().Services(), all.Core().V1().Nodes(), "kubernetes",
		utilfeature.DefaultFeatureGate)
	return func(ctx context.Context) { c.Run(ctx, 1, metrics) }, err
}

func nodes(client kubernetes.Interface, all informers.SharedInformerFactory,
	metrics *controllers.ControllerManagerMetrics) (func(context.Context), error) {
	c, err := node.NewCloudNodeController(all.Core().V1().Nodes(), client, cloud{}, 5*time.Minute, 1, 1)
	return func(ctx context.Context) { c.RunWithContext(ctx, metrics) }, err
}

func nodeLives(client kubernetes.Interface, all informers.SharedInformerFactory,
	metrics *controllers.ControllerManagerMetrics) (func(context.Context), error) {
	c, err := nodelifecycle.NewCloudNodeLifecycleController(all.Core().V1().Nodes(), client, cloud{},
		5*time.Second, 1)
	return func(ctx context.Context) { c.Run(ctx, metrics) }, err
}

func routes(client kubernetes.Interface, all informers.SharedInformerFactory,
	metrics *controllers.ControllerManagerMetrics) (func(context.Context), error) {
	_, pods, err := net.ParseCIDR("10.244.0.0/16")
	if err != nil {
		return nil, err
	}
	c, err := route.New(cloud{}, client, all.Core().V1().Nodes(), "kubernetes", []*net.IPNet{pods})
	return func(ctx context.Context) { c.Run(ctx, 10*time.Second, metrics) }, err
}

// sorted are the names of objects, in order.
func sorted[T any](all []T, name func(T) string) (names []string) {
	for _, o := range all {
		names = append(names, name(o))
	}
	slices.Sort(names)
	return names
}
