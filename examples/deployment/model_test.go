package main

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The arithmetic of sizes against models that count one pod at a time.

// anyDeployment returns one of some replicas with a random strategy.
func anyDeployment(random *rand.Rand) *appsv1.Deployment {
	for {
		d := deployment("web", int32(random.IntN(30)), "new", rolling(anyShare(random), anyShare(random)))
		if r := d.Spec.Strategy.RollingUpdate; r.MaxSurge.IntValue() != 0 || r.MaxUnavailable.IntValue() != 0 ||
			r.MaxSurge.Type == intstr.String && r.MaxSurge.StrVal != "0%" ||
			r.MaxUnavailable.Type == intstr.String && r.MaxUnavailable.StrVal != "0%" {
			return d
		}
	}
}

func anyShare(random *rand.Rand) string {
	if random.IntN(2) == 0 {
		return fmt.Sprint(random.IntN(6))
	}
	return fmt.Sprintf("%d%%", random.IntN(101))
}

// anySet returns a ReplicaSet that wants n pods, and says that some are available.
func anySet(name string, n, available int) *appsv1.ReplicaSet {
	replicas := int32(n)
	set := &appsv1.ReplicaSet{}
	set.Name, set.Generation = name, 1
	set.Spec.Replicas = &replicas
	set.Status = appsv1.ReplicaSetStatus{ObservedGeneration: 1, Replicas: replicas, AvailableReplicas: int32(available)}
	return set
}

func TestBoundsAreRoundedEachInItsDirection(t *testing.T) {
	for n := range 60 {
		for percent := range 201 {
			d := deployment("web", int32(n), "a", rolling(fmt.Sprintf("%d%%", percent), "1000"))
			surge, unavailable := bounds(d)
			want := 0
			for want*100 < percent*n {
				want++
			}
			require.Equal(t, want, surge, "%d%% of %d", percent, n)
			require.Equal(t, n, unavailable, "not more than there are")
			if percent > 100 {
				continue
			}
			d = deployment("web", int32(n), "a", rolling("1", fmt.Sprintf("%d%%", percent)))
			_, unavailable = bounds(d)
			want = 0
			for (want+1)*100 <= percent*n {
				want++
			}
			require.Equal(t, want, unavailable, "%d%% of %d", percent, n)
		}
	}
}

func TestBoundsThatComeToNothing(t *testing.T) {
	surge, unavailable := bounds(deployment("web", 3, "a", rolling("0", "1%")))
	require.Equal(t, []int{0, 1}, []int{surge, unavailable}, "one step must be possible")
	surge, unavailable = bounds(deployment("web", 0, "a", rolling("25%", "25%")))
	require.Equal(t, []int{0, 0}, []int{surge, unavailable}, "there is nothing to be unavailable")
	surge, unavailable = bounds(deployment("web", 3, "a", recreating))
	require.Equal(t, []int{0, 0}, []int{surge, unavailable})
}

// The new ReplicaSet grows by one pod at a time, as long as there is room.
func TestGrownIsTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		d := anyDeployment(random)
		set := anySet("new", random.IntN(30), 0)
		old := []*appsv1.ReplicaSet{anySet("a", random.IntN(20), 0), anySet("b", random.IntN(20), 0)}
		want := size(set)
		if want > wanted(d) {
			want = wanted(d)
		}
		for want < wanted(d) && want+size(old[0])+size(old[1]) < maxPods(d) {
			want++
		}
		require.Equal(t, want, grown(d, set, old))
	}
}

// The old ReplicaSets shrink by one pod at a time: first by those that are not available, and then by the others, the
// oldest ReplicaSet first, as long as enough is left.
func TestShrunkIsTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	shrank := 0
	for range 20_000 {
		d := anyDeployment(random)
		some := func(name string, limit int) *appsv1.ReplicaSet {
			n := random.IntN(limit)
			return anySet(name, n, random.IntN(n+1))
		}
		set, old := some("new", wanted(d)+1), []*appsv1.ReplicaSet{some("a", 20), some("b", 20)}
		got := map[string]int{"a": size(old[0]), "b": size(old[1])}
		for _, s := range shrunk(d, set, old) {
			require.Less(t, s.to, got[s.set.Name], "it shrinks")
			got[s.set.Name] = s.to
		}
		want := modelShrunk(d, set, old)
		require.Equal(t, want, got)
		if want["a"] < size(old[0]) {
			shrank++
		}
	}
	require.Greater(t, shrank, 1000)
}

func modelShrunk(d *appsv1.Deployment, new *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) map[string]int {
	left := map[string]int{}
	total, serving := available(new), available(new) // pods of the new set that do not serve are not counted on
	for _, set := range old {
		left[set.Name] = size(set)
		total, serving = total+size(set), serving+available(set)
	}
	if total <= minAvailable(d) {
		return left
	}
	for _, set := range old {
		for left[set.Name] > available(set) && total > minAvailable(d) {
			left[set.Name]--
			total--
		}
	}
	for _, set := range old {
		for left[set.Name] > 0 && serving > minAvailable(d) {
			left[set.Name]--
			serving--
		}
	}
	return left
}

