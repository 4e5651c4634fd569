package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// Within one stream versions rise, or the stream is not believed.
func TestAnEventFromThePastIsNotBelieved(t *testing.T) {
	for _, typ := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
		t.Run(string(typ), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				past := p.Objects()[0]
				run(t, inf)
				p.Update("default", "a", func(*corev1.Pod) {})
				time.Sleep(time.Minute)
				told.lines()
				p.requests()
				reached := inf.ResourceVersion(metav1.NamespaceAll)

				p.Inject(watch.Event{Type: typ, Object: past})
				synctest.Wait()
				require.ErrorIs(t, inf.Health().LastError, errWentBack)
				require.Empty(t, told.lines())
				require.Equal(t, reached, inf.ResourceVersion(metav1.NamespaceAll))
				time.Sleep(time.Minute)
				require.Equal(t, []string{"LIST", "WATCH"}, p.verbs(), "a plain list has the last word")
				require.Empty(t, told.lines())
				require.Zero(t, inf.Health().Rewinds)
				healed(t, p, inf, told)
			})
		})
	}
}

// laggard is a server that has the history of a bubble's up to its beginning.
func laggard() *podAPI {
	lagging := newPodAPI()
	lagging.Create(pod("a"))
	lagging.Create(pod("b"))
	return lagging
}

// streamsOf lets another server stream the lists.
func (p *proxy) streamsOf(other *podAPI) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		if opts.SendInitialEvents != nil {
			return other.Watch(ctx, opts)
		}
		return p.podAPI.Watch(ctx, opts)
	}
}

// After a fail-over, a server that lags by half a minute answers. Nothing of what it says may reach the store.
func TestAServerThatLagsIsNotBelieved(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		lagging := laggard()
		run(t, inf)
		p.Update("default", "a", func(*corev1.Pod) {})
		p.Update("default", "b", func(*corev1.Pod) {})
		synctest.Wait()
		told.lines()

		streams := 0
		p.set(func() {
			p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				if opts.SendInitialEvents != nil {
					streams++
					return lagging.Watch(ctx, opts)
				}
				return p.podAPI.Watch(ctx, opts)
			}
		})
		for relists := range 3 {
			p.Compact()
			p.Cut()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, relists+1, streams, "one look is enough, each time")
			require.Empty(t, told.lines())
		}
		require.Zero(t, inf.Health().Rewinds)
		require.Equal(t, Live, inf.Health().State)
		healed(t, p, inf, told)
	})
}

// A stream that is refused in the end does not make good what an object's present state has been rejected for.
func TestAServerThatLagsLeavesRejectionsAlone(t *testing.T) {
	bad := errors.New("not to my taste")
	taste := func(p *corev1.Pod) (*corev1.Pod, error) {
		if p.Labels["bad"] != "" {
			return nil, bad
		}
		return p, nil
	}
	bubble(t, Options[*corev1.Pod]{Transform: taste}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		lagging := laggard()
		run(t, inf)
		synced(t, inf)
		p.Update("default", "a", func(p *corev1.Pod) { p.Labels = map[string]string{"bad": "very"} })
		synctest.Wait()
		require.ErrorIs(t, inf.Invalid(named("a")), bad)
		p.set(func() {
			p.onWatch = p.streamsOf(lagging)
			p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) { return nil, errBusy }
		})
		p.Compact()
		p.Cut()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, inf.Invalid(named("a")), bad)
	})
}

// What has been deleted does not come back for a moment, nor does an old state, though a stream tells how old it is
// only at its end.
func TestAStreamOfThePastBringsNothingBack(t *testing.T) {
	for name, busy := range map[string]bool{"the store is up to date": false, "the store is behind": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				lagging := laggard()
				run(t, inf)
				synctest.Wait()
				told.lines()
				if busy {
					inf.token <- struct{}{}
				}
				p.Delete("default", "a")
				p.Update("default", "b", func(*corev1.Pod) {})
				latest := p.Update("default", "b", func(*corev1.Pod) {})
				synctest.Wait()
				if !busy {
					told.lines()
				}
				p.set(func() {
					p.onWatch = p.streamsOf(lagging)
					p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
						return nil,
							errBusy
					}
				})
				p.Compact()
				p.Cut()
				time.Sleep(time.Minute)
				synctest.Wait()
				if busy {
					<-inf.token
					synctest.Wait()
					require.Equal(t, []string{"Deleted a", "Updated b"}, slices.Compact(told.lines()))
				}
				require.ErrorIs(t, inf.Health().LastError, errBusy, "it got as far as the plain list")
				require.Empty(t, told.lines())
				require.NoError(t, inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, latest.ResourceVersion))
				b, _ := inf.Get(named("b"))
				require.Equal(t, latest.ResourceVersion, b.ResourceVersion)
				healed(t, p, inf, told)
			})
		})
	}
}

