package informer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// What a handler may do instead of returning: it is all the same.
var failures = map[string]func(){
	"panic":  func() { panic("not yet") },
	"goexit": runtime.Goexit, // as t.FailNow does
}

// An event on which the handler panics comes again, with exact waits; meanwhile the others go on.
func TestAPanicIsFollowedByRedelivery(t *testing.T) {
	for how, fail := range failures {
		t.Run(how, func(t *testing.T) { testRedelivery(t, fail) })
	}
}

func testRedelivery(t *testing.T, fail func()) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		var tries []float64
		var well atomic.Bool
		began := time.Now()
		completed := &history{inf: inf, rounds: rounds{}}
		added, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Key.Name == "a" && !well.Load() {
				tries = append(tries, time.Since(began).Seconds())
				fail()
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
	for how, fail := range failures {
		t.Run(how, func(t *testing.T) { testGivingUp(t, fail) })
	}
}

func testGivingUp(t *testing.T, fail func()) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		calls := 0
		added, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Type == Deleted {
				calls++
				fail()
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

// The tries of what was owed before are not the deletion's.
func TestADeletionHasItsOwnTries(t *testing.T) {
	for _, before := range []time.Duration{0, 10 * time.Minute, time.Hour} {
		t.Run(before.String(), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				calls := 0
				added, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
					if e.Type == Deleted {
						calls++
					}
					if e.Type != Added {
						panic("no")
					}
				}, HandlerOptions{})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				p.Update("default", "a", func(*corev1.Pod) {})
				time.Sleep(before)
				synctest.Wait()
				p.Delete("default", "a")
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				require.Equal(t, maxTries+1, calls)
				require.Zero(t, added.Pending())
				healed(t, p, inf, told)
			})
		})
	}
}

// What is owed is no reason to go on after the end, or for somebody who does not listen any more.
func TestRedeliveryEndsWithItsInformer(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		const owed = 100
		for i := range owed - 2 { // a and b are there
			p.Create(pod(strconv.Itoa(i)))
		}
		calls := 0
		_, err := inf.AddHandler(func(Event[*corev1.Pod]) {
			if calls++; calls <= owed {
				panic("first")
			}
			time.Sleep(time.Second)
		}, HandlerOptions{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), klog.Logger{}), 2500*time.Millisecond)
		defer cancel()
		began := time.Now()
		require.NoError(t, inf.Run(ctx))
		require.Equal(t, 3*time.Second, time.Since(began), "the call that was under way")
		require.Equal(t, owed+2, calls)
	})
}

func TestWhoRemovesItselfIsOwedNothing(t *testing.T) {
	for name, owed := range map[string]func(p *proxy){
		"of other keys": func(p *proxy) {
			p.Update("default", "a", func(*corev1.Pod) {})
			p.Update("default", "b", func(*corev1.Pod) {})
		},
		"of the same key": func(p *proxy) { p.Delete("default", "a"); p.Create(pod("a")) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				var added *Registration
				panics := 2
				var calls atomic.Int32
				added, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
					switch {
					case e.Initial:
					case panics > 0:
						panics--
						panic("first")
					default:
						calls.Add(1)
						require.ErrorIs(t, added.Remove(ended), context.Canceled)
					}
				}, HandlerOptions{})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				owed(p)
				synctest.Wait()
				require.Zero(t, calls.Load())
				time.Sleep(time.Hour)
				synctest.Wait()
				require.EqualValues(t, 1, calls.Load())
			})
		})
	}
}

