package sharding

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// group is a table, open, whose slices are where they should be.
func groupOf(n, slices int) *table {
	return freshTable("life", slices).changed(func(t *table) {
		t.Open = true
		for i := range n {
			t.join(member{Name: fmt.Sprintf("pod-%d-%d", i, t.Turn), Seat: fmt.Sprintf("pod-%d", i)})
		}
		t.assign()
	})
}

func joined(t *table, seat string) *table {
	return settled(t.changed(func(t *table) {
		t.join(member{Name: fmt.Sprintf("%s-%d", seat, t.Turn), Seat: seat})
		t.assign()
	}))
}

func left(t *table, i int) *table {
	return settled(t.changed(func(t *table) { t.remove(t.Members[i].Name); t.assign() }))
}

// settled lets all that should move be asked for, and handed over.
func settled(t *table) *table {
	return t.changed(func(t *table) {
		for slice, target := range t.targets() {
			if target != t.Owners[slice] {
				t.claim([]int{slice}, target)
			}
		}
		for slice := range t.Next {
			t.handOver([]int{slice})
		}
	})
}

func (t *table) counts() map[int]int {
	counts := map[int]int{}
	for _, m := range t.Members {
		counts[m.Number] = 0
	}
	for _, owner := range t.Owners {
		counts[owner]++
	}
	return counts
}

// moves counts the slices whose owner is another one.
func moves(from, to *table) (n int) {
	for slice, owner := range from.Owners {
		if from.name(owner) != to.name(to.Owners[slice]) {
			n++
		}
	}
	return n
}

// TestSharesAreEvenAndFewSlicesMove lets replicas come and go at random.
func TestSharesAreEvenAndFewSlicesMove(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 41))
	table := groupOf(1, 256)
	joins, leaves := 0, 0
	for range 300 {
		before, n := table, len(table.Members)
		if random.IntN(2) == 0 && n < 40 || n == 1 {
			table = joined(table, fmt.Sprintf("pod-%d", random.IntN(60)))
			joins++
			require.LessOrEqual(t, moves(before, table), 256/(n+1), "a join of one of %d moves its share", n+1)
		} else {
			i := random.IntN(n)
			had := before.counts()[before.Members[i].Number]
			table = left(table, i)
			leaves++
			require.Equal(t, had, moves(before, table), "a leave moves what was its own")
		}
		least, most := 256, 0
		for _, n := range table.counts() {
			least, most = min(least, n), max(most, n)
		}
		require.LessOrEqual(t, most-least, 1)
	}
	require.NotZero(t, joins*leaves)
}

func TestBalanceAndMovesOfAJoin(t *testing.T) {
	for _, n := range []int{3, 10, 50} {
		table := groupOf(n, 256)
		most := 0
		for _, has := range table.counts() {
			most = max(most, has)
		}
		after := joined(table, "new")
		mean := 256 / float64(n)
		t.Logf("%d replicas: the largest share is %.1f %% above the mean; a join moves %d of 256 slices, 1/%d is %.1f",
			n, 100*(float64(most)/mean-1), moves(table, after), n+1, 256/float64(n+1))
		if n <= 10 {
			require.LessOrEqual(t, float64(most), 1.15*mean)
		}
		require.LessOrEqual(t, float64(moves(table, after)), 1.05*256/float64(n+1))
	}
}

// TestOneThatFlapsGetsItsOwnBack and moves nothing between others.
func TestOneThatFlapsGetsItsOwnBack(t *testing.T) {
	table := joined(groupOf(9, 256), "flaps")
	for range 10 {
		last := table.Members[len(table.Members)-1]
		without := left(table, len(table.Members)-1)
		for slice, owner := range table.Owners {
			if owner != last.Number {
				require.Equal(t, owner, without.Owners[slice], "others keep theirs")
			}
		}
		again := joined(without, "flaps")
		back := again.Members[len(again.Members)-1].Number
		for slice, owner := range without.Owners {
			if again.Owners[slice] != owner {
				require.Equal(t, back, again.Owners[slice], "only to the one that is back")
			}
		}
		same := 0
		for slice, owner := range table.Owners {
			if owner == last.Number && again.Owners[slice] == back {
				same++
			}
		}
		require.GreaterOrEqual(t, same, 20, "of the 25 or 26 slices that it had")
		table = again
	}
}

