package informer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// check is the invariant in indexer's field comment.
func (x *indexer[K, V]) check() error {
	buckets := map[*bucket[K, V]]int{}
	for k, e := range x.entries {
		if e.key != k {
			return fmt.Errorf("entry %v stands under %v", e.key, k)
		}
		for _, s := range e.slots {
			buckets[s.bucket]++
			if s.position >= len(s.bucket.members) || s.bucket.members[s.position] != e {
				return fmt.Errorf("entry %v is not at position %d of bucket %v", k, s.position, s.bucket.id)
			}
		}
	}
	for b, members := range buckets {
		if members != len(b.members) {
			return fmt.Errorf("bucket %v has %d members, and %d slots point to it", b.id, len(b.members), members)
		}
	}
	return nil
}

func TestTheStoreCheckFindsSeededBugs(t *testing.T) {
	build := func() (*indexer[Key, int], *entry[Key, int], *entry[Key, int]) {
		x := newIndexer[Key, int]()
		ix := &Index[int, int]{store: x, fn: func(int) []int { return []int{7} }, buckets: map[int]*bucket[Key, int]{}}
		x.indexes = append(x.indexes, ix)
		for _, name := range []string{"a", "b"} {
			x.plan(Key{Name: name}, 1, nil)
			x.put(Key{Name: name}, "", "", 0, 1)
		}
		return x, x.entries[Key{Name: "a"}], x.entries[Key{Name: "b"}]
	}
	x, _, _ := build()
	require.NoError(t, x.check())
	x, a, _ := build()
	a.key.Name = "c"
	require.ErrorContains(t, x.check(), "stands under")
	x, a, b := build()
	a.slots[0].position, b.slots[0].position = b.slots[0].position, a.slots[0].position
	require.ErrorContains(t, x.check(), "is not at position")
	x, a, _ = build()
	a.slots = nil
	require.ErrorContains(t, x.check(), "slots point to it")
}

// storeScript plays puts and removals, coded in bytes, into a store with two indexes, the second of which comes late, and into a plain map.
func storeScript(t *testing.T, script []byte) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	// The labels of a pod are its values in the one index, none to three of them; the number of its labels is that in the other.
	labels := func(p *corev1.Pod) []string {
		ls := slices.Sorted(maps.Keys(p.Labels))
		return append(ls, ls...) // a function may say a thing twice
	}
	count := func(p *corev1.Pod) []int {
		if len(p.Labels) == 2 {
			panic("two of them")
		}
		return []int{len(p.Labels)}
	}
	byLabel, err := AddIndex(inf, labels)
	require.NoError(t, err)
	var byCount *Index[int, *corev1.Pod]
	truth, panicked := map[Key]*corev1.Pod{}, false

	for i, op := range script {
		name := string(rune('a' + op%5))
		key := Key{Namespace: "default", Name: name}
		if op >= 224 {
			inf.lockWriter()
			if e, ok := inf.store.entries[key]; ok {
				inf.store.mu.Lock()
				inf.store.remove(e)
				inf.store.mu.Unlock()
			}
			inf.unlockWriter()
			delete(truth, key)
		} else {
			var ls []string
			for bit := range 3 {
				if op>>(bit+3)&1 == 1 {
					ls = append(ls, strconv.Itoa(bit))
				}
			}
			p := pod(name, ls...)
			inf.lockWriter()
			inf.store.plan(key, p, func(error) {})
			inf.store.mu.Lock()
			inf.store.put(key, "", strconv.Itoa(i), 0, p)
			inf.store.mu.Unlock()
			inf.unlockWriter()
			truth[key] = p
			panicked = panicked || byCount != nil && len(ls) == 2
		}
		if i == len(script)/2 {
			byCount, err = AddIndex(inf, count)
			require.NoError(t, err)
			for _, p := range truth {
				panicked = panicked || len(p.Labels) == 2
			}
		}
	}

	require.NoError(t, inf.store.check())
	require.Equal(t, len(truth), inf.Len())
	requireIndex(t, byLabel, truth, func(p *corev1.Pod) []string { return slices.Collect(maps.Keys(p.Labels)) })
	require.NoError(t, byLabel.Err())
	if byCount != nil {
		requireIndex(t, byCount, truth, func(p *corev1.Pod) []int {
			if len(p.Labels) == 2 {
				return nil
			}
			return []int{len(p.Labels)}
		})
		require.Equal(t, panicked, byCount.Err() != nil)
	}
}

