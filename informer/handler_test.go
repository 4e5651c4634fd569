package informer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

func TestEventTypesHaveNames(t *testing.T) {
	require.Equal(t, "Added Updated Deleted EventType(9)",
		fmt.Sprint(Added, " ", Updated, " ", Deleted, " ", EventType(9)))
}

// Whoever joins is told of what is there, then of what changes, each thing once.
func TestLateHandlersSeeNeitherGapNorRepeat(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", inline), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				run(t, inf)
				changed := make(chan struct{})
				go func() {
					defer close(changed)
					for i := range 300 {
						name := strconv.Itoa(i % 17)
						switch _, err := inf.Get(Key{Namespace: "default", Name: name}); {
						case i < 17:
							p.Create(pod(name))
						case i%5 == 0 && err:
							p.Delete("default", name)
							p.Create(pod(name))
						default:
							p.Update("default", name, func(*corev1.Pod) {})
						}
					}
				}()
				var late []*history
				for range 30 {
					h := &history{inf: inf, rounds: rounds{}}
					added, err := inf.AddHandler(h.handle, HandlerOptions{Inline: inline})
					require.NoError(t, err)
					late = append(late, h)
					defer func() { require.NoError(t, added.Remove(t.Context())) }()
				}
				<-changed
				synctest.Wait()
				for _, h := range late {
					require.NoError(t, h.err())
					require.NoError(t, h.folded(p.Objects()))
				}
				healed(t, p, inf, told)
			})
		})
	}
}

// A handler is synced when it is through with the first list, whatever others are up to.
func TestEachHandlerIsSyncedForItself(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		slow := 0
		slowly, err := inf.AddHandler(func(Event[*corev1.Pod]) { time.Sleep(time.Minute); slow++ },
			HandlerOptions{Name: "slow"})
		require.NoError(t, err)
		quick, err := inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{})
		require.NoError(t, err)
		inline, err := inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		isSynced := func(r *Registration) bool {
			select {
			case <-r.Synced():
				return true
			default:
				return false
			}
		}
		require.False(t, isSynced(quick))
		run(t, inf)
		synctest.Wait()
		require.True(t, inf.HasSynced())
		require.True(t, isSynced(quick))
		require.True(t, isSynced(inline))
		require.False(t, isSynced(slowly))
		require.Equal(t, 2, slowly.Pending(), "one event and the mark wait behind the one that is being handled")

		late, err := inf.AddHandler(func(Event[*corev1.Pod]) { time.Sleep(time.Second) }, HandlerOptions{})
		require.NoError(t, err)
		require.False(t, isSynced(late))
		<-late.Synced()
		<-slowly.Synced()
		require.Equal(t, 2, slow)
	})
}

func TestAHandlerOfAnEmptyListIsSyncedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
		require.NoError(t, err)
		before, err := inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		<-before.Synced()
		after, err := inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		<-after.Synced()
	})
}

func TestARemovedHandlerIsDeafAtOnce(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", inline), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				calls, inside := 0, false
				added, err := inf.AddHandler(func(Event[*corev1.Pod]) {
					inside = true
					time.Sleep(time.Minute)
					calls++
					inside = false
				}, HandlerOptions{Inline: inline})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				began := time.Now()

				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.ErrorIs(t, added.Remove(ctx), context.DeadlineExceeded, "it is being called")
				require.NoError(t, added.Remove(t.Context()))
				require.False(t, inside, "Remove waits for a call that is under way")
				require.Equal(t, time.Minute, time.Since(began))
				p.Create(pod("c"))
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, 1, calls, "what waited was dropped")
				require.Zero(t, added.Pending())
				require.NoError(t, added.Remove(t.Context()), "once more does no harm")
				require.Len(t, inf.writer.listeners, 1, "nothing of it is left")
				healed(t, p, inf, told)
			})
		})
	}
}

func TestAHandlerMayRemoveItself(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", inline), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				calls := 0
				var added *Registration
				added, err := inf.AddHandler(func(Event[*corev1.Pod]) {
					calls++
					if err := added.Remove(ended); err != context.Canceled {
						panic(err)
					}
				}, HandlerOptions{Inline: inline})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				require.NoError(t, added.Remove(t.Context()))
				require.Equal(t, 1, calls, "the second object of the first list, too, comes too late")
				healed(t, p, inf, told)
			})
		})
	}
}

func TestAHandlerMayBeRemovedBeforeRun(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		added, err := inf.AddHandler(func(Event[*corev1.Pod]) { panic("called") }, HandlerOptions{})
		require.NoError(t, err)
		require.NoError(t, added.Remove(t.Context()))
		run(t, inf)
		healed(t, p, inf, told)
	})
}

// In a quiet cluster no event comes along to sweep out who has left.
func TestComingAndGoingLeavesNothingBehind(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		for range 100 {
			added, err := inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{})
			require.NoError(t, err)
			require.NoError(t, added.Remove(t.Context()))
		}
		require.LessOrEqual(t, len(inf.writer.listeners), 2)
	})
}

