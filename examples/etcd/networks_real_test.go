package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
)

// ready sets the condition Ready of a pod for an hour already, as the controller manager does when it hears nothing of
// a node.
func (w *real) ready(pod string, status corev1.ConditionStatus) error {
	now, err := w.pods.In(w.namespace).Get(w.Context(), pod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for i := range now.Status.Conditions {
		if c := &now.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status, c.LastTransitionTime = status, metav1.NewTime(time.Now().Add(-time.Hour))
		}
	}
	_, err = w.pods.In(w.namespace).UpdateStatus(w.Context(), now, metav1.UpdateOptions{})
	return err
}

// TestPartition cuts the leader off from the other members and the operator, and then a member and its node off from
// the operator and the API server. Clients are served, and the members stay.
func TestPartition(t *testing.T) {
	w := newWired(t, 3, 1, "3.6.16")
	_, err := w.clusters.In(w.namespace).Create(t.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		// Longer than anything here takes, and less than the hour for which ready sets the condition.
		Spec: v1.EtcdClusterSpec{Size: 3, Version: "3.6.16", Image: "etcd", ReplaceAfterSeconds: 1800}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	before := w.settles("three members").Status
	names := w.members()
	deeds := len(w.deeds())
	l := w.load()
	l.goesOn(100)
	heal := w.apart(w.pod(names[0]), w.pod(names[1]), w.pod(names[2]), w.operator(0))
	w.differs("the leader is cut off")
	require.Eventually(t, func() bool {
		now, err := w.clusters.In(w.namespace).Get(t.Context(), "a", metav1.GetOptions{})
		return err == nil && now.Status.Leader != "" && now.Status.Leader != names[0]
	}, time.Minute, 50*time.Millisecond, "another member leads")
	l.goesOn(1000)
	heal()
	w.settles("the network is whole again")
	l.check()
	w.during(func() {
		heal := w.apart(w.operator(0), w.pod(names[1]))
		require.Eventually(t, func() bool { return w.ready(names[1], corev1.ConditionFalse) == nil }, time.Minute,
			10*time.Millisecond, "no other writer comes first")
		w.condition(v1.Degraded, v1.ReasonUnreachable)
		<-time.After(2 * time.Second)
		w.condition(v1.Degraded, v1.ReasonUnreachable)
		heal()
		require.Eventually(t, func() bool { return w.ready(names[1], corev1.ConditionTrue) == nil }, time.Minute,
			10*time.Millisecond, "no other writer comes first")
		w.settles("the network is whole again")
	})
	require.Len(t, w.deeds(), deeds, "the operator has asked etcd for nothing")
	after := w.settles("the end").Status
	require.Equal(t, before.ClusterID, after.ClusterID)
	for i := range before.Members {
		require.Equal(t, before.Members[i].ID, after.Members[i].ID)
	}
}
