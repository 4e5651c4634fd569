package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestCheck disturbs the controller at each of its requests, while a ReplicaSet is scaled up, to pods that are never
// available, and down.
func TestCheck(t *testing.T) { reconciletest.Check(t, checked()) }

func checked() reconciletest.Scenario {
	sc := reconciletest.Scenario{
		Run:     runElected,
		Server:  reconciletest.Options{Roles: []string{"deploy/rbac.yaml"}},
		User:    reconciletest.ServiceAccount("thermostat", "thermostat-replicaset"),
		World:   &reconciletest.World{Except: []string{"replicasets"}},
		Steps:   reconciletest.ApplyYAML(webOf(2, 0), webOf(4, 3600), webOf(2, 0)),
		Settled: scaled,
		Always:  neverTooMany,
		Budget:  time.Second,
	}
	if soak {
		sc.Budget, sc.Seed = 3*time.Minute, uint64(time.Now().UnixNano())
	}
	return sc
}

func webOf(replicas, minReadySeconds int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: %d
  minReadySeconds: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
`, replicas, minReadySeconds)
}

// web returns the ReplicaSet, and how many active pods it has.
func web(s *reconciletest.Server) (rs *appsv1.ReplicaSet, pods int) {
	rs, ok := reconciletest.Get[*appsv1.ReplicaSet](s, "replicasets.apps", "default", "web")
	if !ok {
		return nil, 0
	}
	for _, pod := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
		if metav1.IsControlledBy(pod, rs) && active(pod) {
			pods++
		}
	}
	return rs, pods
}

func scaled(s *reconciletest.Server) error {
	switch rs, pods := web(s); {
	case rs == nil:
		return errors.New("there is no ReplicaSet")
	case pods != wanted(rs):
		return fmt.Errorf("there are %d pods, and %d are wanted", pods, wanted(rs))
	case int(rs.Status.AvailableReplicas) != pods || rs.Status.ObservedGeneration != rs.Generation:
		return fmt.Errorf("there are %d pods, and the status is %+v", pods, rs.Status)
	}
	return nil
}

// neverTooMany is about each write: a pod is only made if one was missing, and only deleted if one was surplus. A
// controller that has not reported on the newest spec may still act on an older one: four pods, or two.
func neverTooMany(w reconciletest.Write, s *reconciletest.Server) error {
	rs, pods := web(s)
	if w.Resource.Resource != "pods" || rs == nil {
		return nil
	}
	most, least := wanted(rs), wanted(rs)
	if rs.Status.ObservedGeneration != rs.Generation {
		most, least = 4, 2
	}
	switch {
	case w.Old == nil && pods > most:
		return fmt.Errorf("it has made pod %d of %d", pods, most)
	case w.New == nil && pods < least:
		return fmt.Errorf("it has deleted a pod, and %d of %d are left", pods, least)
	}
	return nil
}