// A panic of a handler is its own affair.
func TestAPanicOfAHandlerHurtsNobodyElse(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", inline), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				var calls []string
				added, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
					calls = append(calls, e.Key.Name)
					if e.Key.Name == "a" && len(calls) < 3 {
						panic("swordfish")
					}
				}, HandlerOptions{Inline: inline})
				require.NoError(t, err)
				run(t, inf)
				<-added.Synced()
				synctest.Wait()
				require.Equal(t, []string{"a", "b"}, calls[:2])
				healed(t, p, inf, told)
			})
		})
	}
}

// One that is slow holds up nobody, and what waits for it is merged.
func TestASlowHandlerIsBoundedAndHoldsUpNobody(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		release := make(chan struct{})
		slow := &history{inf: inf, rounds: rounds{}}
		added, err := inf.AddHandler(func(e Event[*corev1.Pod]) { <-release; slow.handle(e) }, HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		for i := range 10_000 {
			p.Update("default", "a", func(*corev1.Pod) {})
			if i%100 == 0 {
				synctest.Wait()
				require.LessOrEqual(t, added.Pending(), minBuffer+chunk, "what waits, and what is in hand")
			}
		}
		synctest.Wait()
		require.NoError(t, told.folded(p.Objects()), "the other handler is up to date")
		close(release)
		synctest.Wait()
		require.NoError(t, slow.err())
		require.NoError(t, slow.folded(p.Objects()))
		require.Less(t, len(slow.all()), minBuffer+3)
		healed(t, p, inf, told)
	})
}

// Every trades the bound for the number of events.
func TestEveryMergesNothing(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		release := make(chan struct{})
		all, few := &history{inf: inf, rounds: rounds{}}, &history{inf: inf, rounds: rounds{}}
		every, err := inf.AddHandler(func(e Event[*corev1.Pod]) { <-release; all.handle(e) },
			HandlerOptions{Every: true})
		require.NoError(t, err)
		merging, err := inf.AddHandler(func(e Event[*corev1.Pod]) { <-release; few.handle(e) }, HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		for range 5000 {
			p.Update("default", "a", func(*corev1.Pod) {})
			synctest.Wait()
		}
		require.Equal(t, 5002, every.Pending(), "b, the mark, and each update wait behind the first event")
		require.Zero(t, every.Merged())
		require.Equal(t, 5002, merging.Pending()+merging.Merged(), "whatever is not waiting is counted")
		require.Greater(t, merging.Merged(), 5000-minBuffer)
		close(release)
		synctest.Wait()
		require.Len(t, all.lines(), 5002)
		require.NoError(t, all.err())
		require.NoError(t, few.err())
		require.NoError(t, few.folded(p.Objects()))
		healed(t, p, inf, told)
	})
}

// What the server repeats is no news. Only who asked for every update hears of it.
func TestEveryIsToldOfRepetitions(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", inline), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				all := &history{inf: inf, rounds: rounds{}}
				_, err := inf.AddHandler(all.handle, HandlerOptions{Every: true, Inline: inline})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				all.lines()
				p.Compact()
				p.Cut()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.ElementsMatch(t, []string{"Updated a resync", "Updated b resync"}, all.lines(), "a list")
				p.Inject(watch.Event{Type: watch.Modified, Object: p.Update("default", "a", func(*corev1.Pod) {})})
				synctest.Wait()
				require.Subset(t, []string{"Updated a", "Updated a resync"}, all.lines(), "an event")
				require.NoError(t, all.err())
				require.NotContains(t, told.lines(), "Updated a resync", "nobody else is")
				healed(t, p, inf, told)
			})
		})
	}
}

// Reached is the user's code, too.
func TestAPanicOfReachedHoldsUpNobody(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		log := &lines{}
		var reached []string
		other := &history{inf: inf, rounds: rounds{}}
		_, err := inf.AddHandler(other.handle, HandlerOptions{Name: "counter", Reached: func(_, version string) {
			reached = append(reached, version)
			panic("swordfish")
		}})
		require.NoError(t, err)
		runOn(t, inf, klog.New(log))
		synctest.Wait()
		c := p.Create(pod("c"))
		synctest.Wait()
		require.Len(t, reached, 2)
		require.Equal(t, c.ResourceVersion, reached[1])
		require.Equal(t, Live, inf.Health().State)
		require.NoError(t, other.folded(p.Objects()))
		said := slices.DeleteFunc(log.all(), func(l line) bool { return l.message == "Health changed" })
		require.Len(t, said, 2)
		for _, l := range said {
			require.Equal(t, "HandlerOptions.Reached panicked", l.message)
			require.Equal(t, "counter", l.handler)
			require.Contains(t, l.text, "TestAPanicOfReachedHoldsUpNobody", "where")
			require.NotContains(t, l.text, "swordfish")
		}
		healed(t, p, inf, told)
	})
}

