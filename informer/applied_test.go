package informer

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// What an informer says of its cache is what the store has applied, not what has arrived.

// bookmarks sends a bookmark every minute, as a server does, until the test ends.
func bookmarks(t *testing.T, p *proxy) {
	ctx := t.Context()
	go func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
				p.Bookmark()
			}
		}
	}()
}

func TestAStoreThatStandsStillIsNotFresh(t *testing.T) {
	for _, maxStaleness := range []time.Duration{5 * time.Minute, 0} {
		bubble(t, Options[*corev1.Pod]{MaxStaleness: maxStaleness},
			func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				blocked := make(chan struct{})
				_, err := AddIndex(inf, func(p *corev1.Pod, _ func(string)) {
					if p.Name == "c" {
						<-blocked
					}
				})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				bookmarks(t, p)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.NoError(t, inf.Fresh(metav1.NamespaceAll))
				p.Create(pod("c"))
				stopped := time.Now()
				time.Sleep(time.Hour)
				synctest.Wait()
				require.ErrorIs(t, inf.Fresh(metav1.NamespaceAll), errStuck)
				require.Less(t, time.Since(stopped)-time.Since(inf.Health().LastProgress), time.Second,
					"bookmarks arrive, and the store has none of them")
				close(blocked)
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				require.NoError(t, inf.Fresh(metav1.NamespaceAll))
				require.Less(t, time.Since(inf.Health().LastProgress), 2*time.Minute)
				healed(t, p, inf, told)
			})
	}
}

func TestAListThatFailsOnItsSecondPageIsNoProgress(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true, PageSize: 2, MaxStaleness: 10 * time.Minute},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			p.Create(pod("c"))
			p.Create(pod("d"))
			run(t, inf)
			synctest.Wait()
			p.set(func() {
				p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
					if opts.Continue != "" {
						return nil, errBusy
					}
					return p.podAPI.List(ctx, opts)
				}
			})
			p.Hold()
			p.Delete("default", "d")
			p.Compact()
			p.Cut()
			p.Release()
			lost := time.Now()
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			require.ErrorIs(t, inf.Fresh(metav1.NamespaceAll), ErrStale)
			require.ErrorIs(t, inf.Fresh(metav1.NamespaceAll), errBusy)
			require.False(t, inf.Health().LastProgress.After(lost))
			healed(t, p, inf, told)
		})
}

func TestACacheWhoseRunHasEndedIsNotFresh(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- inf.Run(ctx) }()
		synced(t, inf)
		require.NoError(t, inf.Fresh(metav1.NamespaceAll))
		cancel()
		require.NoError(t, <-done)
		require.ErrorIs(t, inf.Fresh(metav1.NamespaceAll), ErrStopped)
	})
}

func TestATransformThatHangsInARetryIsSeen(t *testing.T) {
	blocked, tries := make(chan struct{}), 0
	bubble(t, Options[*corev1.Pod]{Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
		if p.Name == "c" {
			if tries++; tries == 2 {
				<-blocked
			}
			return nil, errors.New("not yet")
		}
		return p, nil
	}}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		blocked = make(chan struct{}) // of this bubble
		run(t, inf)
		synctest.Wait()
		p.Create(pod("c"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, 2, tries)
		require.Equal(t, Stale, inf.Health().State)
		require.ErrorContains(t, inf.Health().LastError, "Options.Transform")
		require.ErrorIs(t, inf.Fresh(metav1.NamespaceAll), errStuck)
		close(blocked)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State)
	})
}

func TestACacheIsLiveWhenItsStoreHasTheList(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		blocked := make(chan struct{})
		_, err := inf.AddHandler(func(Event[*corev1.Pod]) { <-blocked }, HandlerOptions{Inline: true})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, Listing, inf.Health().State)
		require.Zero(t, inf.Health().Listed)
		require.Zero(t, inf.Health().LastProgress)
		close(blocked)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State)

		blocked = make(chan struct{})
		p.Update("default", "a", func(*corev1.Pod) {})
		synctest.Wait()
		doubt := errors.New("it has not seen what it should")
		list := inf.Relist(metav1.NamespaceAll, doubt)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, list, inf.Health().Lists)
		require.Less(t, inf.Health().Listed, list)
		require.Equal(t, Stale, inf.Health().State, "the list has come, and the store does not have it")
		require.ErrorIs(t, inf.Health().LastError, doubt)
		close(blocked)
		synctest.Wait()
		require.Equal(t, list, inf.Health().Listed)
		require.Equal(t, Live, inf.Health().State)
		healed(t, p, inf, told)
	})
}

// TestADeadConnectionIsFoundWithinTwoBookmarks of a server that sends one every minute.
func TestADeadConnectionIsFoundWithinTwoBookmarks(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		for range 10 {
			time.Sleep(time.Minute)
			p.Bookmark()
		}
		p.set(func() { p.onWatch = refuse(errors.New("no route to host")) })
		p.Hold() // half open: nothing comes, and nobody says so
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		require.Equal(t, Stale, inf.Health().State)
		p.Release()
		p.Cut()
		healed(t, p, inf, told)
	})
}

