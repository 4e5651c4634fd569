// Package check runs controllers of Kubernetes' aggregator by themselves, as kube-apiserver's main does.
package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	definitions "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
	local "k8s.io/kube-aggregator/pkg/controllers/status/local"
	"k8s.io/kube-aggregator/pkg/controllers/status/metrics"
	"k8s.io/kubernetes/pkg/controlplane/controller/crdregistration"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// starts makes controllers, and returns how they are run.
type starts func(cfg *rest.Config, client clientset.Interface, services externalversions.SharedInformerFactory) (
	start func(ctx context.Context, running *sync.WaitGroup), err error)

// check runs Check on controllers. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, c starts, s reconciletest.Scenario) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error {
		client, err := clientset.NewForConfig(cfg)
		if err != nil {
			return err
		}
		services := externalversions.NewSharedInformerFactory(client, 5*time.Minute)
		start, err := c(cfg, client, services)
		if err != nil {
			return err
		}
		var running sync.WaitGroup
		services.Start(ctx.Done())
		start(ctx, &running)
		<-ctx.Done()
		running.Wait()
		services.Shutdown()
		return nil
	}
	s.Server.Kinds = builtin.Kinds()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// autoRegister registers the versions of custom resources as APIServices. What kube-apiserver registers once, when it
// starts, is left out.
func autoRegister(cfg *rest.Config, client clientset.Interface, services externalversions.SharedInformerFactory) (
	func(context.Context, *sync.WaitGroup), error) {
	extensions, err := apiextensions.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	factory := definitions.NewSharedInformerFactory(extensions, 5*time.Minute)
	registers := autoregister.NewAutoRegisterController(services.Apiregistration().V1().APIServices(),
		client.ApiregistrationV1())
	reads := crdregistration.NewCRDRegistrationController(factory.Apiextensions().V1().CustomResourceDefinitions(),
		registers)
	return func(ctx context.Context, running *sync.WaitGroup) {
		factory.Start(ctx.Done())
		running.Go(func() {
			reads.Run(5, ctx.Done())
			factory.Shutdown()
		})
		running.Go(func() {
			reads.WaitForInitialSync()
			registers.Run(5, ctx.Done())
		})
	}, nil
}

// definition is one of a custom resource of a group, with one version.
func definition(name, group, version string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.%[2]s}
spec:
  group: %[2]s
  scope: Namespaced
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[1]ss, singular: %[1]s}
  versions:
  - name: %[3]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`, name, group, version)
}

// TestAutoRegister: custom resources come and go, and with them their APIServices; two of one version share one.
func TestAutoRegister(t *testing.T) {
	check(t, autoRegister, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(definition("thing", "example.com", "v1")+
			definition("other", "example.org", "v1"), definition("more", "example.com", "v2")+
			definition("part", "example.com", "v1")),
			reconciletest.Delete("customresourcedefinitions", "", "others.example.org"),
			reconciletest.Delete("customresourcedefinitions", "", "parts.example.com")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*apiregistrationv1.APIService](s, "apiservices", "", "v1.example.org")}
			for _, name := range []string{"v1.example.com", "v2.example.com"} {
				_, err := there[*apiregistrationv1.APIService](s, "apiservices", "", name)
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	})
}

// localAvailability says of the APIServices that kube-apiserver serves itself that they are available.
func localAvailability(_ *rest.Config, client clientset.Interface, services externalversions.SharedInformerFactory) (
	func(context.Context, *sync.WaitGroup), error) {
	c, err := local.New(services.Apiregistration().V1().APIServices(), client.ApiregistrationV1(), metrics.New())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, running *sync.WaitGroup) {
		running.Go(func() { c.Run(5, ctx.Done()) })
	}, nil
}

// TestLocalAvailability: an APIService that a Service has served is served by kube-apiserver then; another one goes.
func TestLocalAvailability(t *testing.T) {
	of := func(name, service string) string {
		return fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%s}
spec:
  group: %s
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 100
  %s
---
`, name, name, service)
	}
	const remote = "service: {name: metrics, namespace: default, port: 443}"
	check(t, localAvailability, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("example.com", "")+of("example.net", remote)+of("example.org", "")+
			of("metrics.example.com", remote), of("example.net", "")),
			reconciletest.Delete("apiservices", "", "v1.example.org")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*apiregistrationv1.APIService](s, "apiservices", "", "v1.example.org")}
			for name, is := range map[string]bool{"example.com": true, "example.net": true,
				"metrics.example.com": false} {
				a, err := there[*apiregistrationv1.APIService](s, "apiservices", "", "v1."+name)
				if err != nil {
					return err
				}
				errs = append(errs, want("conditions of "+name, len(a.Status.Conditions) == 1, is))
			}
			return errors.Join(errs...)
		},
	})
}