// While a list is streamed, changes come in between. Those of an object that is held back do not overtake it.
func TestEarlyEventsKeepTheirOrder(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		p.Update("default", "a", func(*corev1.Pod) {})
		p.Update("default", "b", func(*corev1.Pod) {}) // version 4
		synctest.Wait()
		a, b := p.Objects()[0], p.Objects()[1]
		told.lines()
		bookmark := podAt("", "8")
		bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		stream := watch.NewRaceFreeFake()
		p.set(func() {
			p.onWatch = func(context.Context, metav1.ListOptions) (watch.Interface, error) { return stream, nil }
		})
		p.Compact()
		inf.Relist(metav1.NamespaceAll, nil)
		synctest.Wait()
		for _, o := range []*corev1.Pod{a, b, podAt("older", "2"), podAt("gone", "3"), podAt("new", "5")} {
			stream.Add(o)
		}
		stream.Modify(podAt("older", "6"))
		stream.Delete(podAt("gone", "7"))
		synctest.Wait()
		require.Equal(t, []string{"Added new"}, told.lines(),
			"only what is newer than the store is told before the end")
		stream.Action(watch.Bookmark, bookmark)
		synctest.Wait()
		// How much of it is merged depends on when the store takes it; the order of each key does not.
		steps := map[string]string{}
		for _, line := range told.lines() {
			what, key, _ := strings.Cut(line, " ")
			steps[key] += what + " "
		}
		require.Contains(t, []string{"Added ", "Added Updated "}, steps["older"])
		require.Contains(t, []string{"", "Added Deleted "}, steps["gone"])
		delete(steps, "older")
		delete(steps, "gone")
		require.Empty(t, steps)
		older, _ := inf.Get(named("older"))
		require.Equal(t, "6", older.ResourceVersion)
		require.Equal(t, []string{"a", "b", "new", "older"}, names(inf))
		require.Empty(t, theListWatch(inf).reflector.early.keys)
	})
}

// What is held back is bounded. A plain list of the same says first how old it is.
func TestEarlyEventsAreBounded(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		for i := range maxEarly + 1 {
			p.Create(pod(fmt.Sprint("pod-", i)))
		}
		p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.LabelSelector = "" // which it does not know
			return p.podAPI.Watch(ctx, opts)
		}
		p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
			opts.LabelSelector = ""
			return p.podAPI.List(ctx, opts)
		}
		run(t, inf)
		synced(t, inf)
		require.NotContains(t, p.verbs(), "LIST", "of a first list nothing is held back")
		for _, o := range p.Objects() {
			p.Update("default", o.Name, func(*corev1.Pod) {})
		}
		synctest.Wait()
		inf.token <- struct{}{}
		for _, o := range p.Objects() {
			p.Update("default", o.Name, func(*corev1.Pod) {})
		}
		synctest.Wait()
		inf.Relist(metav1.NamespaceAll, nil)
		time.Sleep(time.Second)
		require.Contains(t, p.verbs(), "LIST")
		<-inf.token
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		require.Nil(t, inf.Health().LastError)
		require.Empty(t, theListWatch(inf).reflector.early.keys)
		inf.Relist(metav1.NamespaceAll, nil)
		time.Sleep(time.Second)
		require.NotContains(t, p.verbs(), "LIST", "the next one is streamed again")
		healed(t, p, inf, told)
	})
}

// The same without streams: one list of the past is an accident.
func TestAPlainListOfThePastIsAskedForAgain(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			past, err := p.podAPI.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			run(t, inf)
			p.Delete("default", "a")
			synctest.Wait()
			told.lines()
			lists := 0
			p.set(func() {
				p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
					if lists++; lists == 1 {
						return past, nil
					}
					return p.podAPI.List(ctx, opts)
				}
			})
			p.Compact()
			p.Cut()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, 2, lists)
			require.Empty(t, told.lines(), "what was deleted does not come back")
			require.Zero(t, inf.Health().Rewinds)
			healed(t, p, inf, told)
		})
}