// requireIndex compares an index with what a walk over all objects finds.
func requireIndex[V comparable](t *testing.T, ix *Index[V, *corev1.Pod], truth map[Key]*corev1.Pod, values func(*corev1.Pod) []V) {
	want := map[V]map[*corev1.Pod]bool{}
	for _, p := range truth {
		for _, v := range values(p) {
			if want[v] == nil {
				want[v] = map[*corev1.Pod]bool{}
			}
			want[v][p] = true
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), ix.Values())
	for v, pods := range want {
		require.ElementsMatch(t, slices.Collect(maps.Keys(pods)), slices.Collect(ix.Get(v)), "%v", v)
	}
}

func TestStoreAndIndexesAgreeWithAPlainMap(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		script := make([]byte, 80)
		for i := range script {
			script[i] = byte(random.IntN(256))
		}
		t.Logf("seed %d", seed)
		storeScript(t, script)
	}
}

func FuzzStore(f *testing.F) {
	f.Add([]byte{8, 9, 48, 224, 56})
	f.Fuzz(storeScript)
}

func TestIndexFunctionsThatMisbehaveHurtNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		inf := start(t, api, Options[*corev1.Pod]{})
		synced(t, inf)

		boom := errors.New("boom")
		panics, err := AddIndex(inf, func(p *corev1.Pod) []string {
			if p.Name == "bad" {
				panic(boom)
			}
			return []string{"good"}
		})
		require.NoError(t, err)
		nan, err := AddIndex(inf, func(*corev1.Pod) []float64 { return []float64{1, math.NaN()} })
		require.NoError(t, err)
		odd, err := AddIndex(inf, func(p *corev1.Pod) []any {
			if p.Name == "bad" {
				return []any{[]int{1}} // no map takes it
			}
			return []any{nil, "x"}
		})
		require.NoError(t, err)

		api.Create(pod("good"))
		synctest.Wait()
		require.NoError(t, panics.Err())
		api.Create(pod("bad"))
		synctest.Wait()
		require.Equal(t, []string{"bad", "good"}, names(inf), "the objects are there all the same")
		require.Len(t, slices.Collect(panics.Get("good")), 1)
		require.ErrorIs(t, panics.Err(), boom)
		require.ErrorContains(t, panics.Err(), "default/bad")
		require.Empty(t, nan.Values())
		require.ErrorIs(t, nan.Err(), errOddValue)
		require.ElementsMatch(t, []any{nil, "x"}, odd.Values())
		require.Error(t, odd.Err())
		require.Error(t, inf.Health().LastBadObject)
		require.Equal(t, Live, inf.Health().State)

		api.Update("default", "good", func(p *corev1.Pod) { p.Name = "good" })
		api.Delete("default", "good")
		synctest.Wait()
		require.Empty(t, odd.Values())
		require.NoError(t, inf.store.check())
	})
}

func TestIndexLookupsStopWhenAsked(t *testing.T) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	byName, err := AddIndex(inf, func(p *corev1.Pod) []string { return []string{"all"} })
	require.NoError(t, err)
	for i := range 10 {
		p := pod(strconv.Itoa(i))
		inf.store.plan(KeyOf(p), p, nil)
		inf.store.put(KeyOf(p), "", "1", 0, p)
	}
	seen := 0
	for range byName.Get("all") {
		seen++
		break
	}
	for range inf.All() {
		seen++
		break
	}
	require.Equal(t, 2, seen)
	require.Empty(t, slices.Collect(byName.Get("none")))
}

func TestAddIndexNeedsAnInformerAndAFunction(t *testing.T) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	_, err = AddIndex[string](inf, nil)
	require.Error(t, err)
	_, err = AddIndex(nil, func(*corev1.Pod) []string { return nil })
	require.Error(t, err)
}
