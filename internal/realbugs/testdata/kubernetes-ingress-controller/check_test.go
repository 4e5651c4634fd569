// Package check runs the controller of GatewayClasses of Kong's ingress controller by itself, as its manager makes it.
// The others, which configure Kong, are left out.
package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kong/kubernetes-ingress-controller/v3/internal/controllers/gateway"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	again, period := true, 10*time.Hour
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{SyncPeriod: &period},
		Controller: config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	if err := (&gateway.GatewayClassReconciler{Client: mgr.GetClient(), Log: logr.Discard(), Scheme: mgr.GetScheme(),
		CacheSyncTimeout: 2 * time.Minute}).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// TestGatewayClass: the classes of the controller are accepted. One changes, another one goes, and a third one comes;
// that of another controller is left alone. Nothing is switched off; no schedule begins after a minute.
func TestGatewayClass(t *testing.T) {
	class := func(name, controller, description string) string {
		return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: %s, annotations: {konghq.com/gatewayclass-unmanaged: "true"}}
spec: {controllerName: %s, description: %s}
---
`, name, controller, description)
	}
	ours := string(gateway.GetControllerName())
	const resource = "gatewayclasses"
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Kinds: builtin.Kinds(), Rules: cel.Rules{},
			Namespaces: []string{"default"}},
		Limit: time.Minute,
		Steps: append(reconciletest.ApplyYAML(
			class("kong", ours, "first")+class("old", ours, "first")+class("foreign", "example.com/other", "first"),
			class("kong", ours, "second")), reconciletest.Delete(resource, "", "old"),
			reconciletest.ApplyYAML(class("inner", ours, "first"))[0]),
		Settled: func(s *reconciletest.Server) error {
			const accepted = string(gatewayv1.GatewayClassConditionStatusAccepted)
			errs := []error{gone[*gatewayv1.GatewayClass](s, resource, "", "old")}
			for name, is := range map[string]bool{"kong": true, "inner": true, "foreign": false} {
				c, err := there[*gatewayv1.GatewayClass](s, resource, "", name)
				if err != nil {
					return err
				}
				condition := meta.FindStatusCondition(c.Status.Conditions, accepted)
				errs = append(errs,
					want(name+" is accepted", meta.IsStatusConditionTrue(c.Status.Conditions, accepted), is),
					want(name+" was seen in its generation",
						condition != nil && condition.ObservedGeneration == c.Generation, is))
			}
			return errors.Join(errs...)
		},
	})
}