// The server has not got that far yet. It says when to ask again; after three times a plain list decides.
func TestATooLargeVersionIsWaitedFor(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		late := problem(504, metav1.StatusReasonTimeout, 1)
		late.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		var states []State // at each request
		p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents != nil {
				states = append(states, inf.Health().State)
				return nil, late
			}
			return p.podAPI.Watch(ctx, opts)
		}
		run(t, inf)
		synced(t, inf)
		synctest.Wait()
		asked := p.requests()
		require.Len(t, asked, 5)
		for i, verb := range []string{"STREAM", "STREAM", "STREAM", "LIST", "WATCH"} {
			require.Equal(t, verb, asked[i].verb)
			if i > 0 && i < 4 {
				require.Greater(t, asked[i].at.Sub(asked[i-1].at), time.Second)
			}
		}
		require.Equal(t, []State{Listing, Listing, Listing}, states, "a server that has just begun answers so, too")
		p.set(func() { p.onWatch = nil })
		p.Compact()
		p.Cut()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"WATCH", "STREAM"}, p.verbs(), "it is not held against the server")
		healed(t, p, inf, told)
	})
}

// The cluster is restored from a backup. The cache follows, and says so.
func TestARestoredClusterIsFollowed(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		bubble(t, Options[*corev1.Pod]{DisableWatchList: !streaming, PageSize: 1},
			func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				run(t, inf)
				p.Create(pod("was deleted"))
				restore := p.Snapshot()
				p.Delete("default", "was deleted")
				p.Create(pod("was created"))
				for range 10 {
					p.Update("default", "a", func(*corev1.Pod) {})
				}
				synctest.Wait()
				told.lines()

				restore()
				p.Update("default", "b", func(*corev1.Pod) {})
				time.Sleep(time.Minute) // in which the watch is silent: it is one of the future
				synctest.Wait()
				require.Equal(t, 1, inf.Health().Rewinds)
				require.ElementsMatch(t, []string{"Updated a", "Updated b", "Added was deleted",
					"Deleted was created unknown"}, told.lines())
				require.Equal(t, Live, inf.Health().State)
				healed(t, p, inf, told)
				require.Equal(t, 1, inf.Health().Rewinds)
			})
	}
}

func TestARestoreMayCureWhatWasInvalid(t *testing.T) {
	transform := &picky{}
	bubble(t, Options[*corev1.Pod]{Transform: transform.transform},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			restore := p.Snapshot()
			p.Update("default", "a", spoil)
			synctest.Wait()
			require.Error(t, inf.Invalid(named("a")))
			restore()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.NoError(t, inf.Invalid(named("a")))
			healed(t, p, inf, told)
		})
}

// What the store holds from before a restore says nothing of what comes after, even if the object could not be taken in
// between.
func TestAnObjectThatIsRepairedAfterARestoreIsTaken(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		for _, held := range []int{0, 1, 9} { // how far the store is ahead; 1: the invalid state has its version
			transform := &picky{}
			bubble(t, Options[*corev1.Pod]{Transform: transform.transform, DisableWatchList: !streaming},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					run(t, inf)
					restore := p.Snapshot()
					for range held {
						p.Update("default", "a", func(*corev1.Pod) {})
					}
					for range 10 - held {
						p.Update("default", "b", func(*corev1.Pod) {})
					}
					synctest.Wait()
					restore()
					p.Update("default", "a", spoil)
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, 1, inf.Health().Rewinds)
					require.Error(t, inf.Invalid(named("a")))
					inf.Relist(metav1.NamespaceAll, nil)
					synctest.Wait()
					require.Equal(t, 2, inf.Len(), "the last good state stays")
					p.Update("default", "a", func(o *corev1.Pod) { o.Annotations = nil })
					synctest.Wait()
					require.NoError(t, inf.Invalid(named("a")))
					healed(t, p, inf, told)
				})
		}
	}
}

// After a restore a version may come a second time, with another state.
func TestAVersionOfBeforeARestoreIsAnotherOne(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		bubble(t, Options[*corev1.Pod]{DisableWatchList: !streaming},
			func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				run(t, inf)
				restore := p.Snapshot()
				move := func(name, node string) *corev1.Pod {
					return p.Update("default", name, func(o *corev1.Pod) { o.Spec.NodeName = node })
				}
				before := move("a", "one")
				move("b", "one")
				time.Sleep(time.Minute)
				told.lines()
				restore()
				after := move("a", "other")
				require.Equal(t, before.ResourceVersion, after.ResourceVersion)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, 1, inf.Health().Rewinds)
				a, _ := inf.Get(named("a"))
				require.Equal(t, "other", a.Spec.NodeName)
				require.ElementsMatch(t, []string{"Updated a", "Updated b"}, told.lines())
				healed(t, p, inf, told)
			})
	}
}

