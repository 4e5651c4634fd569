package plan

import (
	"cmp"
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
		c, err := one.change(test.was, test.now)
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

// TestPodsThatAreLeftAreCountedOnce has workloads that are deleted without their pods, in the orders in which their
// pods are taken over, or are not.
func TestPodsThatAreLeftAreCountedOnce(t *testing.T) {
	labels := map[string]string{"app": "web"}
	meta := func(name string, uid types.UID, finalizers ...string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, Finalizers: finalizers}
	}
	deployment := func(name string, uid types.UID, image string, pods int32) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: meta(name, uid), Status: appsv1.DeploymentStatus{Replicas: pods}}
		d.Spec.Selector, d.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: image}}
		return d
	}
	set := func(name string, uid types.UID, image string, pods int32) *appsv1.StatefulSet {
		d := deployment(name, uid, image, pods)
		return &appsv1.StatefulSet{ObjectMeta: d.ObjectMeta, Status: appsv1.StatefulSetStatus{Replicas: pods},
			Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: d.Spec.Selector, Template: d.Spec.Template}}
	}
	other := func(d *appsv1.Deployment) *appsv1.Deployment {
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
		return d
	}
	leaves := func(o reconciletest.Object) reconciletest.BaseWrite {
		going := withPods(o, podsIn(o))
		going.SetFinalizers([]string{metav1.FinalizerOrphanDependents})
		going.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
		return reconciletest.BaseWrite{Old: o, New: going}
	}
	makes := func(o reconciletest.Object) reconciletest.BaseWrite { return reconciletest.BaseWrite{New: o} }
	updates := func(old, now reconciletest.Object) reconciletest.BaseWrite {
		return reconciletest.BaseWrite{Old: old, New: now}
	}
	ends := func(o reconciletest.Object) reconciletest.BaseWrite { return reconciletest.BaseWrite{Old: o} }
	pod := func(name string, uid types.UID) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta(name, uid)}
		p.Labels = labels
		return p
	}
	others := func(p *corev1.Pod) *corev1.Pod {
		p.OwnerReferences = []metav1.OwnerReference{{Name: "x", UID: "x", Controller: new(true)}}
		return p
	}
	failed := func(p *corev1.Pod) *corev1.Pod {
		p.Status.Phase = corev1.PodFailed
		return p
	}
	scaled := func(d *appsv1.Deployment, replicas int32) *appsv1.Deployment {
		d.Spec.Replicas = &replicas
		return d
	}
	replicaSet := func(name string, uid types.UID, pods int32) *appsv1.ReplicaSet {
		s := &appsv1.ReplicaSet{ObjectMeta: meta(name, uid), Status: appsv1.ReplicaSetStatus{Replicas: pods}}
		s.Labels = labels
		return s
	}
	var pause reconciletest.BaseWrite
	type writes = []reconciletest.BaseWrite
	for name, test := range map[string]struct {
		writes writes
		want   int
	}{
		"made anew as it was, and changed then": {writes{leaves(deployment("web", "1", "a", 3)),
			makes(deployment("web", "2", "a", 0)), pause, updates(deployment("web", "2", "a", 0),
				deployment("web", "2", "b", 0))}, 3},
		"left twice": {writes{leaves(deployment("web", "1", "a", 3)), makes(deployment("web", "2", "a", 0)),
			leaves(deployment("web", "2", "a", 0)), makes(deployment("web", "3", "b", 0))}, 3},
		"its pods are deleted before": {writes{leaves(deployment("web", "1", "a", 3)), ends(pod("web-a", "p1")),
			ends(pod("web-b", "p2")), makes(deployment("web", "2", "b", 0))}, 2 + 3},
		"their ReplicaSet is deleted before": {writes{leaves(deployment("web", "1", "a", 3)),
			ends(replicaSet("web-1", "r1", 2)), makes(deployment("web", "2", "b", 0))}, 1},
		"another's pod, and one that has ended": {writes{leaves(set("db", "1", "a", 3)),
			ends(others(pod("db-0", "p1"))), ends(failed(pod("db-1", "p2"))), makes(set("db", "3", "b", 0))}, 1 + 3},
		"scaled away, and changed then": {writes{leaves(deployment("web", "1", "a", 3)),
			makes(scaled(deployment("web", "2", "a", 0), 0)), pause,
			updates(scaled(deployment("web", "2", "a", 0), 0), scaled(deployment("web", "2", "b", 0), 0))}, 3},
		"scaled down, and changed then": {writes{leaves(deployment("web", "1", "a", 3)),
			makes(scaled(deployment("web", "2", "a", 0), 1)), pause,
			updates(scaled(deployment("web", "2", "a", 0), 1), scaled(deployment("web", "2", "b", 0), 1))}, 2 + 1},
		"those of two": {writes{leaves(deployment("web-a", "1", "a", 3)), leaves(deployment("web-b", "2", "a", 3)),
			makes(deployment("web", "3", "b", 0))}, 6},
		"those of two, one of which is the same": {writes{leaves(deployment("web-a", "1", "a", 3)),
			leaves(deployment("web-b", "2", "b", 2)), makes(deployment("web", "3", "b", 0))}, 3},
		"the next one is made before": {writes{makes(deployment("next", "2", "b", 0)),
			leaves(deployment("web", "1", "a", 3))}, 3},
		"the next one is made before, and is gone again": {writes{makes(deployment("next", "2", "b", 0)),
			ends(deployment("next", "2", "b", 0)), leaves(deployment("web", "1", "a", 3))}, 0},
		"one that does not take them over comes first": {writes{leaves(deployment("web", "1", "a", 3)),
			makes(other(deployment("web", "2", "b", 0))), ends(other(deployment("web", "2", "b", 0))),
			makes(deployment("web", "3", "b", 0))}, 3},
		"under another name": {writes{leaves(deployment("web", "1", "a", 3)),
			makes(deployment("next", "2", "b", 0))}, 3},
		"the pods of a set, by their names": {writes{leaves(set("db", "1", "a", 3)), ends(pod("web-0", "p1")),
			ends(pod("db-0", "p2")), makes(set("next", "2", "b", 0)), makes(set("db", "3", "b", 0))}, 2 + 2},
		"counted by a controller": {writes{leaves(deployment("web", "1", "a", 3)),
			makes(deployment("web", "2", "a", 0)), pause,
			updates(deployment("web", "2", "a", 1), deployment("web", "2", "b", 1))}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			for _, w := range test.writes {
				if w.Old == nil && w.New == nil { // the next write is another wave's
					r.waited = true
					continue
				}
				resource, o := "deployments", cmp.Or[reconciletest.Object](w.New, w.Old)
				switch o.(type) {
				case *appsv1.StatefulSet:
					resource = "statefulsets"
				case *appsv1.ReplicaSet:
					resource = "replicasets"
				case *corev1.Pod:
					resource = "pods"
				}
				w.Request.Resource = appsv1.SchemeGroupVersion.WithResource(resource)
				w.Name, w.Namespace = o.GetName(), "default"
				r.Wrote(w)
			}
			report, err := r.report()
			require.NoError(t, err)
			require.Equal(t, test.want, report.Pods())
		})
	}
}
