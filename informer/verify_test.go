package informer

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// lossy lets watches lose the k-th event from now on.
func (p *proxy) lossy(k int) {
	p.set(func() {
		p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := p.podAPI.Watch(ctx, opts)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				k--
				return e, k != -1
			}), nil
		}
	})
}

// Whatever event is lost, the next comparison finds it, says so once, and a list repairs it.
func TestALostEventIsFoundAndRepaired(t *testing.T) {
	script := []func(p *proxy){
		func(p *proxy) { p.Create(pod("c")) },
		func(p *proxy) { p.Update("default", "a", func(*corev1.Pod) {}) },
		func(p *proxy) { p.Delete("default", "b") },
		func(p *proxy) { p.Create(pod("d")) },
	}
	for lost := range len(script) {
		for _, verifies := range []bool{true, false} {
			t.Run(fmt.Sprintf("event %d verifies=%t", lost, verifies), func(t *testing.T) {
				opts := Options[*corev1.Pod]{DisableWatchList: true, PageSize: 2}
				if verifies {
					opts.VerifyEvery = time.Hour
				}
				bubble(t, opts, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					p.NoTimeout = true
					log := &lines{}
					ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.New(log)))
					done := make(chan error, 1)
					p.lossy(lost)
					go func() { done <- inf.Run(ctx) }()
					synctest.Wait()
					for _, step := range script {
						step(p)
					}
					p.Bookmark()
					synctest.Wait()
					require.Error(t, told.folded(p.Objects()), "it has been lost")
					require.Equal(t, Live, inf.Health().State, "and nobody knows")

					for range 90 {
						time.Sleep(time.Minute)
						p.Bookmark() // or the server would be silent, not wrong
					}
					synctest.Wait()
					if verifies {
						require.NoError(t, told.folded(p.Objects()))
						require.Equal(t, 1, inf.Health().Differences)
						alarms := slices.DeleteFunc(log.all(),
							func(l line) bool { return l.message == "Health changed" })
						require.Len(t, alarms, 2, "one for the loss, and one for the recovery")
						require.Contains(t, alarms[0].text, "events must have been lost")
						require.Equal(t, Live, inf.Health().State)
						healed(t, p, inf, told)
					} else {
						require.Error(t, told.folded(p.Objects()), "without the option it stays lost")
					}
					cancel()
					require.NoError(t, <-done)
				})
			})
		}
	}
}

// Changes that are under way, bad objects, and a server that cannot answer are no differences.
func TestVerifyingRaisesNoFalseAlarm(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true, PageSize: 3, VerifyEvery: time.Minute,
		Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
			if strings.HasPrefix(p.Name, "bad") {
				return nil, errBusy
			}
			return p, nil
		}}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		var exact atomic.Int64
		p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
			if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
				if exact.Add(1)%7 == 0 {
					return nil, errExpired
				}
			}
			list, err := p.podAPI.List(ctx, opts)
			time.Sleep(700 * time.Millisecond) // the list is old when it arrives
			return list, err
		}
		p.Create(pod("bad"))
		run(t, inf)
		for i := range 3600 {
			name := fmt.Sprint("p", i*i%11)
			exists := slices.ContainsFunc(p.Objects(), func(o *corev1.Pod) bool { return o.Name == name })
			switch {
			case i%600 == 539:
				p.Cut()
				p.Compact()
			case i%50 == 41: // watches lag behind
				p.Hold()
			case i%50 == 40:
				p.Bookmark()
			case !exists:
				p.Create(pod(name))
			case i%50 == 49:
				p.Release()
			case i%3 == 0:
				p.Delete("default", name)
			default:
				p.Update("default", name, func(*corev1.Pod) {})
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		p.Release()
		time.Sleep(20 * time.Minute) // longer than any watch that was held up
		require.Greater(t, exact.Load(), int64(10))
		require.Zero(t, inf.Health().Differences, "%v", inf.Health())
		p.Delete("default", "bad") // which can never be held
		healed(t, p, inf, told)
	})
}

// An object whose name cannot be read is none that the store can have, or may be any that it has.
func TestVerifyingRaisesNoAlarmForWhatHasNoName(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true, VerifyEvery: time.Minute},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			synctest.Wait()
			nameless := p.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}})
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			require.Zero(t, inf.Health().Differences, "of another object")
			p.Delete("default", nameless.Name)
			p.set(func() {
				p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
					list, err := p.podAPI.List(ctx, opts)
					list.Items[1].Name = ""
					return list, err
				}
			})
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			require.Zero(t, inf.Health().Differences, "of one that it has")
			require.Equal(t, 1, inf.Health().Lists)
			p.set(func() { p.onList = nil })
			healed(t, p, inf, told)
		})
}

// A list may hold no object in place of one, and its objects may panic.
func TestAComparisonSurvivesOddLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		api.Create(pod("a"))
		inf, err := New[*corev1.Pod](laterNil{pointerClient{api}, new(int)},
			Options[*corev1.Pod]{DisableWatchList: true, VerifyEvery: time.Minute})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Zero(t, inf.Health().Differences)
		require.Equal(t, Live, inf.Health().State)
	})
}

