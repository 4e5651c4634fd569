// Package check runs each controller of kube-controller-manager by itself, as its main does: constructors, defaults of
// the flags, clients and informers are those of k8s.io/kubernetes/cmd/kube-controller-manager.
package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	appconfig "k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/apis/config"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

// configuration is what the flags of kube-controller-manager set.
type configuration = config.KubeControllerManagerConfiguration

// never is how slow the garbage collector of the server is where the controller under test does its work.
const never = 10_000 * time.Hour

// check runs Check on a controller, by its name. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, name string, s reconciletest.Scenario, flags ...func(*configuration)) {
	t.Helper()
	s.Run = manager(name, flags)
	s.Server.Kinds = builtin.Kinds()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// apart are controllers that are not made by app.NewControllerDescriptors here; see where they are tested.
var apart = map[string]app.ControllerConstructor{
	names.ServiceAccountTokenController:          newTokens,
	names.PersistentVolumeAttachDetachController: newAttachDetach,
	names.TaintEvictionController:                newTaintEviction,
}

// manager is the main of kube-controller-manager with one controller, without leader election and HTTP.
func manager(name string, flags []func(*configuration)) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		with, started, err := contextOf(ctx, cfg, flags, name == names.GarbageCollectorController)
		if err != nil {
			return err
		}
		build := app.NewControllerDescriptors()[name].BuildController
		if made := apart[name]; made != nil {
			build = func(ctx context.Context, with app.ControllerContext) (app.Controller, error) {
				return made(ctx, with, name)
			}
		}
		controller, err := build(ctx, with)
		if err == nil && controller == nil {
			err = errors.New("it is disabled")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		shutdown := started()
		var running sync.WaitGroup
		running.Go(func() { controller.Run(ctx) })
		<-ctx.Done()
		running.Wait()
		shutdown()
		return nil
	}
}

// defaults is the configuration that flags have made which nobody has set.
var defaults = sync.OnceValue(func() *configuration {
	o, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		panic(err)
	}
	known, off, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	o.Flags(known, off, aliases)
	o.SecureServing.BindPort = 0
	c := &appconfig.Config{}
	if err := o.ApplyTo(c, known, off, aliases); err != nil {
		panic(err)
	}
	return &c.ComponentConfig
})

// contextOf is app.CreateControllerContext, for one controller. The informers start when start is called, and have
// ended when the function that it returns does.
func contextOf(ctx context.Context, cfg *rest.Config, flags []func(*configuration), collects bool) (
	with app.ControllerContext, start func() (shutdown func()), err error) {
	o := *defaults().DeepCopy()
	for _, flag := range flags {
		flag(&o)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.QPS = o.Generic.ClientConnection.ContentType, o.Generic.ClientConnection.QPS
	cfg.Burst = int(o.Generic.ClientConnection.Burst)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return with, nil, err
	}
	partial, err := metadata.NewForConfig(cfg)
	if err != nil {
		return with, nil, err
	}
	resync := o.Generic.MinResyncPeriod.Duration
	typed := informers.NewSharedInformerFactory(client, resync)
	untyped := metadatainformer.NewSharedInformerFactory(partial, resync)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	with = app.ControllerContext{
		ClientBuilder: clientbuilder.SimpleControllerClientBuilder{ClientConfig: cfg}, InformerFactory: typed,
		ObjectOrMetadataInformerFactory: informerfactory.NewInformerFactory(typed, untyped), ComponentConfig: o,
		RESTMapper:               mapper,
		InformersStarted:         make(chan struct{}),
		ResyncPeriod:             func() time.Duration { return resync },
		ControllerManagerMetrics: controllers.NewControllerManagerMetrics("kube-controller-manager"),
	}
	if collects {
		with.GraphBuilder = garbagecollector.NewDependencyGraphBuilder(ctx, partial, with.RESTMapper,
			garbagecollector.DefaultIgnoredResources(), with.ObjectOrMetadataInformerFactory, with.InformersStarted)
	}
	return with, func() func() {
		typed.Start(ctx.Done())
		with.ObjectOrMetadataInformerFactory.Start(ctx.Done())
		close(with.InformersStarted)
		return func() {
			typed.Shutdown()
			untyped.Shutdown()
		}
	}, nil
}

// want returns an error unless something is as it should be.
func want(what string, is, should any) error {
	if fmt.Sprint(is) == fmt.Sprint(should) {
		return nil
	}
	return fmt.Errorf("%s: %v, want %v", what, is, should)
}

// count counts the objects of a resource for which a function returns true.
func count[T reconciletest.Object](s *reconciletest.Server, resource, namespace string, of func(T) bool) (n int) {
	for _, o := range reconciletest.List[T](s, resource, namespace) {
		if of(o) {
			n++
		}
	}
	return n
}

// gone returns an error if there is an object.
func gone[T reconciletest.Object](s *reconciletest.Server, resource, namespace, name string) error {
	if _, there := reconciletest.Get[T](s, resource, namespace, name); there {
		return fmt.Errorf("%s %s/%s is still there", resource, namespace, name)
	}
	return nil
}

// there returns an object, or an error if there is none.
func there[T reconciletest.Object](s *reconciletest.Server, resource, namespace, name string) (T, error) {
	o, ok := reconciletest.Get[T](s, resource, namespace, name)
	if !ok {
		return o, fmt.Errorf("%s %s/%s is not there", resource, namespace, name)
	}
	return o, nil
}
