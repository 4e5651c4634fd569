// Package check runs the controller of GatewayClasses of Contour's provisioner of gateways, with the scheme and the
// manager of its main. The one that makes a Contour for each Gateway is left out.
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/projectcontour/contour/internal/provisioner"
	"github.com/projectcontour/contour/internal/provisioner/controller"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const name = "projectcontour.io/gateway-controller"

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// run is main without leader election.
func run(ctx context.Context, cfg *rest.Config) error {
	scheme, err := provisioner.CreateScheme()
	if err != nil {
		return err
	}
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	if _, err := controller.NewGatewayClassController(mgr, name); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// TestGatewayClass: a class is accepted when the parameters that it names are there, and valid. Nothing is switched
// off; no schedule begins after a minute.
func TestGatewayClass(t *testing.T) {
	class := func(name, controller, parameters string) string {
		return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: %s}
spec:
  controllerName: %s
  %s
---
`, name, controller, parameters)
	}
	parameters := func(workload string) string {
		return fmt.Sprintf(`
apiVersion: projectcontour.io/v1alpha1
kind: ContourDeployment
metadata: {name: small, namespace: projectcontour}
spec: {envoy: {workloadType: %s}}
---
`, workload)
	}
	const resource = "gatewayclasses"
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Kinds: builtin.Kinds(), Rules: cel.Rules{},
			Namespaces: []string{"default", "projectcontour"},
			Resources: []reconciletest.Resource{{Kind: "ContourDeployment", Status: true,
				GroupVersionResource: schema.GroupVersionResource{Group: "projectcontour.io", Version: "v1alpha1",
					Resource: "contourdeployments"}}}},
		Limit: time.Minute,
		Steps: append(reconciletest.ApplyYAML(class("plain", name, "")+class("foreign", "example.com/other", "")+
			class("small", name, "parametersRef: {group: projectcontour.io, kind: ContourDeployment, name: small, "+
				"namespace: projectcontour}"), parameters("Sometimes"), parameters("Deployment")),
			reconciletest.Delete(resource, "", "plain")),
		Settled: func(s *reconciletest.Server) error {
			small, err := there[*gatewayv1.GatewayClass](s, resource, "", "small")
			foreign, err2 := there[*gatewayv1.GatewayClass](s, resource, "", "foreign")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			is := func(c *gatewayv1.GatewayClass, condition gatewayv1.GatewayClassConditionType) bool {
				return meta.IsStatusConditionTrue(c.Status.Conditions, string(condition))
			}
			const accepted = gatewayv1.GatewayClassConditionStatusAccepted
			const supported = gatewayv1.GatewayClassConditionStatusSupportedVersion
			return errors.Join(want("small is accepted", is(small, accepted), true),
				want("the version is supported", is(small, supported), true),
				want("foreign is accepted", is(foreign, accepted), false),
				gone[*gatewayv1.GatewayClass](s, resource, "", "plain"))
		},
	})
}
