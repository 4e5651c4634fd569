package processnode

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestTolerations(t *testing.T) {
	taint := corev1.Taint{Key: "disk", Value: "slow", Effect: corev1.TaintEffectNoSchedule}
	for _, c := range []struct {
		toleration corev1.Toleration
		want       bool
	}{
		{corev1.Toleration{Key: "disk", Value: "slow"}, true},
		{corev1.Toleration{Key: "disk", Operator: "Equal", Value: "slow", Effect: "NoSchedule"}, true},
		{corev1.Toleration{Key: "disk", Operator: "Exists"}, true},
		{corev1.Toleration{Operator: "Exists"}, true},
		{corev1.Toleration{Operator: "Exists", Effect: "NoExecute"}, false},
		{corev1.Toleration{Key: "net", Operator: "Exists"}, false},
		{corev1.Toleration{Key: "disk", Value: "fast"}, false},
		{corev1.Toleration{Key: "disk"}, false},
		{corev1.Toleration{Key: "disk", Operator: "Gt", Value: "slow"}, false},
	} {
		require.Equal(t, c.want, tolerates(c.toleration, taint), "%+v", c.toleration)
	}
}
