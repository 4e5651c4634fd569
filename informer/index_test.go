package informer

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// hold puts pods into the store of an informer that does not run.
func hold(inf *SharedIndexInformer[*corev1.Pod], pods ...*corev1.Pod) {
	for _, p := range pods {
		inf.store.Plan(KeyOf(p), p, nil)
		row, _ := inf.store.Find(KeyOf(p))
		inf.store.putLocked(row, item[*corev1.Pod]{key: KeyOf(p), resourceVersion: "1", value: p}, 0)
	}
}

func TestIndexFunctionsThatMisbehaveHurtNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		inf := start(t, api, Options[*corev1.Pod]{})
		synced(t, inf)

		boom := errors.New("boom")
		panics, err := AddIndex(inf, func(p *corev1.Pod, add func(string)) {
			add("good")
			if p.Name == "bad" {
				panic(boom)
			}
		})
		require.NoError(t, err)
		nan, err := AddIndex(inf, func(p *corev1.Pod, add func(float64)) {
			if p.Name == "nan" {
				add(1)
				add(math.NaN())
			}
		})
		require.NoError(t, err)
		odd, err := AddIndex(inf, func(p *corev1.Pod, add func(any)) {
			if p.Name == "odd" {
				add([]int{1}) // no map takes it
				return
			}
			add(nil)
			add("x")
		})
		require.NoError(t, err)

		api.Create(pod("good"))
		synctest.Wait()
		require.NoError(t, panics.Err())
		for _, name := range []string{"bad", "nan", "odd"} {
			api.Create(pod(name))
			synctest.Wait()
			require.Error(t, inf.Invalid(named(name)))
			require.ErrorContains(t, inf.Health().LastBadObject, "default/"+name)
		}
		require.Equal(t, []string{"good"}, names(inf))
		require.Len(t, slices.Collect(panics.Get("good")), 1)
		require.ErrorIs(t, panics.Err(), boom)
		require.ErrorContains(t, panics.Err(), "default/bad")
		require.Empty(t, nan.Values())
		require.ErrorContains(t, nan.Err(), "not equal to itself")
		require.ElementsMatch(t, []any{nil, "x"}, odd.Values())
		require.Error(t, odd.Err())
		require.Equal(t, Live, inf.Health().State)

		api.Update("default", "good", func(p *corev1.Pod) { p.Name = "good" })
		api.Delete("default", "good")
		synctest.Wait()
		require.Empty(t, odd.Values())
	})
}

func TestIndexLookupsStopWhenAsked(t *testing.T) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	byName, err := AddIndex(inf, func(p *corev1.Pod, add func(string)) { add("all") })
	require.NoError(t, err)
	for i := range 10 {
		hold(inf, pod(strconv.Itoa(i)))
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

// That many objects have a key costs a lookup no more than if few did.
func TestIndexHasCopiesNothing(t *testing.T) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	index, err := AddIndex(inf, func(_ *corev1.Pod, add func(string)) { add("all") })
	require.NoError(t, err)
	for i := range 1000 {
		hold(inf, pod(strconv.Itoa(i)))
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { require.True(t, index.Has("all")) }))
}

func TestAddIndexNeedsAnInformerAndAFunction(t *testing.T) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	_, err = AddIndex[string](inf, nil)
	require.Error(t, err)
	_, err = AddIndex(nil, func(*corev1.Pod, func(string)) {})
	require.Error(t, err)
}
