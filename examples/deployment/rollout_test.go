package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
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

// What is in the ReplicaSet that is created, and what is said of it.
func TestTheNewReplicaSet(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 4, "a", rolling("1", "0"), func(d *appsv1.Deployment) {
			d.Annotations = map[string]string{"note": "copied", corev1.LastAppliedConfigAnnotation: "{}"}
			d.Spec.MinReadySeconds = 7
		}))
		l.settle()
		set, d := l.sets()["a"], l.get("web")
		hash := set.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		require.NotEmpty(t, hash)
		require.Equal(t, "web-"+hash, set.Name)
		want := map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: hash}
		require.Equal(t, want, set.Labels)
		require.Equal(t, want, set.Spec.Selector.MatchLabels)
		require.Equal(t, want, set.Spec.Template.Labels)
		require.Equal(t, map[string]string{"note": "copied", revisionAnnotation: "1", desiredAnnotation: "4",
			maxAnnotation: "5"}, set.Annotations)
		require.EqualValues(t, 7, set.Spec.MinReadySeconds)
		require.Equal(t, []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)}, set.OwnerReferences)
		require.Equal(t, []string{"Normal ScalingReplicaSet Scaled up replica set " + set.Name + " from 0 to 4"},
			l.events())

		// Changes that need no new ReplicaSet.
		l.patch("web", `{"metadata":{"annotations":{"note":"again"}},"spec":{"minReadySeconds":3}}`)
		l.settle()
		require.Equal(t, "again", l.sets()["a"].Annotations["note"])
		require.EqualValues(t, 3, l.sets()["a"].Spec.MinReadySeconds)
	})
}

func TestTheLongestNameIsCut(t *testing.T) {
	d := deployment(strings.Repeat("a", 253), 1, "a")
	require.Len(t, nameOf(d, "0123456789"), 253)
	require.True(t, strings.HasSuffix(nameOf(d, "0123456789"), "a-0123456789"))
	require.Equal(t, "web-x", nameOf(deployment("web", 1, "a"), "x"))
}

// A name that is taken by another ReplicaSet counts as a collision: the next hash gives another name. It does not
// matter whether that ReplicaSet is ours.
func TestCollisionsOfTheHash(t *testing.T) {
	for name, labels := range map[string]map[string]string{"a stranger's": {"app": "other"}, "ours": {"app": "web"}} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.create(deployment("web", 2, "a", func(d *appsv1.Deployment) { d.Spec.Paused = true }))
				l.settle()
				hash, err := hashOf(&l.get("web").Spec.Template, nil)
				require.NoError(t, err)
				set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-" + hash, Labels: labels},
					Spec: appsv1.ReplicaSetSpec{Replicas: new(int32),
						Selector: &metav1.LabelSelector{MatchLabels: labels},
						Template: *l.get("web").Spec.Template.DeepCopy()}}
				set.Spec.Template.Labels = labels
				set.Spec.Template.Spec.Containers[0].Image = "other"
				_, err = l.client.AppsV1().ReplicaSets("default").Create(t.Context(), set, metav1.CreateOptions{})
				require.NoError(t, err)
				l.patch("web", `{"spec":{"paused":false}}`)
				l.settle()
				require.EqualValues(t, 1, *l.get("web").Status.CollisionCount)
				require.NotEqual(t, "web-"+hash, l.sets()["a"].Name)
				require.Equal(t, map[string]int{"a": 2, "other": 0}, l.sizes())
			})
		})
	}
}

// With Recreate a new pod comes when the last old one has ended, and not before.
func TestRecreateWaitsForTheOldPods(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 3, "a", recreating))
		l.settle()
		old := l.sets()["a"]
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "last", Labels: old.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(old,
				appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}},
			Spec: old.Spec.Template.Spec}
		_, err := l.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
		l.image("web", "b")
		l.settle()
		require.Equal(t, map[string]int{"a": 0}, l.sizes(), "a pod of the old ReplicaSet is there still")
		require.Equal(t, "False MinimumReplicasUnavailable", l.reason("web", appsv1.DeploymentAvailable))

		require.NoError(t, l.client.CoreV1().Pods("default").Delete(t.Context(), "last", metav1.DeleteOptions{}))
		l.settle()
		require.Equal(t, map[string]int{"a": 0, "b": 3}, l.sizes())
		require.Equal(t, "True NewReplicaSetAvailable", l.reason("web", appsv1.DeploymentProgressing))
	})
}

