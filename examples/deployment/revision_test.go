package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// A rollback, which is an old template in the Deployment, makes the old ReplicaSet the new one: its revision moves up.
func TestRevisionsMoveOnRollback(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 2, "a"))
		for _, image := range []string{"b", "c", "a", "b", "a"} {
			l.settle()
			l.image("web", image)
		}
		l.settle()
		sets := l.sets()
		require.Equal(t, []string{"6", "5", "3"}, []string{sets["a"].Annotations[revisionAnnotation],
			sets["b"].Annotations[revisionAnnotation], sets["c"].Annotations[revisionAnnotation]})
		require.Equal(t, "1,4", sets["a"].Annotations[historyAnnotation])
		require.Equal(t, "2", sets["b"].Annotations[historyAnnotation])
		require.Equal(t, "6", l.get("web").Annotations[revisionAnnotation])
		require.Equal(t, map[string]int{"a": 2, "b": 0, "c": 0}, l.sizes())
	})
}

func TestTheHistoryIsBounded(t *testing.T) {
	history := ""
	for n := 1; n <= 1000; n++ {
		history = remember(history, fmt.Sprint(n))
		require.LessOrEqual(t, len(history), historyLength)
	}
	require.True(t, strings.HasSuffix(history, ",998,999,1000"), history)
	require.Greater(t, len(history), historyLength-5)
}

// Old ReplicaSets are deleted beyond the limit when the rollout is over, the lowest revisions first.
func TestTheLimitOfTheHistory(t *testing.T) {
	inLab(t, func(l *lab) {
		limit := int32(2)
		l.create(deployment("web", 1, "a", func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = &limit }))
		for _, image := range []string{"b", "c", "a", "d"} {
			l.settle()
			l.image("web", image)
		}
		l.settle()
		require.Equal(t, map[string]int{"a": 0, "c": 0, "d": 1}, l.sizes())
		l.image("web", "bad")
		l.settle()
		require.Len(t, l.sizes(), 4, "the rollout is not over")
		l.patch("web", `{"spec":{"paused":true}}`)
		l.settle()
		require.Equal(t, map[string]int{"a": 0, "d": 1, "bad": 1}, l.sizes(), "a pause cleans up, too")
		l.patch("web", `{"spec":{"paused":false,"revisionHistoryLimit":0}}`)
		l.image("web", "e")
		l.settle()
		require.Equal(t, map[string]int{"e": 1}, l.sizes())
	})
}

// What has pods, wants pods, or has not reported is kept.
func TestSurplusIsOnlyWhatIsEmpty(t *testing.T) {
	limit := int32(0)
	d := deployment("web", 1, "a", func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = &limit })
	empty, wants, has, silent := anySet("empty", 0, 0), anySet("wants", 1, 0), anySet("has", 0, 0),
		anySet("silent", 0, 0)
	wants.Status.Replicas, has.Status.Replicas, silent.Generation = 0, 1, 2
	require.Equal(t, []*appsv1.ReplicaSet{empty}, surplus(d, []*appsv1.ReplicaSet{wants, has, silent, empty}))
	unlimited := int32(2147483647)
	for _, d.Spec.RevisionHistoryLimit = range []*int32{nil, &unlimited} {
		require.Empty(t, surplus(d, []*appsv1.ReplicaSet{empty}))
	}
}

// Two ReplicaSets with the template of the Deployment: the oldest is the new one, whatever its hash.
func TestTheNewReplicaSetIsFoundByItsTemplate(t *testing.T) {
	d := deployment("web", 1, "a")
	set := func(name string, day int, hash string) *appsv1.ReplicaSet {
		set := anySet(name, 1, 1)
		set.CreationTimestamp.Time = set.CreationTimestamp.AddDate(2026, 0, day)
		set.Spec.Template = *d.Spec.Template.DeepCopy()
		if hash != "" {
			set.Spec.Template.Labels = withLabel(set.Spec.Template.Labels, hash)
		}
		return set
	}
	other := set("other", 0, "x")
	other.Spec.Template.Spec.Containers[0].Image = "b"
	oldest, youngest := set("oldest", 1, "y"), set("youngest", 2, "")
	ro := newRollout(d, []*appsv1.ReplicaSet{youngest, oldest, other}, d.CreationTimestamp.Time)
	require.Equal(t, oldest, ro.new)
	require.Equal(t, []*appsv1.ReplicaSet{other, youngest}, ro.old)
}

// The hash differs for another template and another count of collisions, and for nothing else.
func TestHash(t *testing.T) {
	hash := func(change func(*corev1.PodTemplateSpec), collisions *int32) string {
		template := deployment("web", 1, "a").Spec.Template
		change(&template)
		h, err := hashOf(&template, collisions)
		require.NoError(t, err)
		require.Regexp(t, "^[a-z0-9]{1,10}$", h)
		return h
	}
	none := func(*corev1.PodTemplateSpec) {}
	zero, one := int32(0), int32(1)
	require.Equal(t, hash(none, nil), hash(none, nil))
	require.Equal(t, hash(none, nil), hash(func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{} },
		nil),
		"what is not set does not count")
	require.NotEqual(t, hash(none, nil),
		hash(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Image = "b" }, nil))
	require.NotEqual(t, hash(none, nil), hash(none, &zero))
	require.NotEqual(t, hash(none, &zero), hash(none, &one))
}