// laterNil lists nothing but a nil pointer from the second time on.
type laterNil struct {
	pointerClient
	lists *int
}

func (c laterNil) List(ctx context.Context, opts metav1.ListOptions) (*pointers, error) {
	l, err := c.pointerClient.List(ctx, opts)
	if *c.lists++; *c.lists > 1 && err == nil {
		l.Items = []*corev1.Pod{nil}
	}
	return l, err
}

// Where there are no versions, or only such as cannot be compared, there is nothing to compare, and no harm done.
func TestVerifyingNeedsVersions(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true, VerifyEvery: time.Minute},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			inf.writer.listeners = nil // it knows objects by their version
			p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				list, err := p.podAPI.List(ctx, opts)
				for i := range list.Items {
					list.Items[i].ResourceVersion = ""
				}
				return list, err
			}
			run(t, inf)
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			require.Zero(t, inf.Health().Differences)
			require.NotEqual(t, Failed, inf.Health().State)
		})
}

func TestDurationsThatMakeNoSense(t *testing.T) {
	for text, opts := range map[string]Options[*corev1.Pod]{
		"informer pods: Options.MaxStaleness is -1s; it is at least two minutes, or zero for any age": {
			MaxStaleness: -time.Second},
		"informer pods: Options.MaxStaleness is 1m0s; it is at least two minutes, or zero for any age": {
			MaxStaleness: time.Minute},
		"informer pods: Options.VerifyEvery is -1s; it is at least a minute, or zero for never": {
			VerifyEvery: -time.Second},
		"informer pods: Options.VerifyEvery is 1s; it is at least a minute, or zero for never": {
			VerifyEvery: time.Second},
	} {
		opts.Name = "pods"
		_, err := New[*corev1.Pod](newPodAPI(), opts)
		require.EqualError(t, err, text)
	}
}

// Run does not wait for a comparison.
func TestStopsInTheMiddleOfAComparison(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{VerifyEvery: time.Minute},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			p.onList = func(ctx context.Context, _ metav1.ListOptions) (*corev1.PodList, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
			defer cancel()
			began := time.Now()
			require.NoError(t, inf.Run(ctx))
			require.Equal(t, 70*time.Second, time.Since(began))
		})
}

// What is older than it may be is not vouched for, whatever is the reason.
func TestMaxStaleness(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Name: "pods", MaxStaleness: 3 * time.Minute},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			p.NoTimeout = true
			require.EqualError(t, inf.Fresh(metav1.NamespaceAll), "informer pods: no complete list yet")
			p.onWatch = refuse(errForbidden)
			run(t, inf)
			synctest.Wait()
			require.ErrorIs(t, inf.Fresh(metav1.NamespaceAll), errForbidden)
			p.set(func() { p.onWatch = nil })
			time.Sleep(time.Minute)
			require.NoError(t, inf.Fresh(metav1.NamespaceAll))

			for range 10 {
				time.Sleep(time.Minute)
				p.Bookmark() // idle is not stale (A13)
			}
			synctest.Wait()
			require.NoError(t, inf.Fresh(metav1.NamespaceAll))
			require.Equal(t, Live, inf.Health().State)

			last := time.Now()
			time.Sleep(3 * time.Minute)
			require.NoError(t, inf.Fresh(metav1.NamespaceAll))
			time.Sleep(time.Nanosecond)
			require.ErrorIs(t, inf.Fresh(metav1.NamespaceAll), ErrStale, "silence")
			h := inf.Health()
			require.Equal(t, Stale, h.State)
			require.Equal(t, last.Add(3*time.Minute), h.Since)
			require.ErrorIs(t, h.LastError, ErrStale)
			p.Bookmark()
			synctest.Wait()
			require.NoError(t, inf.Fresh(metav1.NamespaceAll))

			p.set(func() { p.onWatch = refuse(errForbidden) })
			p.Cut()
			time.Sleep(time.Minute)
			require.NoError(t, inf.Fresh(metav1.NamespaceAll), "not yet")
			require.Equal(t, Denied, inf.Health().State)
			time.Sleep(3 * time.Minute)
			require.ErrorIs(t, inf.Fresh(metav1.NamespaceAll), ErrStale)
			require.ErrorIs(t, inf.Fresh(metav1.NamespaceAll), errForbidden, "and why")
			require.Equal(t, Denied, inf.Health().State)
			p.set(func() { p.onWatch = nil })
			time.Sleep(time.Minute)
			p.Bookmark()
			synctest.Wait()
			require.NoError(t, inf.Fresh(metav1.NamespaceAll))
			healed(t, p, inf, told)
		})
}

func TestWithoutMaxStalenessAnyAgeWillDo(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		p.set(func() { p.onWatch = refuse(errBusy) })
		p.Cut()
		time.Sleep(24 * time.Hour)
		require.NoError(t, inf.Fresh(metav1.NamespaceAll))
	})
}
