package informer

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func wanted(p *corev1.Pod) bool { _, ok := p.Labels["wanted"]; return ok }

func onlyWanted(t *testing.T, h Handler[*corev1.Pod]) Handler[*corev1.Pod] {
	t.Helper()
	filtered, err := Filter(wanted, h)
	require.NoError(t, err)
	return filtered
}

func TestFilterTellsOfASmallerWorld(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		few := &history{inf: inf, smaller: true, rounds: rounds{}}
		_, err := inf.AddHandler(onlyWanted(t, few.handle), HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		require.Empty(t, few.lines())
		step := func(expected string, change func()) {
			t.Helper()
			change()
			synctest.Wait()
			require.Equal(t, []string{expected}, few.lines())
			require.NoError(t, few.err())
		}
		want := func(p *corev1.Pod) { p.Labels = map[string]string{"wanted": ""} }
		step("Added a", func() { p.Update("default", "a", want) })
		step("Updated a", func() { p.Update("default", "a", func(*corev1.Pod) {}) })
		step("Deleted a", func() { p.Update("default", "a", func(p *corev1.Pod) { p.Labels = nil }) })
		step("Added c", func() { p.Create(pod("c", "wanted")) })
		// In one go, so that the handler is told of the last state only, which is not wanted: still it must hear that c
		// is gone.
		step("Deleted c", func() {
			p.Update("default", "c", func(p *corev1.Pod) { p.Labels = nil })
			p.Delete("default", "c")
		})
	})
}

func TestFilterKeepsThePromisesOfEvents(t *testing.T) {
	for seed := range uint64(20) {
		t.Logf("seed %d", seed)
		bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			random, chance := rand.New(rand.NewPCG(seed, 5)), rand.New(rand.NewPCG(seed, 6))
			few := &history{inf: inf, smaller: true, rounds: rounds{}}
			_, err := inf.AddHandler(onlyWanted(t, func(e Event[*corev1.Pod]) {
				if chance.IntN(4) == 0 {
					panic("now")
				}
				few.handle(e)
			}), HandlerOptions{})
			require.NoError(t, err)
			run(t, inf)
			for range 200 {
				name := strconv.Itoa(random.IntN(4))
				_, exists := inf.Get(named(name))
				switch {
				case !exists:
					p.Create(pod(name))
				case random.IntN(3) == 0:
					p.Delete("default", name)
				default:
					p.Update("default", name, func(p *corev1.Pod) {
						p.Labels = nil
						if random.IntN(2) == 0 {
							p.Labels = map[string]string{"wanted": ""}
						}
					})
				}
				if random.IntN(2) == 0 {
					time.Sleep(time.Second)
				}
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			require.NoError(t, few.err())
			var left []*corev1.Pod
			for _, o := range p.Objects() {
				if wanted(o) {
					left = append(left, o)
				}
			}
			require.NoError(t, few.folded(left))
		})
	}
}

func TestFilterRefusesWhatIsNil(t *testing.T) {
	handler := func(Event[*corev1.Pod]) {}
	_, err := Filter(nil, handler)
	require.EqualError(t, err, "informer: Filter: the function that says which objects to keep is nil")
	_, err = Filter(wanted, nil)
	require.EqualError(t, err, "informer: Filter: the handler is nil")
}
