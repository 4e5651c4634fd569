package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
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

// TestADaemonSetThatIsMadeAnew is what a real controller was seen to do: it keeps pods whose template has the number of
// its own, which for a new DaemonSet is 1.
func TestADaemonSetThatIsMadeAnew(t *testing.T) {
	set := func(uid types.UID, generation string) *appsv1.DaemonSet {
		s := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{CurrentNumberScheduled: 2}}
		s.UID, s.Annotations = uid, map[string]string{appsv1.DeprecatedTemplateGeneration: generation}
		return s
	}
	why := []string{"spec.template.spec.containers[a].image"}
	require.Nil(t, ofDaemonSet(set("a", "1"), set("b", "1"), why))
	require.Equal(t, 2, ofDaemonSet(set("a", "2"), set("b", "1"), why).Pods)
	require.Equal(t, 2, ofDaemonSet(set("a", "1"), set("a", "2"), why).Pods)
	require.Nil(t, ofDaemonSet(set("a", "2"), set("b", "1"), nil))
}

// TestAWorkloadTakesOverWhatItsSelectorMatches has a Deployment that was deleted without its pods, and others that are
// made under its name.
func TestAWorkloadTakesOverWhatItsSelectorMatches(t *testing.T) {
	deployment := func(label, image string) *appsv1.Deployment {
		d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2}}
		d.Name = "web"
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": label}}
		d.Spec.Template.Labels = map[string]string{"app": label}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: image}}
		return d
	}
	left := deployment("web", "web:1")
	left.Finalizers = []string{metav1.FinalizerOrphanDependents}
	restarts := func(writes ...reconciletest.BaseWrite) (all []int) {
		r := newRecorder()
		for _, w := range writes {
			w.Request = reconciletest.Request{Resource: appsv1.SchemeGroupVersion.WithResource("deployments")}
			r.Wrote(w)
		}
		report, err := r.report()
		require.NoError(t, err)
		for _, c := range report.Changes {
			if c.Restarts != nil {
				all = append(all, c.Restarts.Pods)
			}
		}
		return all
	}
	going := left.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	made := func(d *appsv1.Deployment, uid types.UID) reconciletest.BaseWrite {
		d.UID = uid
		return reconciletest.BaseWrite{New: d}
	}
	leave, next := reconciletest.BaseWrite{Old: left, New: going}, made(deployment("web", "web:2"), "2")
	require.Equal(t, []int{2}, restarts(leave, next))
	require.Empty(t, restarts(leave, made(deployment("web", "web:1"), "2")), "the same pods")
	require.Empty(t, restarts(leave, made(deployment("other", "web:2"), "2")), "other pods")
	require.Equal(t, []int{2}, restarts(leave, next, reconciletest.BaseWrite{Old: next.New},
		made(deployment("web", "web:3"), "3")), "the pods have gone with the second one")
}
