package informer

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// Each object has its turn once in a period, a period after the one before, and no moment has to bear many of them.
func TestResyncIsSpreadOverThePeriod(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%t", late), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				for i := range 1000 {
					p.Create(pod(fmt.Sprint("p", i)))
				}
				if late {
					run(t, inf)
					time.Sleep(time.Minute)
				}
				seen := &history{inf: inf, rounds: rounds{}}
				var mu sync.Mutex // the handler is called between one sleep of the test and the next
				at := map[Key][]time.Duration{}
				times := func() map[Key][]time.Duration {
					mu.Lock()
					defer mu.Unlock()
					defer func() { at = map[Key][]time.Duration{} }()
					return at
				}
				const period = turns * time.Second // a turn is a second
				began := time.Now()
				_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
					seen.handle(e)
					mu.Lock()
					defer mu.Unlock()
					if e.Resync {
						at[e.Key] = append(at[e.Key], time.Since(began))
					}
				}, HandlerOptions{Resync: period})
				require.NoError(t, err)
				if !late {
					run(t, inf)
				}
				synctest.Wait()
				require.Empty(t, times())
				time.Sleep(3 * period)
				synctest.Wait()
				require.NoError(t, seen.err())
				first := times()
				require.Len(t, first, 1002)
				moments := map[time.Duration]int{}
				for key, times := range first {
					require.Len(t, times, 3, "%s", key)
					require.Equal(t, []time.Duration{times[0], times[0] + period, times[0] + 2*period}, times)
					moments[times[0]]++
				}
				require.Greater(t, len(moments), turns*9/10, "of 256 moments, each of which has about 4")
				for at, n := range moments {
					require.LessOrEqual(t, at, period)
					require.LessOrEqual(t, n, 30)
				}

				// Nobody else hears of it; what is new waits for the next period, what is gone is not mentioned.
				told.lines()
				p.Delete("default", "a")
				p.Create(pod("new"))
				synctest.Wait()
				time.Sleep(2 * period)
				synctest.Wait()
				again := times()
				require.Contains(t, []int{1, 2}, len(again[named("new")]))
				require.Empty(t, again[named("a")])
				require.Equal(t, []string{"Deleted a", "Added new"}, told.lines())
				require.NoError(t, seen.err())
				require.NoError(t, seen.folded(p.Objects()))
			})
		})
	}
}

// A handler that is behind does not see reminders of the past, and one that panics on them is none the wiser.
func TestResyncKeepsThePromisesOfEvents(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		slow, panics := &history{inf: inf, rounds: rounds{}}, &history{inf: inf, rounds: rounds{}}
		add := func(h Handler[*corev1.Pod], period time.Duration) *Registration {
			added, err := inf.AddHandler(h, HandlerOptions{Resync: period})
			require.NoError(t, err)
			return added
		}
		behind := add(func(e Event[*corev1.Pod]) { slow.handle(e); time.Sleep(2 * time.Second) }, 10*time.Second)
		calls := 0
		add(func(e Event[*corev1.Pod]) {
			if calls++; calls%2 == 0 {
				panic("now")
			}
			panics.handle(e)
		}, time.Minute)
		run(t, inf)
		for i := range 1800 {
			p.Update("default", "a", func(*corev1.Pod) {})
			if i%300 == 299 {
				p.Delete("default", "b")
				p.Create(pod("b"))
			}
			time.Sleep(time.Second)
		}
		require.Positive(t, behind.Merged())
		require.LessOrEqual(t, behind.Pending(), minBuffer)
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, h := range []*history{slow, panics} {
			require.NoError(t, h.err())
			require.NoError(t, h.folded(p.Objects()))
			require.True(t, slices.ContainsFunc(h.all(), func(e Event[*corev1.Pod]) bool { return e.Resync }))
		}
		healed(t, p, inf, told)
	})
}

func TestNothingIsMadeUpForAfterALongSleep(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		var resyncs atomic.Int64
		_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Resync {
				resyncs.Add(1)
			}
		}, HandlerOptions{Resync: time.Minute})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		inf.token <- struct{}{} // a writer that is held up stands for a machine that is
		time.Sleep(time.Hour)
		<-inf.token
		synctest.Wait()
		require.LessOrEqual(t, resyncs.Load(), int64(2))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 2, resyncs.Load())
	})
}

func TestAResyncPeriodHasAFloor(t *testing.T) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{Name: "pods"})
	require.NoError(t, err)
	for _, period := range []time.Duration{-time.Hour, time.Second - 1} {
		_, err = inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{Resync: period})
		require.EqualError(t, err, fmt.Sprintf(
			"informer pods: AddHandler: HandlerOptions.Resync is %s; it is at least 1s, or zero for never", period))
	}
}
