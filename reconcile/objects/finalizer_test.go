package objects_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

const ours, theirs = "example.com/ours", "example.com/theirs"

// dying is when an object was deleted that is still there.
var dying = metav1.Unix(1e9, 0)

func newFinalized(deleting bool, finalizers ...string) *appsv1.ReplicaSet {
	rs := newSet("a", "1")
	rs.Finalizers = finalizers
	if deleting {
		rs.DeletionTimestamp = &dying
	}
	return rs
}

func noCleanup(t *testing.T) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) { t.Error("cleanup was called"); return true, nil }
}

func cleanedUp(context.Context) (bool, error) { return true, nil }

func TestAFinalizerIsThereBeforeAnythingElse(t *testing.T) {
	for name, others := range map[string][]string{"the first": nil, "the first of an empty list": {},
		"after others": {theirs, "example.com/more"}} {
		t.Run(name, func(t *testing.T) {
			sets := newDesk(t, newFinalized(false, others...))
			cached := sets.get("a")
			before := clone(cached)
			marked, alive, err := objects.Finalize(testCtx(t), sets, cached, ours, noCleanup(t))
			require.NoError(t, err)
			require.True(t, alive)
			require.Equal(t, append(others, ours), marked.Finalizers)
			require.Equal(t, sets.get("a"), marked)
			require.Equal(t, before, cached, "the cached object was changed")
			require.Equal(t, []string{"patch a"}, sets.took())

			again, alive, err := objects.Finalize(testCtx(t), sets, marked, ours, noCleanup(t))
			require.NoError(t, err)
			require.True(t, alive)
			require.Same(t, marked, again)
			require.Empty(t, sets.took())
		})
	}
}

func TestAFinalizerIsRemovedAfterTheCleanup(t *testing.T) {
	for name, others := range map[string][]string{"the last": nil, "others stay": {theirs, "example.com/more"}} {
		t.Run(name, func(t *testing.T) {
			sets := newDesk(t, newFinalized(true, append([]string{ours}, others...)...))
			cached := sets.get("a")
			before := clone(cached)
			cleanups := 0
			released, alive, err := objects.Finalize(testCtx(t), sets, cached, ours,
				func(ctx context.Context) (bool, error) {
					cleanups++
					require.NotNil(t, ctx.Value(ctxKey{}))
					require.Contains(t, sets.get("a").Finalizers, ours, "removed before the cleanup")
					return true, nil
				})
			require.NoError(t, err)
			require.False(t, alive)
			require.Equal(t, 1, cleanups)
			require.ElementsMatch(t, others, released.Finalizers)
			require.ElementsMatch(t, others, sets.get("a").Finalizers)
			require.Equal(t, before, cached, "the cached object was changed")

			_, alive, err = objects.Finalize(testCtx(t), sets, released, ours, noCleanup(t))
			require.NoError(t, err)
			require.False(t, alive)
			require.Equal(t, []string{"patch a"}, sets.took())
		})
	}
}

func TestAFinalizerStaysUntilTheCleanupIsDone(t *testing.T) {
	failure := errors.New("the cloud is down")
	sets := newDesk(t, newFinalized(true, ours))
	_, alive, err := objects.Finalize(testCtx(t), sets, sets.get("a"), ours,
		func(context.Context) (bool, error) { return true, failure })
	require.False(t, alive)
	require.ErrorIs(t, err, failure)
	require.ErrorContains(t, err, ours+" of default/a")

	_, alive, err = objects.Finalize(testCtx(t), sets, sets.get("a"), ours,
		func(context.Context) (bool, error) { return false, nil })
	require.False(t, alive)
	require.NoError(t, err)

	require.Panics(t, func() {
		_, _, _ = objects.Finalize(testCtx(t), sets, sets.get("a"), ours,
			func(context.Context) (bool, error) { panic("ouch") })
	})
	require.Empty(t, sets.took())
}

