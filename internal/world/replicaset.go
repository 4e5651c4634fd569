package world

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replicaSet gives a ReplicaSet as many pods as it wants.
func (w *World) replicaSet(ctx context.Context, namespace, name string) (again time.Duration, err error) {
	c := w.client.AppsV1().ReplicaSets(namespace)
	rs, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || rs.DeletionTimestamp != nil {
		return 0, err
	}
	pods, _, err := w.podsOf(ctx, rs)
	if err != nil {
		return 0, err
	}
	want := int(*rs.Spec.Replicas)
	if len(pods) > want {
		if !w.AtOnce {
			pods = victimsLast(pods)
		}
		for _, pod := range pods[want:] {
			if err := w.evict(ctx, pod); err != nil {
				return 0, err
			}
		}
		pods = pods[:want]
	}
	t := w.count(pods, rs.Spec.MinReadySeconds)
	for range want - len(pods) {
		pod := newPod(rs, rs.Spec.Template)
		pod.GenerateName = rs.Name + "-"
		if err := w.make(ctx, pod); err != nil {
			return 0, err
		}
		t.add(w.AtOnce)
	}
	return t.again, carried(ctx, w, rs, c.UpdateStatus, func(rs *appsv1.ReplicaSet) {
		rs.Status.Replicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = t.all, t.ready, t.available
		rs.Status.FullyLabeledReplicas, rs.Status.ObservedGeneration = t.all, rs.Generation
	})
}
