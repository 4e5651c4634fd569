// Package check runs two controllers of frr-k8s by themselves: the one that removes what is left of nodes without a
// daemon, and the one that reports the BGP sessions of a node, with the managers of their mains. Webhooks, certificates
// and FRR itself are left out.
package check

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	frrk8sv1beta1 "github.com/metallb/frr-k8s/api/v1beta1"
	status "github.com/metallb/frr-k8s/frr-tools/status/controller"
	"github.com/metallb/frr-k8s/internal/controller"
	"github.com/metallb/frr-k8s/internal/frr"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const (
	system = "frr-k8s-system"
	// component is the label of the pods of the daemon.
	component, daemon = "app.kubernetes.io/component", "frr-k8s"
	// here is the node of the reporter, and own its pod.
	here, own = "first", "frr-k8s-first"
	// sessions is the ConfigMap from which the test has what FRR says of its neighbours.
	sessions = "sessions"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, run func(context.Context, *rest.Config) error, s reconciletest.Scenario) {
	t.Helper()
	s.Run = run
	s.Server.CRDs, s.Server.Kinds, s.Server.Rules = []string{"crd"}, builtin.Kinds(), cel.Rules{}
	s.Server.Namespaces = []string{"default", system}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

func manager(cfg *rest.Config, caches cache.Options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, frrk8sv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	again := true
	return ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Cache:      caches,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again},
	})
}

// cleaner removes the states of nodes on which no daemon runs.
func cleaner(ctx context.Context, cfg *rest.Config) error {
	ours := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.namespace", system)}
	mgr, err := manager(cfg, cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Secret{}: ours, &corev1.Pod{}: ours, &frrk8sv1beta1.FRRConfiguration{}: ours}})
	if err != nil {
		return err
	}
	if err := (&controller.NodeStateCleaner{Client: mgr.GetClient(), Scheme: mgr.GetScheme(),
		Logger: log.NewNopLogger(), Namespace: system}).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// reporter has an object for each BGP session of its node. It asks FRR every two minutes.
func reporter(ctx context.Context, cfg *rest.Config) error {
	mgr, err := manager(cfg, cache.Options{})
	if err != nil {
		return err
	}
	direct, err := client.New(cfg, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := direct.Get(ctx, types.NamespacedName{Namespace: system, Name: own}, pod); err != nil {
		return err
	}
	if err := (&status.BGPSessionStateReconciler{Client: mgr.GetClient(), Logger: log.NewNopLogger(),
		BGPPeersFetcher: func() (map[string][]*frr.Neighbor, error) { return neighbours(ctx, direct) },
		NodeName:        here, Namespace: system, DaemonPod: pod.DeepCopy(), ResyncPeriod: 2 * time.Minute,
	}).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// neighbours stands in for what FRR says of its neighbours, by their VRFs: the ConfigMap has the VRF, and the states of
// BGP and of BFD of each address.
func neighbours(ctx context.Context, c client.Client) (map[string][]*frr.Neighbor, error) {
	all, is := map[string][]*frr.Neighbor{}, &corev1.ConfigMap{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: system, Name: sessions}, is); err != nil {
		return all, client.IgnoreNotFound(err)
	}
	for address, text := range is.Data {
		of := strings.Fields(text)
		all[of[0]] = append(all[of[0]], &frr.Neighbor{ID: address, VRF: of[0], BGPState: of[1], BFDStatus: of[2]})
	}
	return all, nil
}

// daemons stands in for the daemons: one that runs reports the state of its node. What fails, or was removed, is tried
// again by the next resync.
func daemons(ctx context.Context, cfg *rest.Config) error {
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	states := dyn.Resource(frrk8sv1beta1.GroupVersion.WithResource("frrnodestates"))
	report := func(o any) {
		pod := o.(*corev1.Pod)
		if pod.Labels[component] != daemon || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
			return
		}
		if _, err := states.Get(ctx, pod.Spec.NodeName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return
		}
		_, _ = states.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": frrk8sv1beta1.GroupVersion.String(), "kind": "FRRNodeState",
			"metadata": map[string]any{"name": pod.Spec.NodeName}}}, metav1.CreateOptions{})
	}
	factory := informers.NewSharedInformerFactoryWithOptions(c, 30*time.Second, informers.WithNamespace(system))
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: report, UpdateFunc: func(_, o any) { report(o) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