func TestFinalizersOfOthersAreNotUndone(t *testing.T) {
	for name, test := range map[string]struct {
		seen    *appsv1.ReplicaSet
		change  func(*appsv1.ReplicaSet)
		becomes []string
	}{
		"one came, then ours": {newFinalized(false),
			func(rs *appsv1.ReplicaSet) { rs.Finalizers = []string{theirs} }, []string{theirs}},
		"one went, then ours came": {newFinalized(false, theirs),
			func(rs *appsv1.ReplicaSet) { rs.Finalizers = nil }, nil},
		"one came, then ours went": {newFinalized(true, ours),
			func(rs *appsv1.ReplicaSet) { rs.Finalizers = []string{theirs, ours} }, []string{theirs, ours}},
		"one went, then ours went": {newFinalized(true, ours, theirs),
			func(rs *appsv1.ReplicaSet) { rs.Finalizers = []string{ours} }, []string{ours}},
		"ours is there already, unseen": {newFinalized(false),
			func(rs *appsv1.ReplicaSet) { rs.Finalizers = []string{ours} }, []string{ours}},
		"a namesake keeps its own": {newFinalized(true, ours), func(rs *appsv1.ReplicaSet) { rs.UID = "2" },
			[]string{ours}},
		"a namesake gets none": {newFinalized(false), func(rs *appsv1.ReplicaSet) { rs.UID = "2" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sets := newDesk(t, test.seen)
			sets.change("a", test.change)
			_, alive, err := objects.Finalize(testCtx(t), sets, test.seen, ours, cleanedUp)
			require.True(t, apierrors.IsInvalid(err), err)
			require.ErrorContains(t, err, "default/a")
			require.False(t, alive)
			require.Equal(t, test.becomes, sets.get("a").Finalizers)
		})
	}
}

func TestOtherChangesDoNotKeepAFinalizerFromComingOrGoing(t *testing.T) {
	for _, deleting := range []bool{false, true} {
		seen := newFinalized(deleting, theirs)
		if deleting {
			seen.Finalizers = append(seen.Finalizers, ours)
		}
		sets := newDesk(t, seen)
		sets.change("a", func(rs *appsv1.ReplicaSet) { rs.Status.Replicas = 7 })
		_, _, err := objects.Finalize(testCtx(t), sets, seen, ours, cleanedUp)
		require.NoError(t, err)
		require.EqualValues(t, 7, sets.get("a").Status.Replicas)
	}
}

func TestFinalizingWhatIsGone(t *testing.T) {
	sets := newDesk[*appsv1.ReplicaSet](t)
	_, alive, err := objects.Finalize(testCtx(t), sets, newFinalized(false), ours, noCleanup(t))
	require.ErrorIs(t, err, objects.ErrGone)
	require.False(t, alive, "something may be made that nobody cleans up")
	_, alive, err = objects.Finalize(testCtx(t), sets, newFinalized(true, ours), ours, cleanedUp)
	require.NoError(t, err)
	require.False(t, alive)
}

// TestAFinalizerWriteWhoseAnswerIsLost comes to the same in the end as one whose answer arrives.
func TestAFinalizerWriteWhoseAnswerIsLost(t *testing.T) {
	lost := errors.New("connection reset")
	sets := newDesk(t, newFinalized(false, theirs))
	sets.after = func(string) error { return lost }
	_, alive, err := objects.Finalize(testCtx(t), sets, sets.get("a"), ours, noCleanup(t))
	require.ErrorIs(t, err, lost)
	require.False(t, alive)
	_, alive, err = objects.Finalize(testCtx(t), sets, sets.get("a"), ours, noCleanup(t))
	require.NoError(t, err)
	require.True(t, alive)
	require.Equal(t, []string{theirs, ours}, sets.get("a").Finalizers)
}

func TestFinalizeRefusesMistakes(t *testing.T) {
	sets := newDesk(t, newFinalized(false))
	nameless := newFinalized(false)
	nameless.UID = ""
	type client = objects.Patcher[*appsv1.ReplicaSet]
	for want, test := range map[string]struct {
		client    client
		o         *appsv1.ReplicaSet
		finalizer string
		cleanup   func(context.Context) (bool, error)
	}{
		"client is nil":          {nil, newFinalized(false), ours, cleanedUp},
		"object is nil":          {sets, nil, ours, cleanedUp},
		"function is nil":        {sets, newFinalized(false), ours, nil},
		`the finalizer "": name`: {sets, newFinalized(false), "", cleanedUp},
		`"ours" has no domain`:   {sets, newFinalized(false), "ours", cleanedUp},
		`"a b/c"`:                {sets, newFinalized(false), "a b/c", cleanedUp},
		"default/a has no UID":   {sets, nameless, ours, cleanedUp},
	} {
		_, alive, err := objects.Finalize(testCtx(t), test.client, test.o, test.finalizer, test.cleanup)
		require.ErrorContains(t, err, want)
		require.False(t, alive)
	}
	require.Empty(t, sets.took())
}
