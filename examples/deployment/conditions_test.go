package main

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func namespaceTerminating() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Reason: metav1.StatusReasonForbidden, Message: "the namespace is being terminated",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}}
}

const progressing = appsv1.DeploymentProgressing

// A rollout that makes no progress is reported at its deadline, and goes on when it can. Nothing else happens, no event
// comes, so the deadline has to bring the key back by itself.
func TestTheProgressDeadline(t *testing.T) {
	inLab(t, func(l *lab) {
		seconds := int32(60)
		l.create(deployment("web", 4, "a", rolling("1", "1"), func(d *appsv1.Deployment) {
			d.Spec.ProgressDeadlineSeconds = &seconds
		}))
		l.settle()
		l.image("web", "bad")
		l.wait(55 * time.Second)
		require.Equal(t, "True ReplicaSetUpdated", l.reason("web", progressing))
		l.wait(10 * time.Second)
		require.Equal(t, "False ProgressDeadlineExceeded", l.reason("web", progressing))
		require.Equal(t, fmt.Sprintf("ReplicaSet %q has timed out progressing.", l.sets()["bad"].Name),
			find(l.get("web").Status.Conditions, progressing).Message)
		require.Equal(t, map[string]int{"a": 3, "bad": 2}, l.sizes(), "nothing is undone")
		require.Equal(t, "True MinimumReplicasAvailable", l.reason("web", appsv1.DeploymentAvailable))

		l.wait(3 * time.Minute)
		require.Equal(t, "False ProgressDeadlineExceeded", l.reason("web", progressing))
		l.image("web", "b")
		l.settle()
		require.Equal(t, "True NewReplicaSetAvailable", l.reason("web", progressing))
		require.Equal(t, map[string]int{"a": 0, "bad": 0, "b": 4}, l.sizes())
	})
}

func TestWithoutADeadline(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 2, "a"))
		l.settle()
		l.patch("web", `{"spec":{"progressDeadlineSeconds":2147483647}}`)
		l.settle()
		require.Empty(t, l.reason("web", progressing), "the highest number means none")
		l.patch("web", `{"spec":{"progressDeadlineSeconds":600}}`)
		l.settle()
		require.Equal(t, "True NewReplicaSetAvailable", l.reason("web", progressing))
	})
}

// A paused Deployment rolls nothing out, and its progress is not judged. It can still be scaled.
func TestPauseAndResume(t *testing.T) {
	inLab(t, func(l *lab) {
		seconds := int32(30)
		l.create(deployment("web", 4, "a", func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = &seconds }))
		l.settle()
		l.patch("web", `{"spec":{"paused":true}}`)
		l.image("web", "b")
		l.wait(time.Minute)
		require.Equal(t, "Unknown DeploymentPaused", l.reason("web", progressing))
		require.Equal(t, map[string]int{"a": 4}, l.sizes())
		require.Zero(t, l.get("web").Status.UpdatedReplicas)
		l.scale("web", 6)
		l.settle()
		require.Equal(t, map[string]int{"a": 6}, l.sizes())

		l.patch("web", `{"spec":{"paused":false}}`)
		l.settle()
		require.Equal(t, map[string]int{"a": 0, "b": 6}, l.sizes())
		require.Equal(t, "True NewReplicaSetAvailable", l.reason("web", progressing))

		l.image("web", "bad")
		l.wait(10 * time.Second)
		l.patch("web", `{"spec":{"paused":true}}`)
		l.wait(time.Minute)
		l.patch("web", `{"spec":{"paused":false}}`)
		l.wait(25 * time.Second)
		require.Equal(t, "Unknown DeploymentResumed", l.reason("web", progressing), "the pause does not count")
		l.wait(10 * time.Second)
		require.Equal(t, "False ProgressDeadlineExceeded", l.reason("web", progressing))
	})
}

// A Deployment that is paused from the beginning has no ReplicaSet, and one that has timed out says so while paused.
func TestPausedFromTheBeginning(t *testing.T) {
	inLab(t, func(l *lab) {
		seconds := int32(30)
		l.create(deployment("web", 4, "bad", func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Spec.ProgressDeadlineSeconds = true, &seconds
		}))
		l.settle()
		require.Empty(t, l.sizes())
		require.Equal(t, "Unknown DeploymentPaused", l.reason("web", progressing))
		l.patch("web", `{"spec":{"paused":false}}`)
		l.wait(time.Minute)
		require.Equal(t, "False ProgressDeadlineExceeded", l.reason("web", progressing))
		l.patch("web", `{"spec":{"paused":true}}`)
		l.settle()
		require.Equal(t, "False ProgressDeadlineExceeded", l.reason("web", progressing))
	})
}

// A ReplicaSet that cannot be created is a condition and an event, and is tried again.
func TestTheReplicaSetCannotBeCreated(t *testing.T) {
	inLab(t, func(l *lab) {
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Verb != "create" || r.Resource.Resource != "replicasets" {
				return nil
			}
			return reconciletest.Refuse(apierrors.NewInternalError(errors.New("no room")))
		})
		l.create(deployment("web", 2, "a"))
		l.wait(time.Minute)
		require.Equal(t, "False ReplicaSetCreateError", l.reason("web", progressing))
		message := find(l.get("web").Status.Conditions, progressing).Message
		require.Contains(t, message, `Failed to create new replica set "web-`)
		require.Contains(t, message, "no room")
		require.Contains(t, l.events()[0], "Warning ReplicaSetCreateError Failed to create new replica set")
		require.Equal(t, l.get("web").Generation, l.get("web").Status.ObservedGeneration)

		l.link.Inject(nil)
		l.wait(10 * time.Minute)
		require.Equal(t, map[string]int{"a": 2}, l.sizes())
		require.Equal(t, "True NewReplicaSetAvailable", l.reason("web", progressing))
	})
}

