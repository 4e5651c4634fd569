package objects_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// report sets a status as a controller does.
func report(replicas int32) func(*appsv1.ReplicaSet) error {
	return func(rs *appsv1.ReplicaSet) error {
		rs.Status.Replicas, rs.Status.ObservedGeneration = replicas, rs.Generation
		return nil
	}
}

func TestAStatusIsWrittenWhenItChanges(t *testing.T) {
	sets := newDesk(t, newSet("a", "1"))
	cached := sets.get("a")
	before := clone(cached)
	written, err := objects.UpdateStatus(testCtx(t), sets, cached, report(3))
	require.NoError(t, err)
	require.Equal(t, []string{"update a"}, sets.took())
	require.Equal(t, before, cached, "the cached object was changed")
	require.Equal(t, sets.get("a"), written)
	require.Equal(t, appsv1.ReplicaSetStatus{Replicas: 3, ObservedGeneration: 1}, written.Status)

	again, err := objects.UpdateStatus(testCtx(t), sets, written, report(3))
	require.NoError(t, err)
	require.Empty(t, sets.took(), "nothing had changed")
	require.Same(t, written, again)
}

// TestAConflictIsResolvedOnTopOfTheNewest changes the spec, and somebody else's part of the status, before the write
// comes.
func TestAConflictIsResolvedOnTopOfTheNewest(t *testing.T) {
	sets := newDesk(t, newSet("a", "1"))
	cached := sets.get("a")
	sets.change("a", func(rs *appsv1.ReplicaSet) {
		rs.Spec.Replicas, rs.Generation = new(int32(5)), 2
		rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Theirs"}}
	})
	written, err := objects.UpdateStatus(testCtx(t), sets, cached, report(3))
	require.NoError(t, err)
	require.Equal(t, []string{"update a", "get a", "update a"}, sets.took())
	require.Equal(t, sets.get("a"), written)
	require.Equal(t, new(int32(5)), written.Spec.Replicas)
	require.EqualValues(t, 2, written.Generation)
	require.Equal(t, appsv1.ReplicaSetStatus{
		Replicas: 3, ObservedGeneration: 1, // nobody has looked at generation 2
		Conditions: []appsv1.ReplicaSetCondition{{Type: "Theirs"}},
	}, written.Status)
}

func TestAConflictThatMadeTheStatusRightNeedsNoWrite(t *testing.T) {
	sets := newDesk(t, newSet("a", "1"))
	cached := sets.get("a")
	sets.change("a", func(rs *appsv1.ReplicaSet) { require.NoError(t, report(3)(rs)) })
	live, err := objects.UpdateStatus(testCtx(t), sets, cached, report(3))
	require.NoError(t, err)
	require.Equal(t, []string{"update a", "get a"}, sets.took())
	require.Equal(t, sets.get("a"), live)
}

func TestASecondConflictIsAnError(t *testing.T) {
	sets := newDesk(t, newSet("a", "1"))
	cached := sets.get("a")
	sets.before = func(verb string) error {
		if verb == "update" {
			sets.change("a", func(*appsv1.ReplicaSet) {})
		}
		return nil
	}
	_, err := objects.UpdateStatus(testCtx(t), sets, cached, report(3))
	require.True(t, apierrors.IsConflict(err), err)
	require.ErrorContains(t, err, "update the status of default/a")
	require.Equal(t, []string{"update a", "get a", "update a"}, sets.took())
	require.Zero(t, sets.get("a").Status.Replicas)
}

func TestOnlyAConflictIsTriedAgain(t *testing.T) {
	sets, lost := newDesk(t, newSet("a", "1")), errors.New("connection reset")
	sets.after = func(string) error { return lost }
	_, err := objects.UpdateStatus(testCtx(t), sets, sets.get("a"), report(3))
	require.ErrorIs(t, err, lost)
	require.Equal(t, []string{"update a"}, sets.took())
}

func TestAStatusIsNotGivenToANamesake(t *testing.T) {
	sets := newDesk(t, newSet("a", "1"))
	cached := sets.get("a")
	sets.put(newSet("a", "2"))
	_, err := objects.UpdateStatus(testCtx(t), sets, cached, report(3))
	require.ErrorIs(t, err, objects.ErrGone)
	require.Equal(t, []string{"update a", "get a"}, sets.took())
	require.Zero(t, sets.get("a").Status.Replicas)

	sets.before = func(verb string) error {
		if verb == "get" {
			sets.remove("a")
		}
		return nil
	}
	_, err = objects.UpdateStatus(testCtx(t), sets, cached, report(3))
	require.ErrorIs(t, err, objects.ErrGone)
	_, err = objects.UpdateStatus(testCtx(t), sets, cached, report(3))
	require.ErrorIs(t, err, objects.ErrGone)
	require.True(t, apierrors.IsNotFound(err), err)
}

// TestAServerThatHasNoSuchPathIsNotADeath answers as a server does for a resource without a status, and as a proxy
// does.
func TestAServerThatHasNoSuchPathIsNotADeath(t *testing.T) {
	for name, answer := range map[string]*apierrors.StatusError{
		"server": {ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound,
			Code: 404, Details: &metav1.StatusDetails{}}},
		"bare": {ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound,
			Code: 404}},
		"proxy": apierrors.NewGenericServerResponse(404, "put", resource, "a", "404 page not found", 0, true),
	} {
		sets := newDesk(t, newSet("a", "1"))
		sets.before = func(string) error { return answer }
		_, err := objects.UpdateStatus(testCtx(t), sets, sets.get("a"), report(3))
		require.True(t, apierrors.IsNotFound(err), name)
		require.NotErrorIs(t, err, objects.ErrGone, name)
	}
}

func TestAnErrorOfTheFunctionIsNotOneOfTheServer(t *testing.T) {
	for _, failure := range []error{apierrors.NewNotFound(resource, "b"),
		apierrors.NewConflict(resource, "b", errors.New("taken"))} {
		sets := newDesk(t, newSet("a", "1"))
		calls := 0
		_, err := objects.UpdateStatus(testCtx(t), sets, sets.get("a"), func(rs *appsv1.ReplicaSet) error {
			calls++
			rs.Status.Replicas = 3
			return failure
		})
		require.ErrorIs(t, err, failure)
		require.NotErrorIs(t, err, objects.ErrGone)
		require.Equal(t, 1, calls)
		require.Empty(t, sets.took())
	}
}

func TestUpdateStatusRefusesMistakes(t *testing.T) {
	sets := newDesk(t, newSet("a", "1"))
	for want, call := range map[string]func() (*appsv1.ReplicaSet, error){
		"client is nil": func() (*appsv1.ReplicaSet, error) {
			return objects.UpdateStatus(testCtx(t), nil, sets.get("a"), report(3))
		},
		"object is nil": func() (*appsv1.ReplicaSet,
			error) {
			return objects.UpdateStatus(testCtx(t), sets, nil, report(3))
		},
		"function is nil": func() (*appsv1.ReplicaSet, error) {
			return objects.UpdateStatus(testCtx(t), sets, sets.get("a"), nil)
		},
		"resourceVersion": func() (*appsv1.ReplicaSet, error) {
			return objects.UpdateStatus(testCtx(t), sets, newSet("a", "1"), report(3))
		},
	} {
		_, err := call()
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, sets.took())
}
