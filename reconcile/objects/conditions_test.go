package objects_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

func ready(status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: "Ready", Status: status, Reason: reason}
}

func TestATransitionTimeMovesOnlyWithTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conditions []metav1.Condition
		began := metav1.Now()
		require.NoError(t, objects.SetCondition(&conditions, 1, ready(metav1.ConditionFalse, "Starting")))
		require.Equal(t, began, conditions[0].LastTransitionTime)

		time.Sleep(time.Minute)
		same := ready(metav1.ConditionFalse, "Slow")
		same.Message = "still not ready"
		same.LastTransitionTime = metav1.Now() // not for the caller to say, as nothing has turned
		require.NoError(t, objects.SetCondition(&conditions, 2, same))
		same.LastTransitionTime, same.ObservedGeneration = began, 2
		require.Equal(t, []metav1.Condition{same}, conditions)

		time.Sleep(time.Minute)
		require.NoError(t, objects.SetCondition(&conditions, 2, ready(metav1.ConditionTrue, "Up")))
		require.Equal(t, metav1.Now(), conditions[0].LastTransitionTime)
		require.Equal(t, "Up", conditions[0].Reason)
		require.Empty(t, conditions[0].Message, "the message is that of the condition before")

		since := metav1.NewTime(time.Now().Add(-time.Second))
		down := ready(metav1.ConditionFalse, "Down")
		down.LastTransitionTime = since
		require.NoError(t, objects.SetCondition(&conditions, 2, down))
		require.Equal(t, since, conditions[0].LastTransitionTime)
	})
}

func TestAConditionListIsReplacedNeverChanged(t *testing.T) {
	other := metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Because"}
	cached := make([]metav1.Condition, 2, 8) // with room for an append to write into what is shared
	cached[0], cached[1] = ready(metav1.ConditionFalse, "Starting"), other
	before := append([]metav1.Condition(nil), cached...)

	for name, change := range map[string]func(*[]metav1.Condition) error{
		"set": func(c *[]metav1.Condition) error {
			return objects.SetCondition(c, 1, ready(metav1.ConditionTrue, "Up"))
		},
		"add": func(c *[]metav1.Condition) error {
			return objects.SetCondition(c, 1,
				metav1.Condition{Type: "New", Status: metav1.ConditionTrue, Reason: "New"})
		},
		"remove": func(c *[]metav1.Condition) error { objects.RemoveCondition(c, "Ready"); return nil },
	} {
		mine := cached
		require.NoError(t, change(&mine), name)
		require.NotEqual(t, before, mine, name)
		require.Contains(t, mine, other, name)
		require.Equal(t, before, cached, name)
		require.Empty(t, cached[:3][2].Type, "%s wrote behind the end of the list, where somebody else may append, too",
			name)
	}
}

func TestAConditionThatIsSetAgainIsNoChange(t *testing.T) {
	var conditions []metav1.Condition
	require.NoError(t, objects.SetCondition(&conditions, 3, ready(metav1.ConditionTrue, "Up")))
	before := conditions
	require.NoError(t, objects.SetCondition(&conditions, 3, ready(metav1.ConditionTrue, "Up")))
	require.Same(t, &before[0], &conditions[0])
	objects.RemoveCondition(&conditions, "Other")
	require.Same(t, &before[0], &conditions[0])
}

func TestAConditionThatTheServerWouldRefuse(t *testing.T) {
	require.ErrorContains(t, objects.SetCondition(nil, 1, ready(metav1.ConditionTrue, "Up")), "nil")
	for want, c := range map[string]metav1.Condition{
		"condition.type":   {Status: metav1.ConditionTrue, Reason: "Up"},
		"condition.status": {Type: "Ready", Status: "Yes", Reason: "Up"},
		"condition.reason": {Type: "Ready", Status: metav1.ConditionTrue, Reason: "two words"},
	} {
		var conditions []metav1.Condition
		require.ErrorContains(t, objects.SetCondition(&conditions, 1, c), want)
		require.Empty(t, conditions)
	}
}

// Another client, or an earlier program, may have written a condition without a time.
func TestAConditionWithoutATransitionTimeGetsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conditions := []metav1.Condition{ready(metav1.ConditionTrue, "Up")}
		require.NoError(t, objects.SetCondition(&conditions, 1, ready(metav1.ConditionTrue, "Up")))
		require.Equal(t, metav1.Now(), conditions[0].LastTransitionTime)

		since := metav1.NewTime(time.Now().Add(-time.Second))
		conditions = []metav1.Condition{ready(metav1.ConditionTrue, "Up")}
		up := ready(metav1.ConditionTrue, "Up")
		up.LastTransitionTime = since
		require.NoError(t, objects.SetCondition(&conditions, 1, up))
		require.Equal(t, since, conditions[0].LastTransitionTime)
	})
}

func TestConditionTrueIsAboutAGeneration(t *testing.T) {
	var conditions []metav1.Condition
	require.False(t, objects.ConditionTrue(conditions, "Ready", 0))
	require.NoError(t, objects.SetCondition(&conditions, 2, ready(metav1.ConditionTrue, "Up")))
	require.True(t, objects.ConditionTrue(conditions, "Ready", 1))
	require.True(t, objects.ConditionTrue(conditions, "Ready", 2))
	require.False(t, objects.ConditionTrue(conditions, "Ready", 3))
	require.NoError(t, objects.SetCondition(&conditions, 3, ready(metav1.ConditionUnknown, "Lost")))
	require.False(t, objects.ConditionTrue(conditions, "Ready", 3))
	c, ok := objects.FindCondition(conditions, "Ready")
	require.True(t, ok)
	require.Equal(t, "Lost", c.Reason)
	_, ok = objects.FindCondition(conditions, "Other")
	require.False(t, ok)
}