// TestAskingForAShareMovesNoOther: members that prepare for the slices of one that leaves still want the same when
// others have asked for theirs.
func TestAskingForAShareMovesNoOther(t *testing.T) {
	for n := 10; n < 40; n++ {
		leaves := freshTable("life", n).changed(func(t *table) {
			t.Open = true
			for _, seat := range []string{"a", "b", "c", "d"} {
				t.join(member{Name: seat, Seat: seat})
			}
			t.assign()
		}).changed(func(t *table) { t.retire(4, false) })
		targets := leaves.targets()
		for first := 1; first <= 3; first++ {
			asked := leaves.changed(func(next *table) {
				for slice, target := range targets {
					if target == first && next.Owners[slice] != first {
						next.claim([]int{slice}, first)
					}
				}
			})
			require.Equal(t, targets, asked.targets(), "%d slices, %d asks first", n, first)
		}
	}
}

func TestTwoWithOneSeatDoNotCollide(t *testing.T) {
	table := joined(joined(groupOf(1, 64), "twin"), "twin")
	require.Equal(t, "twin", table.Members[1].Seat)
	require.Equal(t, table.Members[2].Name, table.Members[2].Seat)
	for _, n := range table.counts() {
		require.InDelta(t, 64/3, n, 1)
	}
}

func TestKeysSpreadOverTheSlices(t *testing.T) {
	counts := make([]int, 64)
	for i := range 64_000 {
		counts[sliceOf(ByKey(types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("web-%d", i)}), 64)]++
	}
	for slice, n := range counts {
		require.InDelta(t, 1000, n, 200, "slice %d", slice) // 6 standard deviations
	}
	a, b := types.NamespacedName{Namespace: "a", Name: "x"}, types.NamespacedName{Namespace: "a", Name: "y"}
	require.Equal(t, ByNamespace(a), ByNamespace(b))
	require.NotEqual(t, ByKey(a), ByKey(b))
	require.Equal(t, "x", ByNamespace(types.NamespacedName{Name: "x"}))
}

// TestALargeNamespaceIsCutByKey if Options say so, and those of all others are not.
func TestALargeNamespaceIsCutByKey(t *testing.T) {
	const replicas, slices = 10, 256
	table := groupOf(replicas, slices)
	largest := func(by func(types.NamespacedName) string) float64 {
		keys, most := map[int]int{}, 0
		for i := range 20_000 {
			namespace := "big"
			if i%2 == 0 {
				namespace = fmt.Sprint("team-", i%1000)
			}
			slice := sliceOf(by(types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("web-", i)}), slices)
			keys[table.Owners[slice]]++
			most = max(most, keys[table.Owners[slice]])
		}
		return float64(most) / (20_000 / replicas)
	}
	cut, in := withKeysOf(ByNamespace, []string{"big", "also", "big"})
	require.Equal(t, []string{"also", "big"}, in)
	t.Logf("half of all keys in one namespace, %d replicas: the largest share is %.2f times the mean, and %.2f times "+
		"if the namespace is cut by key", replicas, largest(ByNamespace), largest(cut))
	require.Greater(t, largest(ByNamespace), 5.0)
	require.Less(t, largest(cut), 1.3)
	key := types.NamespacedName{Namespace: "team-1", Name: "web-1"}
	require.Equal(t, ByNamespace(key), cut(key))
	key.Namespace = "big"
	require.Equal(t, ByKey(key), cut(key))

	prints := map[string]bool{}
	for _, in := range [][]string{nil, {"big"}, {"also"}, {"also", "big"}} {
		prints[fingerprint(withKeysOf(ByNamespace, in))] = true
	}
	require.Len(t, prints, 4)
	require.Equal(t, fingerprint(cut, in), fingerprint(withKeysOf(ByNamespace, []string{"big", "also"})))
}

func TestAnEditedTableIsNotBelieved(t *testing.T) {
	table := groupOf(3, 16)
	text := table.encode()
	back, err := decodeTable(text)
	require.NoError(t, err)
	require.Equal(t, table.Owners, back.Owners)
	require.Equal(t, table.Members, back.Members)
	for i := range text {
		edited := []byte(text)
		edited[i] ^= 1
		_, err := decodeTable(string(edited))
		require.ErrorIs(t, err, errEdited, "%d", i)
	}
	_, err = decodeTable("")
	require.ErrorIs(t, err, errEdited)
}

func TestSizeOfTheTable(t *testing.T) {
	for _, n := range []int{3, 50} {
		t.Logf("%d replicas, 256 slices: %d bytes", n, len(groupOf(n, 256).encode()))
	}
	require.Less(t, len(groupOf(100, 2048).encode()), 128<<10, "an object has room for 256 KiB of annotations")
}
