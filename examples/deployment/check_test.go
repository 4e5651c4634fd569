package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/internal/command"
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
		World:   &reconciletest.World{Except: []string{"deployments"}, Fails: isBad},
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

// isBad is about pods that never get ready.
func isBad(o reconciletest.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && pod.Spec.Containers[0].Image == "bad"
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
