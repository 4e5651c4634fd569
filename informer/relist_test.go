package informer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
)

func TestRelistListsWithoutAnybodyNoticing(t *testing.T) {
	for name, opts := range map[string]Options[*corev1.Pod]{"streamed": {}, "paged": {DisableWatchList: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, opts, func(t *testing.T, p *proxy, inf *SharedIndexInformer[*corev1.Pod], told *history) {
				run(t, inf)
				synctest.Wait()
				require.Equal(t, 1, inf.Health().Listed)
				p.requests()
				require.Equal(t, 2, inf.Relist(metav1.NamespaceAll, nil))
				synctest.Wait()
				require.Equal(t, 2, inf.Health().Listed)
				require.Equal(t, 2, inf.Health().Lists)
				require.Equal(t, Live, inf.Health().State)
				require.NoError(t, inf.Health().LastError)
				healed(t, p, inf, told)
			})
		})
	}
}

func TestADoubtedCacheIsStaleUntilItIsListed(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *SharedIndexInformer[*corev1.Pod],
		told *history) {
		run(t, inf)
		synctest.Wait()
		p.Hold()
		doubt := errors.New("it has not seen what it should")
		list := inf.Relist(metav1.NamespaceAll, doubt)
		synctest.Wait()
		require.Equal(t, Stale, inf.Health().State)
		require.ErrorIs(t, inf.Health().LastError, doubt)
		require.Less(t, inf.Health().Listed, list)

		// Who asks while a list is under way gets one that begins later: what the first has read is older than the
		// question.
		require.Equal(t, list+1, inf.Relist(metav1.NamespaceAll, nil))
		p.Release()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State)
		require.Equal(t, list+1, inf.Health().Listed)
		healed(t, p, inf, told)
	})
}

// Whoever compares the version of the cache with one from before a list takes a lower one for that of a cluster which
// has gone back.
func TestAListThatIsCompleteHasItsVersion(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true}, func(t *testing.T, p *proxy, inf *informerOfPods,
		told *history) {
		p.set(func() { p.onWatch = silence })
		const list = 2
		var mu sync.Mutex
		var versions []string // of the cache, at each line that is logged once the list is complete
		runOn(t, inf, klog.New(&lines{each: func() {
			mu.Lock()
			defer mu.Unlock()
			if inf.Health().Listed == list {
				versions = append(versions, inf.ResourceVersion(metav1.NamespaceAll))
			}
		}}))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		created := p.Create(pod("c"))
		p.set(func() { p.onWatch = nil })
		require.Equal(t, list, inf.Relist(metav1.NamespaceAll, errors.New("it has not seen what it should")))
		synctest.Wait()
		mu.Lock()
		seen := versions
		mu.Unlock()
		require.NotEmpty(t, seen)
		for _, version := range seen {
			require.True(t, kube.AtLeast(version, created.ResourceVersion), "%s", version)
		}
		healed(t, p, inf, told)
	})
}

// Those who share a list may have asked for different reasons.
func TestADoubtIsNotLostBehindSomebodyElsesList(t *testing.T) {
	doubt := errors.New("it has not seen what it should")
	for name, doubts := range map[string][]error{"asked before": {nil, doubt}, "asked after": {doubt, nil},
		"both": {errBusy, doubt}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *SharedIndexInformer[*corev1.Pod],
				told *history) {
				run(t, inf)
				synctest.Wait()
				p.set(func() {
					p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						time.Sleep(10 * time.Second)
						return p.podAPI.Watch(ctx, opts)
					}
				})
				list := inf.Relist(metav1.NamespaceAll, nil)
				synctest.Wait()
				for _, doubt := range doubts {
					require.Equal(t, list+1, inf.Relist(metav1.NamespaceAll, doubt), "while that is under way")
				}
				time.Sleep(15 * time.Second)
				synctest.Wait()
				require.Equal(t, list, inf.Health().Listed)
				require.Equal(t, Stale, inf.Health().State)
				require.ErrorIs(t, inf.Health().LastError, doubt)
				time.Sleep(15 * time.Second)
				synctest.Wait()
				require.Equal(t, list+1, inf.Health().Listed)
				require.Equal(t, list+1, inf.Health().Lists)
				require.Equal(t, Live, inf.Health().State)
				p.set(func() { p.onWatch = nil })
				healed(t, p, inf, told)
			})
		})
	}
}

// Nor is it lost behind a list that is due for a reason of its own.
func TestADoubtIsNotLostBehindAListThatIsDue(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *SharedIndexInformer[*corev1.Pod],
		told *history) {
		run(t, inf)
		synctest.Wait()
		p.Compact()
		p.Cut()
		for range 1000 {
			time.Sleep(time.Millisecond)
			if synctest.Wait(); apierrors.IsResourceExpired(inf.Health().LastError) {
				break
			}
		}
		p.Hold()
		doubt := errors.New("it has not seen what it should")
		inf.Relist(metav1.NamespaceAll, doubt)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, inf.Health().Lists)
		require.Equal(t, Stale, inf.Health().State)
		require.ErrorIs(t, inf.Health().LastError, doubt)
		p.Release()
		healed(t, p, inf, told)
		require.Equal(t, 2, inf.Health().Lists, "it is one list for both")
	})
}

// A doubt does not make what is worse look better.
func TestADoubtDoesNotHideThatListsAreDenied(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *SharedIndexInformer[*corev1.Pod],
		told *history) {
		run(t, inf)
		synctest.Wait()
		p.set(func() {
			p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				if opts.SendInitialEvents != nil {
					return nil, errForbidden
				}
				return p.podAPI.Watch(ctx, opts)
			}
		})
		p.Compact()
		p.Cut()
		time.Sleep(time.Minute)
		synctest.Wait()
		denied := inf.Health()
		require.Equal(t, Denied, denied.State)
		for range 100 {
			inf.Relist(metav1.NamespaceAll, errors.New("it has not seen what it should"))
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, Denied, inf.Health().State)
			require.Equal(t, denied.Since, inf.Health().Since)
		}
		healed(t, p, inf, told)
	})
}

// TestRelistWaitsForTheServer asks while nothing is answered: the list comes when something is.
func TestRelistWaitsForTheServer(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *SharedIndexInformer[*corev1.Pod],
		told *history) {
		run(t, inf)
		synctest.Wait()
		p.set(func() {
			p.onWatch = func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, errBusy }
			p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) { return nil, errBusy }
		})
		p.Cut()
		synctest.Wait()
		list := inf.Relist(metav1.NamespaceAll, nil)
		for range 5 {
			require.Equal(t, list, inf.Relist(metav1.NamespaceAll, nil), "they share it")
		}
		time.Sleep(time.Minute)
		require.Less(t, inf.Health().Listed, list)
		p.set(func() { p.onWatch, p.onList = nil, nil })
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, inf.Health().Listed, list)
		healed(t, p, inf, told)
	})
}
