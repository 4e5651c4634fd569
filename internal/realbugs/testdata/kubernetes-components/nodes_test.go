package check

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/utils/clock"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// nodeOf is a node of a pool.
func nodeOf(name, pool string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {pool: %s}}
---
`, name, pool)
}

// nodeLease is the part of a kubelet that renews the Lease of its node.
func nodeLease(ctx context.Context, client kubernetes.Interface) error {
	lease.NewController(clock.RealClock{}, client, "first", 40, nil, 10*time.Second, "first",
		corev1.NamespaceNodeLease, util.SetNodeOwnerFunc(ctx, client, "first")).Run(ctx)
	return nil
}

// TestNodeLease: a node goes, and is made anew, and its Lease belongs to it.
func TestNodeLease(t *testing.T) {
	steps := reconciletest.ApplyYAML(nodeOf("first", "a"), nodeOf("first", "b"))
	check(t, nodeLease, reconciletest.Scenario{
		Server: reconciletest.Options{Namespaces: []string{"default", corev1.NamespaceNodeLease}},
		Steps: []reconciletest.Step{steps[0], reconciletest.Delete("nodes", "", "first"), steps[1],
			reconciletest.Wait(time.Minute)},
		Settled: func(s *reconciletest.Server) error {
			n, err := there[*corev1.Node](s, "nodes", "", "first")
			l, err2 := there[*coordinationv1.Lease](s, "leases", corev1.NamespaceNodeLease, "first")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			if len(l.OwnerReferences) != 1 || l.Spec.HolderIdentity == nil {
				return fmt.Errorf("it has %d owners", len(l.OwnerReferences))
			}
			return errors.Join(want("its owner", l.OwnerReferences[0].UID, n.UID),
				want("its holder", *l.Spec.HolderIdentity, "first"))
		},
	})
}

const batch = "batch-scheduler"

// schedules is kube-scheduler, which is not the scheduler of pods that name none.
func schedules(ctx context.Context, cfg *rest.Config) error {
	c, err := latest.Default()
	if err != nil {
		return err
	}
	c.Profiles[0].SchedulerName = batch
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.QPS, cfg.Burst = c.ClientConnection.ContentType, c.ClientConnection.QPS,
		int(c.ClientConnection.Burst)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	untyped, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	broadcaster := events.NewEventBroadcasterAdapterWithContext(ctx, client)
	factory := scheduler.NewInformerFactory(client, 0, nil)
	more := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, 0, corev1.NamespaceAll, nil)
	s, err := scheduler.New(ctx, client, factory, more,
		func(name string) events.EventRecorderLogger { return broadcaster.NewRecorder(name) },
		scheduler.WithComponentConfigVersion(c.TypeMeta.APIVersion), scheduler.WithKubeConfig(cfg),
		scheduler.WithProfiles(c.Profiles...), scheduler.WithPercentageOfNodesToScore(c.PercentageOfNodesToScore),
		scheduler.WithPodMaxBackoffSeconds(c.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(c.PodInitialBackoffSeconds),
		scheduler.WithExtenders(c.Extenders...), scheduler.WithParallelism(c.Parallelism))
	if err != nil {
		return err
	}
	broadcaster.StartRecordingToSink(ctx.Done())
	defer broadcaster.Shutdown()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	more.Start(ctx.Done())
	defer more.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	more.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	s.Run(ctx)
	return nil
}

// kubelets stands in for the kubelets, which report what their nodes have room for.
func kubelets(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 30*time.Second)
	report := func(o any) {
		if n := o.(*corev1.Node); len(n.Status.Allocatable) == 0 {
			const room = `{"cpu": "2", "memory": "4Gi", "pods": "10"}`
			// The next resync tries it again.
			_, _ = client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType,
				[]byte(`{"status": {"capacity": `+room+`, "allocatable": `+room+`}}`), metav1.PatchOptions{}, "status")
		}
	}
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: report, UpdateFunc: func(_, o any) { report(o) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// TestScheduler: a node has room for two of three pods, until one of them goes; the node for a fourth pod comes later.
func TestScheduler(t *testing.T) {
	pod := func(name, pool string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  schedulerName: %s
  nodeSelector: {pool: %s}
  containers: [{name: c, image: "i:1", resources: {requests: {cpu: "1", memory: 100Mi}}}]
---
`, name, batch, pool)
	}
	check(t, nil, reconciletest.Scenario{
		Run: schedules, World: &reconciletest.World{},
		Beside: []func(context.Context, *rest.Config) error{kubelets},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(nodeOf("first", "a") + pod("old", "a") + pod("one", "a") +
			pod("two", "a") + pod("later", "b"))[0], reconciletest.Delete("pods", "default", "old"),
			reconciletest.ApplyYAML(nodeOf("second", "b"))[0]},
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*corev1.Pod](s, "pods", "default", "old")}
			for name, node := range map[string]string{"one": "first", "two": "first", "later": "second"} {
				p, err := there[*corev1.Pod](s, "pods", "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want("node of "+name, p.Spec.NodeName, node))
			}
			return errors.Join(errs...)
		},
	})
}
