// Package check runs more controllers of karpenter, each by itself or with those whose memory it shares, as the main of
// its provider kwok does, with the defaults of the flags.
package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/capacitybuffer"
	nodehydration "sigs.k8s.io/karpenter/pkg/controllers/node/hydration"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/garbagecollection"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/hydration"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	poolcounter "sigs.k8s.io/karpenter/pkg/controllers/nodepool/counter"
	"sigs.k8s.io/karpenter/pkg/controllers/nodepool/registrationhealth"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/controllers/state/informer"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// build makes a controller.
type build func(client client.Client, provider cloudprovider.CloudProvider) controller.Controller

func claimHydration(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	return hydration.NewController(c, p)
}

func nodeHydration(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	return nodehydration.NewController(c, p)
}

func registrationHealth(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	return registrationhealth.NewController(clock.RealClock{}, c, p, nodepoolhealth.NewState())
}

func overlays(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	return nodeoverlay.NewController(clock.RealClock{}, c, p, nodeoverlay.NewInstanceTypeStore(),
		state.NewCluster(clock.RealClock{}, c, p))
}

func collection(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	return garbagecollection.NewController(clock.RealClock{}, c, instances{p})
}

// counter counts what there is of a pool, by what others keep in memory.
func counter(c client.Client, p cloudprovider.CloudProvider) controller.Controller {
	cluster, costs := state.NewCluster(clock.RealClock{}, c, p), cost.NewClusterCost(context.Background(), p, c)
	return together{poolcounter.NewController(c, p, cluster), informer.NewNodeController(c, cluster),
		informer.NewNodePoolController(c, p, cluster, costs), informer.NewNodeClaimController(c, p, cluster, costs)}
}

// buffers says how many pods a buffer stands for. The provisioner, which makes room for them, is left out.
func buffers(c client.Client, _ cloudprovider.CloudProvider) controller.Controller {
	return capacitybuffer.NewController(c, nil, virtualpods.NewVirtualPodCache(c))
}

// together are controllers that share what they know.
type together []controller.Controller

func (t together) Register(ctx context.Context, mgr manager.Manager) error {
	var errs []error
	for _, c := range t {
		errs = append(errs, c.Register(ctx, mgr))
	}
	return errors.Join(errs...)
}

// instances is the provider kwok, whose instances are records outside of the cluster, and not its nodes.
type instances struct{ cloudprovider.CloudProvider }

func (instances) List(ctx context.Context) ([]*v1.NodeClaim, error) {
	var all map[string]struct{}
	if err := ask(ctx, "GET", "/instances/", nil, &all); err != nil {
		return nil, err
	}
	var claims []*v1.NodeClaim
	for name := range all {
		claims = append(claims, &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1.NodeClaimStatus{ProviderID: providerID(name)}})
	}
	return claims, nil
}

// providerID is that of an instance.
func providerID(name string) string { return "kwok://" + name }

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
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		return err
	}
	provider := kwok.NewCloudProvider(ctx, mgr.GetClient(), types)
	if err := build(mgr.GetClient(), provider).Register(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// index makes those indexes of the operator that the controllers use.
func index(ctx context.Context, indexer client.FieldIndexer) error {
	reference := func(o client.Object) *v1.NodeClassReference {
		return o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef
	}
	of := func(object client.Object, field string, value func(o client.Object) string) error {
		return indexer.IndexField(ctx, object, field, func(o client.Object) []string { return []string{value(o)} })
	}
	const class = "spec.template.spec.nodeClassRef."
	return errors.Join(
		of(&v1.NodePool{}, class+"group", func(o client.Object) string { return reference(o).Group }),
		of(&v1.NodePool{}, class+"kind", func(o client.Object) string { return reference(o).Kind }),
		of(&v1.NodePool{}, class+"name", func(o client.Object) string { return reference(o).Name }),
		of(&v1.NodeClaim{}, "status.providerID", func(o client.Object) string {
			return o.(*v1.NodeClaim).Status.ProviderID
		}),
		of(&corev1.Node{}, "spec.providerID", func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID }))
}

// registers stands in for the controller that launches what NodeClaims ask for: each has an instance of its name, which
// has registered. What fails is tried again by the next resync.
func registers(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	resource := schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}
	do := func(o any) {
		claim := o.(*unstructured.Unstructured)
		id, _, _ := unstructured.NestedString(claim.Object, "status", "providerID")
		if id != "" || claim.GetDeletionTimestamp() != nil {
			return
		}
		_, _ = client.Resource(resource).Patch(ctx, claim.GetName(), types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"resourceVersion":%q},"status":{"providerID":%q,"capacity":{"cpu":"4"},"conditions":[`+
				`{"type":"Registered","status":"True","reason":"Registered","message":"","lastTransitionTime":%q}]}}`,
			claim.GetResourceVersion(), providerID(claim.GetName()), time.Now().UTC().Format(time.RFC3339)),
			metav1.PatchOptions{}, "status")
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
	if _, err := factory.ForResource(resource).Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: do, UpdateFunc: func(_, o any) { do(o) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