// TestNoDeadConnectionIsFoundLate, however many follow each other.
func TestNoDeadConnectionIsFoundLate(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		for range 10 {
			time.Sleep(time.Minute)
			p.Bookmark()
		}
		for range 2 {
			p.requests()
			p.Hold()
			time.Sleep(twoBookmarks + time.Second)
			synctest.Wait()
			require.Contains(t, p.verbs(), "WATCH")
		}
		p.Release()
		p.Cut()
		healed(t, p, inf, told)
	})
}

// TestABookmarkEarlyInEachWatchIsNoPromise of another.
func TestABookmarkEarlyInEachWatchIsNoPromise(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := p.podAPI.Watch(ctx, opts)
			time.AfterFunc(50*time.Second, p.Bookmark)
			return w, err
		}
		run(t, inf)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Less(t, len(p.requests()), 24*12+10, "a watch lives for 5 minutes at least")
		p.set(func() { p.onWatch = nil })
		time.Sleep(time.Minute)
		healed(t, p, inf, told)
	})
}

// TestAServerThatStopsSendingBookmarksIsLeftInPeace: that it sent some once costs three watches, and a list because two
// of them have brought nothing.
func TestAServerThatStopsSendingBookmarksIsLeftInPeace(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		time.Sleep(time.Minute)
		p.Bookmark()
		synctest.Wait()
		p.requests()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		asked := p.verbs()
		require.Equal(t, 2, inf.Health().Lists)
		require.Less(t, len(asked), 2*24*12, "a watch lives for 5 minutes at least, and may be followed by a look")
		require.Equal(t, Live, inf.Health().State)

		p.NoTimeout = true // now its watches live for as long as they like, with a bookmark every 5 minutes
		p.Cut()
		time.Sleep(2 * twoBookmarks)
		p.Bookmark()
		synctest.Wait()
		p.requests()
		for range 10 {
			time.Sleep(4 * time.Minute)
			synctest.Wait()
			require.NotEqual(t, Stale, inf.Health().State)
			time.Sleep(time.Minute)
			p.Bookmark()
		}
		require.Empty(t, p.verbs())
		healed(t, p, inf, told)
	})
}

func TestAHandlerThatDoesNotReturnIsNamed(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		blocked := make(chan struct{})
		added, err := inf.AddHandler(func(Event[*corev1.Pod]) { <-blocked }, HandlerOptions{Name: "slow"})
		require.NoError(t, err)
		log := &lines{}
		runOn(t, inf, klog.New(log))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.NoError(t, inf.Health().StuckHandler)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.ErrorIs(t, inf.Health().StuckHandler, errStuck)
		require.ErrorContains(t, inf.Health().StuckHandler, "handler slow")
		require.Equal(t, Live, inf.Health().State, "the cache itself is well")
		require.NoError(t, inf.Fresh(metav1.NamespaceAll))
		require.NotEmpty(t, log.all())
		close(blocked)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.NoError(t, inf.Health().StuckHandler)

		blocked = make(chan struct{})
		p.Update("default", "a", func(*corev1.Pod) {})
		time.Sleep(5 * time.Minute)
		require.Error(t, inf.Health().StuckHandler)
		require.Error(t, added.Remove(ended()))
		close(blocked)
		synctest.Wait()
		require.NoError(t, inf.Health().StuckHandler, "it has gone")
		healed(t, p, inf, told)
	})
}

// TestAWatchThatCannotBeHadLeadsToAList: whatever the server has against the watch, the cache learns what is there.
func TestAWatchThatCannotBeHadLeadsToAList(t *testing.T) {
	for name, refusal := range map[string]error{
		"400": problem(http.StatusBadRequest, metav1.StatusReasonBadRequest, 0),
		"405": problem(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, 0),
		"422": problem(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, 0),
		"500": problem(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0),
		"504": problem(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0),
	} {
		for _, inStream := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
					func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
						run(t, inf)
						synctest.Wait()
						bad := inf.ResourceVersion(metav1.NamespaceAll)
						refused := refuse(refusal)
						if inStream {
							refused = func(context.Context, metav1.ListOptions) (watch.Interface, error) {
								w := watch.NewRaceFreeFake()
								status := refusal.(interface{ Status() metav1.Status }).Status()
								w.Error(&status)
								return w, nil
							}
						}
						p.set(func() {
							p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
								if opts.ResourceVersion == bad {
									return refused(ctx, opts)
								}
								return p.podAPI.Watch(ctx, opts)
							}
						})
						p.requests()
						p.Cut()
						synctest.Wait()
						p.Create(pod("c"))
						time.Sleep(time.Minute)
						synctest.Wait()
						require.Equal(t, []string{"a", "b", "c"}, names(inf))
						require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
						require.Equal(t, 2, inf.Health().Lists)

						// Now no watch at all can be had.
						p.set(func() { p.onWatch = refused })
						p.Cut()
						p.Create(pod("d"))
						p.requests()
						time.Sleep(24 * time.Hour)
						synctest.Wait()
						require.Equal(t, []string{"a", "b", "c", "d"}, names(inf))
						require.Equal(t, Failed, inf.Health().State)
						require.ErrorContains(t, inf.Health().LastError, "cannot be watched")
						require.ErrorContains(t, inf.Health().LastError,
							refusal.(interface{ Status() metav1.Status }).Status().Message)
						lists := 0
						for _, r := range p.requests() {
							if r.verb == "LIST" {
								lists++
							}
						}
						require.Less(t, lists, 24*60/2, "the pauses grow")
						require.Greater(t, lists, 24*60/6)
						time.Sleep(6 * time.Minute)
						p.Delete("default", "d")
						time.Sleep(6 * time.Minute)
						synctest.Wait()
						require.Equal(t, []string{"a", "b", "c"}, names(inf), "it is as old as the latest list")
						p.set(func() { p.onWatch = nil })
						time.Sleep(lastRetry)
						healed(t, p, inf, told)
					})
			})
		}
	}
}