// One small question follows each connection that was lost, and none one that ended when it was asked to, or that was
// never made.
func TestOnlyALostConnectionRaisesTheQuestionOfTheVersion(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{LabelSelector: labels.Everything()},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			time.Sleep(24 * time.Hour)
			p.Create(pod("c"))
			synctest.Wait()
			require.NotContains(t, p.verbs(), "ASK", "each watch ended in time")

			p.Cut()
			time.Sleep(time.Minute)
			asked := p.requests()
			require.Len(t, asked, 2)
			require.Equal(t, []string{"WATCH", "ASK"}, []string{asked[0].verb, asked[1].verb})
			require.Equal(t, metav1.ListOptions{Limit: 1}, asked[1].opts, "the most recent version, and little else")
			time.Sleep(24 * time.Hour)
			require.NotContains(t, p.verbs(), "ASK")

			p.set(func() { p.onWatch = refuse(errBusy) })
			p.Cut()
			time.Sleep(10 * time.Minute)
			require.NotContains(t, p.verbs(), "ASK", "not of a server that refuses the watch")
			p.set(func() { p.onWatch = nil })
			time.Sleep(time.Minute)
			verbs := p.verbs()
			require.Equal(t, []string{"WATCH", "ASK"}, verbs[len(verbs)-2:])

			p.set(func() { p.onWatch = silence })
			p.Cut()
			time.Sleep(15 * time.Minute)
			require.Contains(t, p.verbs(), "ASK", "silence is no orderly end")
			p.set(func() { p.onWatch = nil })
			time.Sleep(15 * time.Minute)
			healed(t, p, inf, told)
		})
}

func TestTheQuestionOfTheVersionMayFail(t *testing.T) {
	late := problem(504, metav1.StatusReasonTimeout, 1)
	late.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, err := range map[string]error{"busy": errBusy,
		"unreachable": &url.Error{Op: "Get", Err: errors.New("connection refused")}, "lagging": late,
		"never answered": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				run(t, inf)
				synctest.Wait()
				p.set(func() {
					p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
						if err == nil {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return nil, err
					}
				})
				p.Cut()
				time.Sleep(patience - time.Minute)
				synctest.Wait()
				require.Equal(t, Stale, inf.Health().State)
				if err == nil {
					require.ErrorIs(t, inf.Health().LastError, errSilent)
				} else {
					require.ErrorIs(t, inf.Health().LastError, err)
				}
				asks := len(slices.DeleteFunc(p.verbs(), func(verb string) bool { return verb != "ASK" }))
				require.Greater(t, asks, 5)
				require.Less(t, asks, 100)
				require.Equal(t, 1, inf.Health().Lists)
				healed(t, p, inf, told)
			})
		})
	}
}

// Who may list only what is selected, of which something cannot be read, is no worse off.
func TestAVersionThatNobodyCanTellToWhoMayNotListTheRest(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{LabelSelector: labels.SelectorFromSet(labels.Set{"app": "web"})},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				opts.LabelSelector = "" // which it does not know
				return p.podAPI.Watch(ctx, opts)
			}
			p.onList = func(_ context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				if opts.LabelSelector == "" {
					return nil, errForbidden
				}
				return nil, problem(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0)
			}
			run(t, inf)
			synced(t, inf)
			p.Cut()
			p.Create(pod("c"))
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			require.Equal(t, []string{"a", "b", "c"}, names(inf))
			require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		})
}

