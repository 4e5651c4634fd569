package main

import (
	"context"
	"fmt"
	"io"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

// TestCheckElected runs the controller as it is installed: with its shards and under its role. It takes a minute of
// the processors. make zoo runs it with mistakes planted into the controller.
func TestCheckElected(t *testing.T) {
	if !soak {
		return
	}
	logging := klog.CaptureState() // Events that cannot be written are logged
	defer logging.Restore()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	reconciletest.Check(t, scaledUpAndDown())
}

// mostPods is the most that a step of scaledUpAndDown asks for.
const mostPods = 4

// scaledUpAndDown is a ReplicaSet that gets more replicas, a stranger's pod, fewer replicas, and as many as at first.
func scaledUpAndDown() reconciletest.Scenario {
	size := func(n int) reconciletest.Step {
		return reconciletest.ApplyYAML(fmt.Sprintf(`
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: a, namespace: default}
spec:
  replicas: %d
  minReadySeconds: 5
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: main, image: example.com/main}]}
`, n))[0]
	}
	return reconciletest.Scenario{
		Run:    runElected,
		Server: reconciletest.Options{Roles: []string{"deploy/rbac.yaml"}},
		User:   reconciletest.ServiceAccount("thermostat", "thermostat-replicaset"),
		World:  &reconciletest.World{Except: []string{"replicasets"}},
		Steps: []reconciletest.Step{size(2), size(mostPods), reconciletest.StepFunc("make an orphan", makeOrphan),
			size(1), size(2)},
		Settled: func(s *reconciletest.Server) error {
			rs, ok := reconciletest.Get[*appsv1.ReplicaSet](s, "replicasets.apps", "default", "a")
			if !ok {
				return nil
			}
			there := podsThere(s, rs)
			if want := int(*rs.Spec.Replicas); there != want || rs.Status.AvailableReplicas != int32(want) {
				return fmt.Errorf("%d replicas are wanted, and there are %d, of which the status says that %d are "+
					"available", want, there, rs.Status.AvailableReplicas)
			}
			return nil
		},
		Mask: func(o *unstructured.Unstructured) { // which pods go is not the same each time
			if o.GetKind() == "Pod" {
				o.SetName("some")
				o.SetGenerateName("")
			}
		},
		Always: func(w reconciletest.Write, s *reconciletest.Server) error {
			rs, ok := reconciletest.Get[*appsv1.ReplicaSet](s, "replicasets.apps", "default", "a")
			if !ok || w.Resource.Resource != "pods" || w.Old != nil {
				return nil
			}
			if there := podsThere(s, rs); there > mostPods {
				return fmt.Errorf("there are %d pods, and at no time more than %d were wanted", there, mostPods)
			}
			return nil
		},
	}
}

// podsThere counts the pods of a ReplicaSet that are not being deleted.
func podsThere(s *reconciletest.Server, rs *appsv1.ReplicaSet) (n int) {
	for _, pod := range reconciletest.List[*corev1.Pod](s, "pods", rs.Namespace) {
		if metav1.IsControlledBy(pod, rs) && pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// runElected runs the controller as the command does with --shards.
func runElected(ctx context.Context, cfg *rest.Config) error {
	shards, err := sharding.New(sharding.Options{REST: cfg, Namespace: "default", Name: "thermostat-replicaset",
		By: program.By})
	if err != nil {
		return err
	}
	cfg.Wrap(reconcile.TrackWrites)
	return program.Operate(ctx, cfg, shards, command.Options{Workers: 2, QPS: 500, Burst: 1000, MetricsAddress: "0"})
}

// makeOrphan makes a pod that the selector matches and that has no controller.
func makeOrphan(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	// It has a name like those that the controller's pods have: it stays, or one of these, by when it is seen.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-", Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}}}
	_, err = client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	return err
}