// TestAnOverloadedServerIsNoError: that a streamed list is slow to begin is a reason to ask in another way.
func TestAnOverloadedServerIsNoError(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents != nil {
				return silence(ctx, opts)
			}
			return p.podAPI.Watch(ctx, opts)
		}
		log := &lines{}
		runOn(t, inf, klog.New(log))
		time.Sleep(streamTries*streamBegins + time.Minute)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State)
		require.NoError(t, inf.Health().LastError)
		for _, l := range log.all() {
			require.False(t, l.isError, l.message)
		}
		healed(t, p, inf, told)
	})
}

// TestADoubtIsShownAtOnce, and until the store has a list that began after it, whatever the reflector is busy with.
func TestADoubtIsShownAtOnce(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			synctest.Wait()
			p.set(func() {
				p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
					time.Sleep(time.Minute)
					return p.podAPI.List(ctx, opts)
				}
			})
			inf.Relist(metav1.NamespaceAll, nil)
			synctest.Wait()
			doubt := errors.New("it has not seen what it should")
			list := inf.Relist(metav1.NamespaceAll, doubt)
			require.Equal(t, Stale, inf.Health().State)
			require.ErrorIs(t, inf.Health().LastError, doubt)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, list-1, inf.Health().Listed)
			require.Equal(t, Stale, inf.Health().State, "that list began before")
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, list, inf.Health().Listed)
			require.Equal(t, Live, inf.Health().State)
			p.set(func() { p.onList = nil })
			healed(t, p, inf, told)
		})
}

// TestAStoreThatMovesSlowlyIsNotStuck: only a single call may be too long.
func TestAStoreThatMovesSlowlyIsNotStuck(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			log := &lines{}
			for i := range 300 {
				p.Create(pod(strconv.Itoa(i)))
			}
			_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
				if e.Type == Deleted {
					time.Sleep(time.Minute)
				}
			}, HandlerOptions{Inline: true})
			require.NoError(t, err)
			runOn(t, inf, klog.New(log))
			synctest.Wait()
			p.Hold()
			for i := range 300 {
				p.Delete("default", strconv.Itoa(i))
			}
			inf.Relist(metav1.NamespaceAll, nil)
			p.Release()
			time.Sleep(6 * time.Hour)
			synctest.Wait()
			for _, l := range log.all() {
				require.NotContains(t, l.text, errStuck.Error())
			}
			healed(t, p, inf, told)
		})
}

// TestAHandlerThatHasLeftIsNotNamed, though it was found stuck at that moment.
func TestAHandlerThatHasLeftIsNotNamed(t *testing.T) {
	var p pulse
	var now Health
	h, ended := &health{}, make(chan struct{})
	h.handlerStuck(&p, ended, errStuck)
	h.count(&now)
	require.ErrorIs(t, now.StuckHandler, errStuck)
	close(ended)
	h.handlerStuck(&p, ended, nil)
	h.handlerStuck(&p, ended, errStuck)
	now = Health{}
	h.count(&now)
	require.NoError(t, now.StuckHandler)
}

// TestTheTimeOfRetriesIsNotTheServersSilence: the transform of many objects takes as long as a dead connection.
func TestTheTimeOfRetriesIsNotTheServersSilence(t *testing.T) {
	var slow atomic.Bool
	bubble(t, Options[*corev1.Pod]{Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
		if p.Name != "a" {
			return p, nil
		}
		if slow.Load() {
			time.Sleep(twoBookmarks - 30*time.Second)
		}
		return nil, errPicky
	}}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		p.NoTimeout = true
		run(t, inf)
		synctest.Wait()
		for range 3 {
			time.Sleep(time.Minute)
			p.Bookmark()
		}
		synctest.Wait()
		slow.Store(true)
		p.requests()
		time.Sleep(twoBookmarks + time.Minute) // a retry begins before two bookmarks are due, and ends after
		synctest.Wait()
		require.Empty(t, p.requests())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotEmpty(t, p.requests(), "the silence counts on")
		told.violations = nil
	})
}
