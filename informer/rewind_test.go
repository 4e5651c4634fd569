package informer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A12: within one stream versions rise, or the stream is not believed.
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
				reached := inf.ResourceVersion()

				p.Inject(watch.Event{Type: typ, Object: past})
				synctest.Wait()
				require.ErrorIs(t, inf.Health().LastError, errWentBack)
				require.Empty(t, told.lines())
				require.Equal(t, reached, inf.ResourceVersion())
				time.Sleep(time.Minute)
				require.Equal(t, []string{"LIST", "WATCH"}, p.verbs(), "a plain list has the last word")
				require.Empty(t, told.lines())
				require.Zero(t, inf.Health().Rewinds)
				healed(t, p, inf, told)
			})
		})
	}
}

// A8: after a fail-over, a server that lags by half a minute answers. Nothing of what it says may reach the store.
func TestAServerThatLagsIsNotBelieved(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		lagging := newPodAPI() // the same history, up to here
		lagging.Create(pod("a"))
		lagging.Create(pod("b"))
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

// The same without streams: one list of the past is an accident.
func TestAPlainListOfThePastIsAskedForAgain(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
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

// A7: the server has not got that far yet. It says when to ask again; after three times a plain list decides.
func TestATooLargeVersionIsWaitedFor(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		late := problem(504, metav1.StatusReasonTimeout, 1)
		late.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents != nil {
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
		p.set(func() { p.onWatch = nil })
		p.Compact()
		p.Cut()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"WATCH", "STREAM"}, p.verbs(), "it is not held against the server")
		healed(t, p, inf, told)
	})
}

// A9: the cluster is restored from a backup. The cache follows, and says so.
func TestARestoredClusterIsFollowed(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		bubble(t, Options[*corev1.Pod]{DisableWatchList: !streaming, PageSize: 1}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
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
			time.Sleep(time.Minute)
			p.Bookmark() // a quiet server says so once a minute; its version gives it away
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, 1, inf.Health().Rewinds)
			require.ElementsMatch(t, []string{"Updated a", "Updated b", "Added was deleted", "Deleted was created unknown"}, told.lines())
			require.Equal(t, Live, inf.Health().State)
			healed(t, p, inf, told)
			require.Equal(t, 1, inf.Health().Rewinds)
		})
	}
}

func TestARestoreMayCureWhatWasInvalid(t *testing.T) {
	transform := &picky{}
	bubble(t, Options[*corev1.Pod]{Transform: transform.transform}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		restore := p.Snapshot()
		p.Update("default", "a", spoil)
		synctest.Wait()
		require.Error(t, inf.Invalid(named("a")))
		restore()
		time.Sleep(time.Second)
		p.Bookmark()
		p.Cut()
		p.Compact()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoError(t, inf.Invalid(named("a")))
		healed(t, p, inf, told)
	})
}

func TestVersionsThatAreNoNumbersAreNotCompared(t *testing.T) {
	require.True(t, older("9", "10"))
	require.False(t, older("10", "10"))
	require.False(t, older("11", "10"))
	require.False(t, older("a", "b"))
	require.False(t, older("9", ""))
}