// Nothing shrinks while a ReplicaSet has not reported on the size that it was given.
func TestNothingShrinksOnOldReports(t *testing.T) {
	d := deployment("web", 4, "new", rolling("1", "0"))
	set, old := anySet("new", 4, 4), []*appsv1.ReplicaSet{anySet("old", 1, 1)}
	require.Len(t, shrunk(d, set, old), 1)
	for _, unsure := range []*appsv1.ReplicaSet{set, old[0]} {
		unsure.Generation++
		require.Empty(t, shrunk(d, set, old))
		unsure.Generation--
	}
	set.Generation, set.Status.AvailableReplicas = 2, 0 // none can be counted wrongly: four are missing in any case
	require.Empty(t, shrunk(d, set, old))
}

// All of what is added or taken away is given out, nothing moves the wrong way, and each ReplicaSet keeps its part of
// the whole, up to one pod of rounding.
func TestSpreadKeepsProportions(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 20_000 {
		d := anyDeployment(random)
		before := anyDeployment(random) // what the sizes are for
		before.Spec.Strategy = d.Spec.Strategy
		sets := []*appsv1.ReplicaSet{}
		for total := 0; total < maxPods(before); {
			n := 1 + random.IntN(maxPods(before)-total)
			set := anySet(fmt.Sprint(len(sets)), n, n)
			set.Annotations = sizesOf(before)
			sets, total = append(sets, set), total+n
		}
		if len(sets) == 0 {
			continue
		}
		total, largest := 0, -1
		for i, s := range spread(d, sets) {
			if i == 0 {
				largest = s.to
			}
			total += s.to
			exact := float64(size(s.set)) * float64(maxPods(d)) / float64(maxPods(before))
			if wanted(d) > 0 && i > 0 && len(sets) == 2 {
				require.InDelta(t, exact, s.to, 1)
			}
			if maxPods(d) >= maxPods(before) && wanted(d) > 0 {
				require.GreaterOrEqual(t, s.to, size(s.set))
			} else {
				require.LessOrEqual(t, s.to, size(s.set))
			}
			require.GreaterOrEqual(t, s.to, 0)
		}
		want := maxPods(d)
		if wanted(d) == 0 {
			want = 0
		}
		if largest > 0 { // otherwise the others were rounded up to more, and the rollout takes the rest away
			require.Equal(t, want, total)
		} else {
			require.GreaterOrEqual(t, total, want)
		}
	}
}

func TestSpreadTellsSetsOfOneSizeApart(t *testing.T) {
	older, younger := anySet("a", 5, 5), anySet("b", 5, 5)
	older.CreationTimestamp.Time = older.CreationTimestamp.AddDate(2026, 0, 0)
	younger.CreationTimestamp.Time = older.CreationTimestamp.AddDate(0, 0, 1)
	before := deployment("web", 10, "new", rolling("0", "1"))
	older.Annotations, younger.Annotations = sizesOf(before), sizesOf(before)
	sets := func() []*appsv1.ReplicaSet { return []*appsv1.ReplicaSet{older, younger} }
	up := spread(deployment("web", 11, "new", rolling("0", "1")), sets())
	require.Equal(t, []resize{{younger, 6, true}, {older, 5, true}}, up, "the younger one grows")
	down := spread(deployment("web", 9, "new", rolling("0", "1")), sets())
	require.Equal(t, []resize{{older, 4, true}, {younger, 5, true}}, down, "the older one shrinks")
}

// ReplicaSets disagree on what the whole was if a scaling was cut short, or only maxSurge has changed. Each still moves
// in the direction of the whole, or not at all, and what grows stays within maxSurge.
func TestSpreadMovesNoSetTheOtherWay(t *testing.T) {
	d := deployment("web", 4, "new", rolling("1", "0"))
	set := func(name string, n, max int) *appsv1.ReplicaSet {
		set := anySet(name, n, n)
		set.Annotations = map[string]string{maxAnnotation: fmt.Sprint(max)}
		return set
	}
	a, b, c := set("a", 6, 8), set("b", 2, 3), set("c", 1, 2)
	require.Equal(t, []resize{{a, 2, true}, {b, 2, true}, {c, 1, true}}, spread(d, []*appsv1.ReplicaSet{a, b, c}))

	random := rand.New(rand.NewPCG(5, 5))
	for range 20_000 {
		d, sets, before, after := anyDeployment(random), []*appsv1.ReplicaSet{}, 0, 0
		for i := range 2 + random.IntN(3) {
			n := 1 + random.IntN(12)
			sets, before = append(sets, set(fmt.Sprint(i), n, n+random.IntN(12))), before+n
		}
		step, grew, shrank := spread(d, sets), false, false
		for _, s := range step {
			after += s.to
			grew, shrank = grew || s.to > size(s.set), shrank || s.to < size(s.set)
		}
		require.False(t, grew && shrank, "%v", step)
		if grew {
			require.Equal(t, maxPods(d), after)
		}
	}
}
