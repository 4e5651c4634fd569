package informer

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// C1: an event on which the handler panics comes again, with exact waits; meanwhile the others go on.
func TestAPanicIsFollowedByRedelivery(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		var tries []float64
		var well atomic.Bool
		began := time.Now()
		completed := &history{inf: inf, rounds: rounds{}}
		added, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Key.Name == "a" && !well.Load() {
				tries = append(tries, time.Since(began).Seconds())
				panic("not yet")
			}
			completed.handle(e)
		}, HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		<-added.Synced() // the attempt counts
		synctest.Wait()
		require.Equal(t, []string{"Added b initial"}, completed.lines())
		require.Equal(t, 1, added.Pending())

		time.Sleep(20 * time.Second)
		p.Update("default", "a", func(*corev1.Pod) {})
		p.Update("default", "b", func(*corev1.Pod) {})
		p.Update("default", "a", func(*corev1.Pod) {})
		synctest.Wait()
		require.Equal(t, []string{"Updated b"}, completed.lines())
		require.Equal(t, 1, added.Pending(), "what happens meanwhile is merged")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []float64{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111}, tries[:12])
		well.Store(true)
		time.Sleep(lastRetry)
		synctest.Wait()
		require.Equal(t, []string{"Added a initial"}, completed.lines(), "it has never returned from an Added before")
		require.NoError(t, completed.folded(p.Objects()))
		require.NoError(t, completed.err())
		require.Zero(t, added.Pending())
		healed(t, p, inf, told)
	})
}

func TestWhatIsGoneIsNotRedelivered(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		calls := 0
		added, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Key.Name == "a" {
				calls++
				panic("no")
			}
		}, HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		p.Delete("default", "a")
		synctest.Wait()
		require.Zero(t, added.Pending())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, calls)
	})
}

func TestADeletionThatIsNeverTakenIsGivenUp(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		calls := 0
		added, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Type == Deleted {
				calls++
				panic("no")
			}
		}, HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		p.Delete("default", "a")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Equal(t, maxTries+1, calls)
		require.Zero(t, added.Pending())
		healed(t, p, inf, told)
	})
}

// Whatever a handler that panics now and then returns from looks like the history of one that never does.
func TestAHandlerThatPanicsNowAndThenMissesNothing(t *testing.T) {
	for seed := range uint64(20) {
		t.Logf("seed %d", seed)
		bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			random := rand.New(rand.NewPCG(seed, 3))
			completed := &history{inf: inf, rounds: rounds{}}
			chance := rand.New(rand.NewPCG(seed, 4))
			_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
				if chance.IntN(3) == 0 {
					panic("now")
				}
				completed.handle(e)
			}, HandlerOptions{})
			require.NoError(t, err)
			run(t, inf)
			for range 200 {
				name := strconv.Itoa(random.IntN(5))
				_, exists := inf.Get(named(name))
				switch {
				case !exists:
					p.Create(pod(name))
				case random.IntN(3) == 0:
					p.Delete("default", name)
				default:
					p.Update("default", name, func(*corev1.Pod) {})
				}
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			require.NoError(t, completed.err(), fmt.Sprintf("seed %d", seed))
			require.NoError(t, completed.folded(p.Objects()))
			healed(t, p, inf, told)
		})
	}
}
