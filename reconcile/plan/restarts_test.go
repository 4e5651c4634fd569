package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestAScaleDownThatDeletesClaimsLosesData: the plan deletes no claim, the cluster's controller does.
func TestAScaleDownThatDeletesClaimsLosesData(t *testing.T) {
	set := func(replicas *int32, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{}
		s.Spec.Replicas = replicas
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{}}
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: whenScaled}
		return s
	}
	const deletes, retains = appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	three, two := new(int32(3)), new(int32(2))
	bare := set(two, deletes)
	bare.Spec.VolumeClaimTemplates = nil
	for name, test := range map[string]struct {
		was, now *appsv1.StatefulSet
		status   bool
		loses    bool
	}{
		"fewer":                       {was: set(three, deletes), now: set(two, deletes), loses: true},
		"fewer, by the default of 1":  {was: set(three, deletes), now: set(nil, deletes), loses: true},
		"fewer, with the policy":      {was: set(three, retains), now: set(two, deletes), loses: true},
		"fewer, which are kept":       {was: set(three, deletes), now: set(two, retains)},
		"as many":                     {was: set(two, deletes), now: set(two, deletes)},
		"more":                        {was: set(two, deletes), now: set(three, deletes)},
		"fewer without claims":        {was: set(three, deletes), now: bare},
		"a status of another version": {was: set(three, deletes), now: set(two, deletes), status: true},
	} {
		one := &recorded{verb: "update", status: test.status, old: test.was, now: test.now}
		c, err := one.change(nil)
		require.NoError(t, err, name)
		require.Equal(t, test.loses, c.LosesData, name)
	}
}
