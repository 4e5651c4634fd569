package informer

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// labelled is an informer with n pods in its store, whose labels a, b and c have one of a few values or are missing.
func labelled(t testing.TB, n int, random *rand.Rand) *SharedIndexInformer[*corev1.Pod] {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	for i := range n {
		p := pod(strconv.Itoa(i))
		p.Labels = map[string]string{}
		for _, key := range []string{"a", "b", "c"} {
			if value := random.IntN(6); value > 0 {
				p.Labels[key] = strconv.Itoa(value)
			}
		}
		hold(inf, p)
	}
	return inf
}

func TestLabelSelectorsFindWhatAWalkFinds(t *testing.T) {
	inf := labelled(t, 300, rand.New(rand.NewPCG(1, 7)))
	ix, err := AddLabelIndex(inf, "a", "b")
	require.NoError(t, err)
	for _, text := range []string{
		"", "a=1", "a==1,b=2", "a in (1,2,3)", "a in (1,2,3),b in (4,9)", "a!=1", "a", "!a", "c=1", "c=1,a=2",
		"a notin (1,2)", "a=nothing", "a=1,a=2", "a=1,!b,c",
	} {
		selector, err := labels.Parse(text)
		require.NoError(t, err)
		var want []string
		for p := range inf.All() {
			if selector.Matches(labels.Set(p.Labels)) {
				want = append(want, p.Name)
			}
		}
		var got []string
		for p := range ix.Select(selector) {
			got = append(got, p.Name)
		}
		require.ElementsMatch(t, want, got, "%q", text)
	}
	require.Empty(t, slices.Collect(ix.Select(labels.Nothing())))
	require.Len(t, slices.Collect(ix.Select(labels.Everything())), 300)
	for range ix.Select(labels.Everything()) {
		break
	}
}

func TestLabelSelectorsUseTheSmallestBuckets(t *testing.T) {
	inf := labelled(t, 300, rand.New(rand.NewPCG(1, 8)))
	rare := pod("rare")
	rare.Labels = map[string]string{"a": "1", "b": "rare"}
	hold(inf, rare)
	ix, err := AddLabelIndex(inf, "a", "b")
	require.NoError(t, err)
	for text, most := range map[string]int{"a=1,b=rare": 1, "b=rare,c=1": 1, "a in (1),b in (rare,none)": 1,
		"a=none": 0} {
		selector, err := labels.Parse(text)
		require.NoError(t, err)
		require.Len(t, ix.candidates(selector), most, "%q", text)
	}
}

func TestAddLabelIndexNeedsAnInformer(t *testing.T) {
	_, err := AddLabelIndex[*corev1.Pod](nil, "a")
	require.Error(t, err)
}

func TestALabelIndexNeedsKeysThatLabelsCanHave(t *testing.T) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{Name: "pods"})
	require.NoError(t, err)
	for text, keys := range map[string][]string{
		"informer: AddLabelIndex: no label key is given; without one every Select would look at all objects": nil,
		`informer: AddLabelIndex: "" cannot be the key of a label: `: {"app",
			""},
		`informer: AddLabelIndex: "a b" cannot be the key of a label: `:     {"a b"},
		`informer: AddLabelIndex: "app=web" cannot be the key of a label: `: {"app=web", "app"},
	} {
		_, err := AddLabelIndex(inf, keys...)
		require.ErrorContains(t, err, text)
	}
	_, err = AddLabelIndex(inf, "app", "app.kubernetes.io/name")
	require.NoError(t, err)
	_, err = AddLabelIndex[*corev1.Pod](nil, "app")
	require.ErrorContains(t, err, "an index needs an informer")
}

func BenchmarkSelect(b *testing.B) {
	inf := labelled(b, 100_000, rand.New(rand.NewPCG(1, 9)))
	rare := pod("rare")
	rare.Labels = map[string]string{"a": "rare"}
	hold(inf, rare)
	for _, key := range []string{"b", "a"} {
		ix, err := AddLabelIndex(inf, key)
		require.NoError(b, err)
		b.Run("1 of 100000, indexed by "+key, func(b *testing.B) {
			selector := labels.SelectorFromSet(labels.Set{"a": "rare"})
			for b.Loop() {
				for range ix.Select(selector) {
				}
			}
		})
	}
}
