// Package check runs each controller of cert-manager by itself, as its main does: it is made by the constructor that
// its package has registered, with the informers that main uses by default.
package check

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	internalinformers "github.com/cert-manager/cert-manager/internal/informers"
	clientset "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned"
	informers "github.com/cert-manager/cert-manager/pkg/client/informers/externalversions"
	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificatesigningrequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/metrics"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// check runs Check on a controller, by its name, with others beside it. Nothing is switched off; no schedule begins
// after a minute.
func check(t *testing.T, name string, beside []string, s reconciletest.Scenario) {
	t.Helper()
	s.Run = manager(name)
	if len(beside) > 0 {
		s.Beside = []func(context.Context, *rest.Config) error{manager(beside...)}
	}
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd"}, cel.Rules{}, builtin.Kinds()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// manager is the main of cert-manager with some of its controllers, without leader election and HTTP.
func manager(names ...string) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		with, start := contextOf(ctx, cfg)
		all := make([]controller.Interface, len(names))
		for i, name := range names {
			c, err := controller.Known()[name](with)
			if err != nil {
				return err
			}
			all[i] = c
		}
		shutdown := start()
		errs := make([]error, len(all))
		var running sync.WaitGroup
		for i, c := range all {
			running.Go(func() { errs[i] = c.Run(5, ctx) })
		}
		running.Wait()
		shutdown()
		if ctx.Err() != nil {
			return nil
		}
		return errors.Join(errs...)
	}
}

// contextOf is controller.NewContextFactory for a given rest.Config: that one reads a file. The informers start when
// start is called, and have ended when the function that it returns does.
func contextOf(ctx context.Context, cfg *rest.Config) (*controller.ContextFactory, func() (shutdown func())) {
	client, core := clientset.NewForConfigOrDie(cfg), kubernetes.NewForConfigOrDie(cfg)
	const resync = 10 * time.Hour
	c := &controller.Context{RootContext: ctx, Clock: clock.RealClock{},
		Metrics: metrics.New(logr.Discard(), clock.RealClock{}),
		KubeSharedInformerFactory: internalinformers.NewFilteredSecretsKubeInformerFactory(ctx, core,
			metadata.NewForConfigOrDie(cfg), resync, ""),
		SharedInformerFactory: informers.NewSharedInformerFactory(client, resync)}
	c.ClusterResourceNamespace = "cert-manager"
	c.DefaultIssuerKind, c.DefaultIssuerGroup = "Issuer", "cert-manager.io"
	c.CertificateRequestMinimumBackoffDuration = time.Hour
	c.CertificateRequestMaximumBackoffDuration = 32 * time.Hour
	with := &controller.ContextFactory{}
	set(with, "baseRestConfig", cfg)
	set(with, "log", logr.Discard())
	set(with, "ctx", c)
	return with, func() func() {
		c.SharedInformerFactory.Start(ctx.Done())
		c.KubeSharedInformerFactory.Start(ctx.Done())
		return func() {
			c.SharedInformerFactory.Shutdown()
			c.KubeSharedInformerFactory.Shutdown()
		}
	}
}

// set gives a field that is not exported its value.
func set(of *controller.ContextFactory, field string, to any) {
	f := reflect.ValueOf(of).Elem().FieldByName(field)
	reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(reflect.ValueOf(to))
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
