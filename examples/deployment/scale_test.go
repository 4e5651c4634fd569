package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestScale(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 4, "a"))
		for _, n := range []int{10, 3, 0, 7, 1} {
			l.settle()
			l.scale("web", n)
			l.settle()
			require.Equal(t, map[string]int{"a": n}, l.sizes())
			require.EqualValues(t, n, l.get("web").Status.AvailableReplicas)
		}
		require.Equal(t, "1", l.sets()["a"].Annotations[desiredAnnotation])
		require.Equal(t, "2", l.sets()["a"].Annotations[maxAnnotation])
	})
}

// In the middle of a rollout all ReplicaSets grow and shrink in proportion.
func TestScaleInTheMiddleOfARollout(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 10, "a", rolling("3", "2")))
		l.settle()
		l.image("web", "bad")
		l.settle()
		require.Equal(t, map[string]int{"a": 8, "bad": 5}, l.sizes())
		l.scale("web", 30)
		l.settle()
		require.Equal(t, map[string]int{"a": 20, "bad": 13}, l.sizes())
		l.scale("web", 10)
		l.settle()
		require.Equal(t, map[string]int{"a": 8, "bad": 5}, l.sizes())
		l.scale("web", 0)
		l.settle()
		require.Equal(t, map[string]int{"a": 0, "bad": 0}, l.sizes())
	})
}

// The number of replicas that a ReplicaSet got its size for is stale, and the size is right by chance, because a client
// scaled both while no controller ran. The built-in controller takes that for a Deployment that was just scaled, for
// ever, and no rollout begins: see TestTheBuiltInControllerHangs.
func TestAStaleNumberOfReplicasBlocksNoRollout(t *testing.T) {
	for name, strategy := range map[string]func(*appsv1.Deployment){"RollingUpdate": rolling("1", "0"),
		"Recreate": recreating} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.create(deployment("web", 3, "a", strategy))
				l.settle()
				l.note("a", "7")
				l.image("web", "b")
				l.settle()
				require.Equal(t, map[string]int{"a": 0, "b": 3}, l.sizes())
			})
		})
	}
}

// The same with two ReplicaSets that have pods, after the strategy was changed in the middle of a rollout.
func TestAChangeToRecreateInTheMiddleOfARollout(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 4, "a", rolling("1", "1")))
		l.settle()
		l.image("web", "bad")
		l.settle()
		l.patch("web", `{"spec":{"replicas":6,"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`)
		l.settle()
		require.Equal(t, map[string]int{"a": 0, "bad": 6}, l.sizes())
	})
}

// note says in the annotations of a ReplicaSet that it got its size for another number of replicas.
func (l *lab) note(image, replicas string) {
	l.t.Helper()
	set := l.sets()[image].DeepCopy()
	set.Annotations[desiredAnnotation] = replicas
	_, err := l.client.AppsV1().ReplicaSets("default").Update(l.t.Context(), set, metav1.UpdateOptions{})
	require.NoError(l.t, err)
}

// An old ReplicaSet that is scaled up by hand beside a complete new one is scaled down again.
func TestAnOldReplicaSetIsScaledByHand(t *testing.T) {
	inLab(t, func(l *lab) {
		l.create(deployment("web", 3, "a"))
		l.settle()
		l.image("web", "b")
		l.settle()
		l.scale("web", 4)
		l.settle()
		set := l.sets()["a"].DeepCopy()
		*set.Spec.Replicas = 2
		_, err := l.client.AppsV1().ReplicaSets("default").Update(t.Context(), set, metav1.UpdateOptions{})
		require.NoError(t, err)
		l.settle()
		require.Equal(t, map[string]int{"a": 0, "b": 4}, l.sizes())
	})
}

func TestAnnotationsThatAreNoNumbers(t *testing.T) {
	set := anySet("a", 3, 3)
	d := deployment("web", 3, "a", rolling("1", "0"))
	d.Status.Replicas = 4
	for _, value := range []string{"", "-1", "x", "4294967296"} {
		set.Annotations = map[string]string{desiredAnnotation: value, maxAnnotation: value, revisionAnnotation: value}
		require.False(t, outdated(d, set), value)
		require.Zero(t, portion(d, set), "the status says for how many pods the sizes are")
	}
	set.Annotations[revisionAnnotation] = "first"
	require.Zero(t, revisionOf(set))
	d.Status.Replicas = 0
	require.Zero(t, portion(d, set))
}
