package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestCheck disturbs the controller at each of its requests, while a Deployment is rolled out to an image that never
// gets ready, and back.
func TestCheck(t *testing.T) { reconciletest.Check(t, checked()) }

func checked() reconciletest.Scenario {
	sc := reconciletest.Scenario{
		Run:     runElected,
		Server:  reconciletest.Options{Roles: []string{"deploy/rbac.yaml"}},
		User:    reconciletest.ServiceAccount("thermostat", "thermostat-deployment"),
		Beside:  []func(context.Context, *rest.Config) error{runReplicaSets},
		Steps:   reconciletest.ApplyYAML(webOf("good"), webOf("bad"), webOf("good")),
		Settled: rolledOut,
		Always:  keepsBounds,
		Mask:    withoutRevisions,
		Budget:  time.Second,
	}
	if soak {
		sc.Budget, sc.Seed = 3*time.Minute, uint64(time.Now().UnixNano())
	}
	return sc
}

// runElected runs the controller as its command does, with leader election.
func runElected(ctx context.Context, cfg *rest.Config) error {
	elector, err := leaderelection.New(leaderelection.Config{REST: cfg, Namespace: "default",
		Name: "thermostat-deployment"})
	if err != nil {
		return err
	}
	cfg.Wrap(reconcile.TrackWrites)
	cfg.Wrap(elector.Fence)
	return program.Operate(ctx, cfg, elector, command.Options{Workers: 5, QPS: 500, Burst: 1000, MetricsAddress: "0"})
}

// runReplicaSets stands in for the ReplicaSet controller: the pods of a ReplicaSet are there at once, and available a
// second later. Pods of an image called "bad" never are.
func runReplicaSets(ctx context.Context, cfg *rest.Config) error {
	sets, err := informer.NewResource[*appsv1.ReplicaSet](cfg, appsv1.SchemeGroupVersion.WithResource("replicasets"),
		informer.ResourceOptions{})
	if err != nil {
		return err
	}
	cache, err := informer.New(sets, informer.Options[*appsv1.ReplicaSet]{})
	if err != nil {
		return err
	}
	report := func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		set, ok := cache.Get(key)
		if !ok {
			return reconcile.Result{}, nil
		}
		n, none, before := *set.Spec.Replicas, int32(0), set.Status
		status := appsv1.ReplicaSetStatus{Replicas: n, FullyLabeledReplicas: n, TerminatingReplicas: &none,
			ReadyReplicas: min(n, before.ReadyReplicas), AvailableReplicas: min(n, before.AvailableReplicas),
			ObservedGeneration: set.Generation}
		good := set.Spec.Template.Spec.Containers[0].Image != "bad"
		again := reconcile.Result{}
		switch {
		case good && before.Replicas == n && before.ObservedGeneration == set.Generation:
			status.ReadyReplicas, status.AvailableReplicas = n, n
		case good:
			again.RequeueAfter = time.Second
		}
		if status.Replicas == before.Replicas && status.AvailableReplicas == before.AvailableReplicas &&
			status.ObservedGeneration == before.ObservedGeneration {
			return reconcile.Result{}, nil
		}
		set = set.DeepCopy()
		set.Status = status
		_, err := sets.In(key.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
		return again, err
	}
	c, err := reconcile.NewController("replicasets", reconcile.Func(report), reconcile.Options{})
	if err != nil {
		return err
	}
	reconcile.For(c, cache)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// webOf is a Deployment of three pods of an image, of which one may be too many and none may be missing.
func webOf(image string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  revisionHistoryLimit: 0
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: %s}]}
`, image)
}

// web returns the Deployment and its ReplicaSets.
func web(s *reconciletest.Server) (d *appsv1.Deployment, sets []*appsv1.ReplicaSet) {
	d, ok := reconciletest.Get[*appsv1.Deployment](s, "deployments.apps", "default", "web")
	if !ok {
		return nil, nil
	}
	for _, set := range reconciletest.List[*appsv1.ReplicaSet](s, "replicasets.apps", "default") {
		if metav1.IsControlledBy(set, d) && set.DeletionTimestamp == nil {
			sets = append(sets, set)
		}
	}
	return d, sets
}

func rolledOut(s *reconciletest.Server) error {
	d, sets := web(s)
	switch {
	case d == nil:
		return errors.New("there is no Deployment")
	case d.Status.ObservedGeneration != d.Generation || d.Status.AvailableReplicas != 3 ||
		d.Status.UpdatedReplicas != 3 || d.Status.Replicas != 3:
		return fmt.Errorf("the status of generation %d is %+v", d.Generation, d.Status)
	case len(sets) != 1:
		return fmt.Errorf("there are %d ReplicaSets", len(sets))
	}
	return nil
}

// keepsBounds is about each write: never more than four pods are wanted, no step takes an available pod away if that
// leaves fewer than three, and each ReplicaSet has a template and a revision of its own.
func keepsBounds(w reconciletest.Write, s *reconciletest.Server) error {
	if w.Resource.Resource != "replicasets" || w.New == nil {
		return nil
	}
	var before, after appsv1.ReplicaSet
	for tree, set := range map[*unstructured.Unstructured]*appsv1.ReplicaSet{w.Old: &before, w.New: &after} {
		if tree == nil {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.Object, set); err != nil {
			return err
		}
	}
	_, sets := web(s)
	total, available := 0, 0
	for _, set := range sets {
		total += size(set)
		available += min(size(set), int(set.Status.AvailableReplicas))
		if set.UID == after.UID {
			continue
		}
		if w.Old == nil && sameTemplate(&set.Spec.Template, &after.Spec.Template) {
			return fmt.Errorf("%s has the template of %s", after.Name, set.Name)
		}
		if revisionOf(set) == revisionOf(&after) {
			return fmt.Errorf("%s has the revision of %s, %d", after.Name, set.Name, revisionOf(set))
		}
	}
	grows := w.Old == nil || size(&after) > size(&before)
	takes := w.Old != nil && int(before.Status.AvailableReplicas) > size(&after) && size(&after) < size(&before)
	switch {
	case grows && total > 4:
		return fmt.Errorf("%s grows to %d, and all ReplicaSets want %d pods", after.Name, size(&after), total)
	case takes && available < 3:
		return fmt.Errorf("%s shrinks to %d, and %d pods are available", after.Name, size(&after), available)
	}
	return nil
}

// withoutRevisions removes the numbers of revisions: a rollout that was not noticed has none.
func withoutRevisions(u *unstructured.Unstructured) {
	annotations := u.GetAnnotations()
	delete(annotations, revisionAnnotation)
	delete(annotations, historyAnnotation)
	u.SetAnnotations(annotations)
}
