// Package check runs the controller of issuers of cert-manager's issuer-lib, for the issuers of the library's own
// tests. Whether the authority of an issuer can be reached is what an annotation of it says.
package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/issuer-lib/api/v1alpha1"
	"github.com/cert-manager/issuer-lib/controllers"
	"github.com/cert-manager/issuer-lib/internal/kubeutil"
	"github.com/cert-manager/issuer-lib/internal/testapi/api"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// authority is the annotation that says how the authority of an issuer is.
const authority = "example.com/authority"

// reach is what an issuer has for its check.
func reach(_ context.Context, o v1alpha1.Issuer) error {
	if is := o.GetAnnotations()[authority]; is != "up" {
		return fmt.Errorf("the authority is %s", is)
	}
	return nil
}

func run(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	for _, to := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := to(scheme); err != nil {
			return err
		}
	}
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	const owner = "issuers.example.com"
	//nolint:staticcheck // The program takes the older recorder.
	recorder := mgr.GetEventRecorderFor(owner)
	if err := (&controllers.IssuerReconciler{ForObject: &api.TestIssuer{}, FieldOwner: owner,
		EventSource: kubeutil.NewEventStore(), Client: mgr.GetClient(), Check: reach, EventRecorder: recorder,
		Clock: clock.RealClock{}}).SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// issuer is one, with how its authority is.
func issuer(name, is string) string {
	return fmt.Sprintf(`
apiVersion: testing.cert-manager.io/api
kind: TestIssuer
metadata: {name: %s, namespace: default, annotations: {%s: %s}}
spec: {}
---
`, name, authority, is)
}

// TestIssuer: an issuer is ready when its authority is. One comes up late, another one is down for a while, and a third
// one goes.
func TestIssuer(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Namespaces: []string{"default"}},
		Limit: time.Minute,
		Steps: append(reconciletest.ApplyYAML(issuer("web", "up")+issuer("late", "down")+issuer("old", "up"),
			issuer("late", "up")+issuer("web", "down"), issuer("web", "up")+issuer("new", "up")),
			reconciletest.Delete("testissuers", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*api.TestIssuer](s, "testissuers", "default", "old")}
			for _, name := range []string{"web", "late", "new"} {
				o, err := there[*api.TestIssuer](s, "testissuers", "default", name)
				if err != nil {
					return err
				}
				c := apimeta.FindStatusCondition(o.Status.Conditions, v1alpha1.IssuerConditionTypeReady)
				if c == nil {
					return fmt.Errorf("%s has no condition", name)
				}
				errs = append(errs, want("why "+name+" is ready", c.Reason, v1alpha1.IssuerConditionReasonChecked),
					want("generation of "+name, c.ObservedGeneration, o.Generation))
			}
			return errors.Join(errs...)
		},
	})
}