// A handler that is busy is called with what it owes in between; what comes after is dropped, too.
func TestWhoRemovesItselfInRedeliveryIsDeafToWhatWaits(t *testing.T) {
	owing, calls := true, 0
	var l *listener[int]
	l = newListener(func(e Event[int]) {
		if calls++; owing {
			panic("first")
		}
		l.remove()
	}, HandlerOptions{})
	synctest.Test(t, func(t *testing.T) {
		l.retries = newRetries[int]() // its timer is of this time
		l.hand = []Event[int]{{Type: Added, Key: named("a")}}
		l.work(t.Context(), klog.Logger{})
		owing = false
		time.Sleep(time.Minute)
		l.hand = []Event[int]{{Type: Added, Key: named("b")}}
		l.work(t.Context(), klog.Logger{})
		require.Equal(t, 2, calls)
	})
}

// Whatever a handler that panics now and then returns from looks like the history of one that never does.
func TestAHandlerThatPanicsNowAndThenMissesNothing(t *testing.T) {
	for how, fail := range failures {
		t.Run(how, func(t *testing.T) { testNowAndThen(t, fail) })
	}
}

func testNowAndThen(t *testing.T, fail func()) {
	for seed := range uint64(20) {
		t.Logf("seed %d", seed)
		bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			random := rand.New(rand.NewPCG(seed, 3))
			completed := &history{inf: inf, rounds: rounds{}}
			chance := rand.New(rand.NewPCG(seed, 4))
			_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
				if chance.IntN(3) == 0 {
					fail()
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

// One who would rather crash has nothing delivered again, and runtime.Goexit is no crash.
func TestWhoCrashesOnPanicGoesOnAfterAnExit(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		var seen []string
		added, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if seen = append(seen, e.Type.String()+" "+e.Key.Name); e.Key.Name == "a" {
				runtime.Goexit()
			}
		}, HandlerOptions{CrashOnPanic: true})
		require.NoError(t, err)
		run(t, inf)
		<-added.Synced()
		p.Update("default", "a", func(*corev1.Pod) {})
		synctest.Wait()
		p.Update("default", "b", func(*corev1.Pod) {})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.ElementsMatch(t, []string{"Added a", "Added b"}, seen[:2])
		require.Equal(t, []string{"Updated a", "Updated b"}, seen[2:])
		require.Zero(t, added.Pending())
		healed(t, p, inf, told)
	})
}

// An inline handler that ends its goroutine is treated as if it had panicked: everybody else is told what follows.
func TestAnInlineHandlerMayEndItsGoroutine(t *testing.T) {
	for how, fail := range failures {
		t.Run(how, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				for i := range 2*chunk + 10 {
					p.Create(pod(strconv.Itoa(i)))
				}
				names, err := AddIndex(inf, func(p *corev1.Pod, add func(string)) { add(p.Name) })
				require.NoError(t, err)
				seen, resyncs, reached := 0, 0, 0
				_, err = inf.AddHandler(func(e Event[*corev1.Pod]) {
					if e.Resync {
						resyncs++
					} else {
						seen++
					}
					fail()
				}, HandlerOptions{Inline: true, Resync: time.Hour, Reached: func(string, string) {
					reached++
					panic("not yet")
				}})
				require.NoError(t, err)
				last := &history{inf: inf, rounds: rounds{}}
				_, err = inf.AddHandler(last.handle, HandlerOptions{Inline: true})
				require.NoError(t, err)
				run(t, inf)
				require.NoError(t, inf.WaitForSync(t.Context()))
				synctest.Wait()
				require.Equal(t, 2*chunk+12, seen)
				require.Positive(t, reached)
				require.NoError(t, last.folded(p.Objects()))
				require.Len(t, slices.Collect(names.Get("7")), 1)

				time.Sleep(time.Hour + time.Second)
				synctest.Wait()
				require.GreaterOrEqual(t, resyncs, 2*chunk+12)
				p.Update("default", "7", func(*corev1.Pod) {})
				p.Delete("default", "8")
				synctest.Wait()
				require.Equal(t, 2*chunk+14, seen)
				require.Empty(t, slices.Collect(names.Get("8")))
				require.NoError(t, last.folded(p.Objects()))
				require.NoError(t, last.err())
				healed(t, p, inf, told)
			})
		})
	}
}
