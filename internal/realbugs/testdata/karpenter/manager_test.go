// Package check runs some controllers of karpenter, each by itself, as the main of its provider kwok does, with the
// defaults of the flags.
package check

import (
	"context"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/expiration"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/nodepool/hash"
	"sigs.k8s.io/karpenter/pkg/controllers/nodepool/readiness"
	"sigs.k8s.io/karpenter/pkg/controllers/nodepool/validation"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// build makes a controller.
type build func(client client.Client, provider cloudprovider.CloudProvider) controller.Controller

func hashes(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	return hash.NewController(c, p)
}

func ready(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	return readiness.NewController(clock.RealClock{}, c, p)
}

func valid(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	return validation.NewController(clock.RealClock{}, c, p)
}

func expires(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	return expiration.NewController(clock.RealClock{}, c, p)
}

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, build build, s reconciletest.Scenario) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, build) }
	s.Server = reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds()}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// run is the main, without leader election and HTTP.
func run(ctx context.Context, cfg *rest.Config, build build) error {
	flags := &options.Options{KubeClientQPS: 200, KubeClientBurst: 300, CPURequests: 1000}
	ctx = kwokoptions.ToContext(flags.ToContext(ctx), &kwokoptions.Options{})
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme.Scheme, Logger: logr.Discard(),
		Metrics:     metricsserver.Options{BindAddress: "0"},
		Controller:  config.Controller{SkipNameValidation: new(true)},
		BaseContext: func() context.Context { return flags.ToContext(context.Background()) }})
	if err != nil {
		return err
	}
	if err := index(ctx, mgr); err != nil {
		return err
	}
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		return err
	}
	provider := overlay.Decorate(kwok.NewCloudProvider(ctx, mgr.GetClient(), types), mgr.GetClient(),
		nodeoverlay.NewInstanceTypeStore())
	if err := build(mgr.GetClient(), provider).Register(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// index makes those indexes of the operator that the controllers use.
func index(ctx context.Context, mgr ctrl.Manager) error {
	for field, of := range map[string]func(*v1.NodePool) string{
		"spec.template.spec.nodeClassRef.group": func(p *v1.NodePool) string {
			return p.Spec.Template.Spec.NodeClassRef.Group
		},
		"spec.template.spec.nodeClassRef.kind": func(p *v1.NodePool) string {
			return p.Spec.Template.Spec.NodeClassRef.Kind
		},
		"spec.template.spec.nodeClassRef.name": func(p *v1.NodePool) string {
			return p.Spec.Template.Spec.NodeClassRef.Name
		},
	} {
		err := mgr.GetFieldIndexer().IndexField(ctx, &v1.NodePool{}, field, func(o client.Object) []string {
			return []string{of(o.(*v1.NodePool))}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