// One object that nobody can read, selected or not, must not stop a cache that otherwise can be followed.
func TestAVersionThatNobodyCanTellDoesNotStopTheWatch(t *testing.T) {
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})
	for name, c := range map[string]struct {
		err      error
		selector labels.Selector
		asks     int // until the watch goes on
	}{
		"any object is broken": {errors.New(
			"json: cannot unmarshal string into Go struct field PodSpec.items.spec.priority of type int32"), selector,
			maxUnanswered + 1},
		"a selected object is broken": {errors.New(
			"json: cannot unmarshal string into Go struct field PodSpec.items.spec.priority of type int32"), nil,
			maxUnanswered},
		"the server cannot read any object": {problem(500, metav1.StatusReasonInternalError, 0), selector,
			maxUnanswered + 1},
		"the server cannot read its selected": {problem(500, metav1.StatusReasonInternalError, 0), nil, maxUnanswered},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{LabelSelector: c.selector},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					unselected := func(opts metav1.ListOptions) metav1.ListOptions {
						opts.LabelSelector = "" // which it does not know
						return opts
					}
					p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						return p.podAPI.Watch(ctx, unselected(opts))
					}
					p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
						if c.selector == nil || opts.LabelSelector == "" {
							return nil, c.err
						}
						return p.podAPI.List(ctx, unselected(opts))
					}
					asks := func() int {
						return len(slices.DeleteFunc(p.verbs(), func(verb string) bool { return verb != "ASK" }))
					}
					run(t, inf)
					synced(t, inf)
					p.Cut()
					p.Create(pod("c"))
					time.Sleep(3 * time.Minute)
					synctest.Wait()
					require.Equal(t, []string{"a", "b", "c"}, names(inf))
					require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
					require.Equal(t, 1, inf.Health().Lists)
					require.Equal(t, c.asks, asks())
					time.Sleep(10 * time.Minute)
					require.Equal(t, c.selector == nil, asks() > 0, "with each watch, until there is an answer")
					if c.selector != nil {
						return
					}

					// A restore is found out late, if it is one, but found out.
					restore := p.Snapshot()
					p.Delete("default", "c")
					synctest.Wait()
					restore()
					time.Sleep(3 * time.Minute)
					synctest.Wait()
					require.Equal(t, []string{"a", "b"}, names(inf), "the watch is one of the future")
					p.set(func() { p.onList = nil })
					time.Sleep(15 * time.Minute)
					synctest.Wait()
					require.Equal(t, []string{"a", "b", "c"}, names(inf))
					require.Equal(t, 1, inf.Health().Rewinds)
					healed(t, p, inf, told)
				})
		})
	}
}

// To find one of the objects that are selected a server may have to look at all of them, so it is asked for any, unless
// that is not allowed.
func TestTheQuestionOfTheVersionIsCheap(t *testing.T) {
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})
	for name, restricted := range map[string]bool{"whoever may list all": false,
		"whoever may list what is selected": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{LabelSelector: selector},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						opts.LabelSelector = "" // which it does not know
						return p.podAPI.Watch(ctx, opts)
					}
					run(t, inf)
					synctest.Wait()
					p.set(func() {
						p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
							if restricted && opts.LabelSelector == "" {
								return nil, errForbidden
							}
							return p.podAPI.List(ctx, opts)
						}
					})
					p.requests()
					p.Cut()
					time.Sleep(time.Minute)
					synctest.Wait()
					asked := slices.DeleteFunc(p.requests(), func(r request) bool { return r.verb != "ASK" })
					require.NotEmpty(t, asked)
					require.Equal(t, metav1.ListOptions{Limit: 1}, asked[0].opts)
					if restricted {
						require.Equal(t, metav1.ListOptions{Limit: 1, LabelSelector: "app=web"}, asked[1].opts)
					}
					require.Equal(t, Live, inf.Health().State)
				})
		})
	}
}

// Whoever may watch, and not list, cannot ask; that has to do.
func TestAWatchGoesOnWhereNobodyMayAsk(t *testing.T) {
	for name, err := range map[string]error{"forbidden": errForbidden,
		"not known": problem(405, metav1.StatusReasonMethodNotAllowed, 0),
		"bad":       problem(400, metav1.StatusReasonBadRequest, 0)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) { return nil, err }
				run(t, inf)
				time.Sleep(time.Minute)
				p.requests()
				p.Cut()
				p.Create(pod("c"))
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, []string{"WATCH", "ASK"}, p.verbs())
				require.Equal(t, Live, inf.Health().State)
				require.Equal(t, 3, inf.Len())
				healed(t, p, inf, told)
			})
		})
	}
}

// Before the store looks, an object is deleted, and the cluster is restored from a backup that has it as the store
// does: what follows the deletion is no repetition.
func TestAnObjectThatARestoreBringsBackIsNotLost(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		held, l := p.Objects()[0], theListWatch(inf)
		state := item[*corev1.Pod]{key: KeyOf(held), uid: held.UID, resourceVersion: held.ResourceVersion, value: held}
		later := state
		later.resourceVersion = "9"
		inf.token <- struct{}{}
		defer func() { <-inf.token }()
		inf.writer.apply(l, []delta[*corev1.Pod]{{item: state, epoch: 1}})
		l.rewound = 2
		inf.writer.apply(l, []delta[*corev1.Pod]{{item: later, deleted: true, epoch: 1}, {item: state, epoch: 2}})
		inf.writer.events = nil // the history is of an informer that runs
		require.Equal(t, []string{"a"}, names(inf))
	})
}