// An answer that is lost is no collision: the ReplicaSet that was created is found.
func TestTheAnswerIsLost(t *testing.T) {
	inLab(t, func(l *lab) {
		lost := 0
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Writes() && r.Resource.Resource == "replicasets" && lost < 10 {
				lost++
				return reconciletest.LoseAnswer
			}
			return nil
		})
		l.create(deployment("web", 2, "a"))
		l.wait(10 * time.Minute)
		l.image("web", "b")
		l.wait(10 * time.Minute)
		require.Equal(t, map[string]int{"a": 0, "b": 2}, l.sizes())
		require.Nil(t, l.get("web").Status.CollisionCount)
		require.Greater(t, lost, 3)
	})
}

// The status that tells of a new ReplicaSet is lost. The condition that tells of the last rollout would stay, and the
// new one never come to its deadline: with Recreate no count differs from that of a rollout that is over.
func TestTheReportOfACreationIsLost(t *testing.T) {
	inLab(t, func(l *lab) {
		seconds := int32(30)
		l.create(deployment("web", 2, "a", recreating, func(d *appsv1.Deployment) {
			d.Spec.ProgressDeadlineSeconds = &seconds
		}))
		l.settle()
		created, lost := false, 0
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			created = created || r.Verb == "create" && r.Resource.Resource == "replicasets"
			if created && r.Resource.Resource == "deployments" && r.Subresource == "status" && lost < 3 {
				lost++
				return reconciletest.Reset
			}
			return nil
		})
		l.image("web", "bad")
		l.wait(15 * time.Second)
		require.Equal(t, 3, lost)
		require.Contains(t, find(l.get("web").Status.Conditions, progressing).Message, l.sets()["bad"].Name)
		l.wait(2 * time.Minute)
		require.Equal(t, "False ProgressDeadlineExceeded", l.reason("web", progressing))
	})
}

// The failure of a ReplicaSet is passed on, the new one's first, and taken back.
func TestReplicaFailure(t *testing.T) {
	failing := func(name, reason string) *appsv1.ReplicaSet {
		set := anySet(name, 2, 0)
		set.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure,
			Status: corev1.ConditionTrue, Reason: reason, Message: "quota", LastTransitionTime: metav1.Unix(5, 0)}}
		return set
	}
	old, new := failing("old", "FailedDelete"), failing("new", "FailedCreate")
	old.UID, new.UID = "old", "new"
	ro := &rollout{deployment: deployment("web", 2, "a"), seen: []*appsv1.ReplicaSet{old, new}, new: new}
	ro.passOnFailure()
	require.Equal(t, []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue,
		Reason: "FailedCreate", Message: "quota", LastUpdateTime: metav1.Unix(5, 0),
		LastTransitionTime: metav1.Unix(5, 0)}}, ro.conditions)
	new.Status.Conditions[0].Message = "still"
	ro.passOnFailure()
	require.Equal(t, "quota", ro.conditions[0].Message, "the first failure is told")
	new.Status.Conditions = nil
	ro.passOnFailure()
	require.Equal(t, "FailedDelete", ro.conditions[0].Reason)
	old.Status.Conditions = nil
	ro.passOnFailure()
	require.Empty(t, ro.conditions)
}

// The number of terminating pods is unknown if one ReplicaSet does not report it.
func TestTerminatingReplicas(t *testing.T) {
	one, two := int32(1), int32(2)
	a, b, fresh := anySet("a", 1, 1), anySet("b", 1, 1), anySet("fresh", 1, 0)
	a.Status.TerminatingReplicas, b.Status.TerminatingReplicas = &one, &two
	fresh.Status = appsv1.ReplicaSetStatus{}
	require.EqualValues(t, 3, *terminating([]*appsv1.ReplicaSet{a, b, fresh}))
	b.Status.TerminatingReplicas = nil
	require.Nil(t, terminating([]*appsv1.ReplicaSet{a, b, fresh}))
}

// Conditions keep the time of their transition as long as their status stays, and say when progress was made.
func TestTimesOfConditions(t *testing.T) {
	first, later := time.Unix(1000, 0), time.Unix(2000, 0)
	ro := &rollout{deployment: deployment("web", 2, "a"), now: first}
	ro.setCondition(progressing, corev1.ConditionTrue, "A", "a")
	ro.now = later
	ro.setCondition(progressing, corev1.ConditionTrue, "A", "another message")
	c := find(ro.conditions, progressing)
	require.Equal(t, []any{"a", first.Unix()}, []any{c.Message, c.LastUpdateTime.Unix()}, "nothing new")
	ro.renewCondition(progressing, corev1.ConditionTrue, "A", "another message")
	c = find(ro.conditions, progressing)
	require.Equal(t, []int64{first.Unix(), later.Unix()}, []int64{c.LastTransitionTime.Unix(), c.LastUpdateTime.Unix()})
	ro.setCondition(progressing, corev1.ConditionFalse, "B", "b")
	require.Equal(t, later.Unix(), find(ro.conditions, progressing).LastTransitionTime.Unix())
}