// Whoever shares something with a handler can wait until that has returned for the last time.
func TestDoneTellsOfTheLastCall(t *testing.T) {
	for name, end := range map[string]func(stop func(), added *Registration){
		"removed":     func(_ func(), added *Registration) { _ = added.Remove(ended()) },
		"Run's ended": func(stop func(), _ *Registration) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				calls := 0
				added, err := inf.AddHandler(func(Event[*corev1.Pod]) { time.Sleep(time.Second); calls++ },
					HandlerOptions{})
				require.NoError(t, err)
				stopped := make(chan error, 1)
				go func() { stopped <- inf.Run(ctx) }()
				synctest.Wait()
				end(stop, added)
				synctest.Wait()
				require.False(t, closed(added.Done()), "it is being called")
				<-added.Done()
				require.Equal(t, 1, calls)
				stop()
				require.NoError(t, <-stopped)
			})
		})
	}
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	added, err := inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{})
	require.NoError(t, err)
	require.False(t, closed(added.Done()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, added.Remove(ctx))
	require.True(t, closed(added.Done()), "it has never been called")
}

// ended is the context of somebody who does not wait.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Whoever wants the process to end with a panic gets that, on every path.
func TestCrashOnPanicEndsTheProcess(t *testing.T) {
	paths := map[string]HandlerOptions{
		"own goroutine": {},
		"inline":        {Inline: true},
		"reached":       {Reached: func(_, _ string) { panic("swordfish") }},
	}
	if path := os.Getenv("THERMOSTAT_TEST_CRASH"); path != "" {
		opts := paths[path]
		opts.CrashOnPanic = true
		api := newPodAPI()
		inf := start(t, api, Options[*corev1.Pod]{})
		_, err := inf.AddHandler(func(Event[*corev1.Pod]) { panic("swordfish") }, opts)
		require.NoError(t, err)
		api.Create(pod("a"))
		time.Sleep(inTime)
		return
	}
	for path := range paths {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			again := exec.Command(os.Args[0], "-test.run=^TestCrashOnPanicEndsTheProcess$")
			again.Env = append(os.Environ(), "THERMOSTAT_TEST_CRASH="+path)
			output, err := again.CombinedOutput()
			ended := new(exec.ExitError)
			require.ErrorAs(t, err, &ended, "%s", output)
			require.Equal(t, 2, ended.ExitCode(), "%s", output)
			require.Contains(t, string(output), "panic: swordfish")
		})
	}
}

func TestHandlersMayReadTheCache(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		byName, err := AddIndex(inf, func(o *corev1.Pod, add func(string)) { add(o.Name) })
		require.NoError(t, err)
		found := 0
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) {
			if len(slices.Collect(byName.Get(e.Key.Name))) == 1 && inf.Len() == len(slices.Collect(inf.All())) {
				found++
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		require.Equal(t, 2, found)
	})
}

func TestANilHandlerIsAnError(t *testing.T) {
	inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
	require.NoError(t, err)
	_, err = inf.AddHandler(nil, HandlerOptions{})
	require.ErrorContains(t, err, "the handler is nil")
}

// Remove would wait for the goroutine that it is called on, so an inline handler passes a context that has ended.
func TestAnInlineHandlerMayRemoveAnother(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		var other *Registration
		_, err := inf.AddHandler(func(Event[*corev1.Pod]) {
			if other != nil {
				if err := other.Remove(ended()); err != context.Canceled {
					panic(err)
				}
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		calls := 0
		other, err = inf.AddHandler(func(Event[*corev1.Pod]) { calls++ }, HandlerOptions{Inline: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		require.Zero(t, calls, "it was removed before its turn")
		require.NoError(t, other.Remove(t.Context()))
		healed(t, p, inf, told)
	})
}

// Who does not wait for the call that is under way finds it the last one.
func TestAtMostOneCallIsUnderWayAfterRemove(t *testing.T) {
	for _, inline := range []bool{false, true} {
		for range 200 {
			inf, err := New[*corev1.Pod](newPodAPI(), Options[*corev1.Pod]{})
			require.NoError(t, err)
			run(t, inf)
			var removed atomic.Bool
			var late atomic.Int64
			added, err := inf.AddHandler(func(Event[*corev1.Pod]) {
				if removed.Load() {
					late.Add(1)
				}
			}, HandlerOptions{Inline: inline})
			require.NoError(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = inf.write(func(w *writer[*corev1.Pod]) {
					for i := range 1000 {
						w.events = append(w.events, Event[*corev1.Pod]{Type: Added, Key: named(strconv.Itoa(i))})
					}
					w.tell()
				})
			}()
			_ = added.Remove(ended())
			removed.Store(true)
			<-done
			require.NoError(t, added.Remove(t.Context()))
			require.LessOrEqual(t, late.Load(), int64(1))
		}
	}
}