// A ReplicaSet without an owner that matches is adopted. One with the template of the Deployment is the new one.
func TestAdoptionAndRelease(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 2, "a"))
		l.settle()
		l.image("web", "b")
		l.settle()
		leave := metav1.DeletePropagationOrphan
		require.NoError(t, l.client.AppsV1().Deployments("default").Delete(t.Context(), "web",
			metav1.DeleteOptions{PropagationPolicy: &leave}))
		l.settle()
		before := l.sets()
		require.Nil(t, metav1.GetControllerOf(before["b"]))

		l.create(deployment("web", 2, "b"))
		l.settle()
		after := l.sets()
		require.Equal(t, before["b"].UID, after["b"].UID)
		for _, set := range after {
			require.True(t, metav1.IsControlledBy(set, l.get("web")))
		}
		require.Equal(t, map[string]int{"a": 0, "b": 2}, l.sizes())
		require.Equal(t, "2", l.get("web").Annotations[revisionAnnotation])

		set := after["b"].DeepCopy()
		set.Labels["app"] = "debug"
		_, err := l.client.AppsV1().ReplicaSets("default").Update(t.Context(), set, metav1.UpdateOptions{})
		require.NoError(t, err)
		l.settle()
		released, _ := reconciletest.Get[*appsv1.ReplicaSet](l.server, "replicasets.apps", "default", set.Name)
		require.Nil(t, metav1.GetControllerOf(released), "it does not match any more")
		require.EqualValues(t, 2, *released.Spec.Replicas)
		require.EqualValues(t, 1, *l.get("web").Status.CollisionCount, "its name is still taken")
	})
}

// A Deployment that is being deleted gets a status and nothing else.
func TestWhileTheDeploymentIsDeleted(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 2, "a", func(d *appsv1.Deployment) { d.Finalizers = []string{"example.com/wait"} }))
		l.settle()
		require.NoError(t, l.client.AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		l.image("web", "b")
		l.scale("web", 5)
		l.settle()
		require.Equal(t, map[string]int{"a": 2}, l.sizes())
		d := l.get("web")
		require.Equal(t, d.Generation, d.Status.ObservedGeneration)
		require.EqualValues(t, 0, d.Status.UpdatedReplicas)
		l.patch("web", `{"metadata":{"finalizers":null}}`)
		l.settle()
		require.Empty(t, slices.Collect(maps.Keys(l.sets())), "the garbage collector was left to do its work")
	})
}

// While a namespace is being deleted no ReplicaSet can be created in it; that is worth neither a retry nor an event.
func TestWhileTheNamespaceIsDeleted(t *testing.T) {
	inLab(t, func(l *lab) {
		refusals := 0
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Verb != "create" || r.Resource.Resource != "replicasets" {
				return nil
			}
			refusals++
			return reconciletest.Refuse(namespaceTerminating())
		})
		l.create(deployment("web", 2, "a"))
		l.wait(5 * time.Minute)
		require.LessOrEqual(t, refusals, 3, "one for each change of the Deployment, and no retry")
		require.Empty(t, l.events())
	})
}

func TestASelectorThatIsEmpty(t *testing.T) {
	d := deployment("web", 1, "a")
	d.Spec.Selector = &metav1.LabelSelector{}
	selector, err := selectorOf(d)
	require.NoError(t, err)
	require.False(t, selector.Matches(nil), "it selects nothing")
	d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
	_, err = selectorOf(d)
	require.ErrorContains(t, err, "selector")
}

// A change of a ReplicaSet is refused if its spec has changed since it was observed, or it is another one. A new status
// does not matter, and neither do annotations of others.
func TestAPatchHoldsForTheGeneration(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 2, "a", func(d *appsv1.Deployment) { d.Spec.Paused = true }))
		l.patch("web", `{"spec":{"paused":false}}`)
		l.settle()
		l.patch("web", `{"spec":{"paused":true}}`)
		l.settle()
		server, err := newClients(l.server.Config())
		require.NoError(t, err)
		r, seen, three := &deploymentReconciler{server: server}, l.sets()["a"], int32(3)
		bare := seen.DeepCopy()
		bare.Annotations = nil
		_, err = r.apply(t.Context(), bare, change{annotations: map[string]string{"a/b": "c"}})
		require.Error(t, err, "there are annotations that were not seen")
		changed, err := r.apply(t.Context(), seen, change{minReadySeconds: &three,
			annotations: map[string]string{"a/b": "c~d"}})
		require.NoError(t, err)
		require.Equal(t, "c~d", changed.Annotations["a/b"])
		require.Equal(t, "2", changed.Annotations[desiredAnnotation])
		require.EqualValues(t, 3, changed.Spec.MinReadySeconds)
		_, err = r.apply(t.Context(), seen, change{replicas: &three})
		require.Error(t, err, "the spec has changed")
		other := changed.DeepCopy()
		other.UID = "another"
		_, err = r.apply(t.Context(), other, change{replicas: &three})
		require.Error(t, err)
		require.Equal(t, 2, l.sizes()["a"])
	})
}

func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 2, "a"))
		l.settle()
		before := len(l.writes())
		set := l.sets()["a"].DeepCopy() // something that does not concern the controller, and brings the key back
		set.Labels["note"] = "x"
		_, err := l.client.AppsV1().ReplicaSets("default").Update(t.Context(), set, metav1.UpdateOptions{})
		require.NoError(t, err)
		l.settle()
		require.Len(t, l.writes(), before)
	})
}

// writes returns the controller's requests that change something, Events left out.
func (l *lab) writes() []reconciletest.Request {
	return slices.DeleteFunc(l.link.Requests(), func(r reconciletest.Request) bool {
		return !r.Writes() || r.Resource.Resource == "events"
	})
}
