package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
)

func TestARolloutReplacesAllPods(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 5, "a"))
		l.settle()
		require.Equal(t, map[string]int{"a": 5}, l.sizes())
		require.Equal(t, "True NewReplicaSetAvailable", l.reason("web", appsv1.DeploymentProgressing))
		require.Equal(t, "True MinimumReplicasAvailable", l.reason("web", appsv1.DeploymentAvailable))

		l.image("web", "b")
		l.settle()
		require.Equal(t, map[string]int{"a": 0, "b": 5}, l.sizes())
		d := l.get("web")
		require.Equal(t, "2", d.Annotations[revisionAnnotation])
		require.Equal(t, "True NewReplicaSetAvailable", l.reason("web", appsv1.DeploymentProgressing))
		zero := int32(0)
		require.Equal(t, appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 5, UpdatedReplicas: 5,
			ReadyReplicas: 5, AvailableReplicas: 5, TerminatingReplicas: &zero, Conditions: d.Status.Conditions},
			d.Status)
	})
}
