package informer

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// User code that ends its goroutine, as t.FailNow does, ends nothing else: the object that it was called for is to
// blame.
func TestTheInformerOutlivesAnExit(t *testing.T) {
	leave := func(p *corev1.Pod) {
		if p.Name == "bad" {
			runtime.Goexit()
		}
	}
	check := func(t *testing.T, p *proxy, inf *informerOfPods) {
		p.Create(pod("bad"))
		run(t, inf)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		p.Create(pod("c"))
		p.Update("default", "bad", func(*corev1.Pod) {})
		p.Delete("default", "b")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, inf.Health().LastBadObject, lifecycle.ErrExited)
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
	}
	for _, plain := range []bool{true, false} {
		t.Run("transform", func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{
				DisableWatchList: plain,
				Transform:        func(p *corev1.Pod) (*corev1.Pod, error) { leave(p); return p, nil },
			}, func(t *testing.T, p *proxy, inf *informerOfPods, _ *history) {
				check(t, p, inf)
				require.Equal(t, []string{"a", "c"}, names(inf))
				require.ErrorIs(t, inf.Invalid(named("bad")), lifecycle.ErrExited)
			})
		})
	}
	t.Run("projection", func(t *testing.T) {
		bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, _ *informerOfPods, _ *history) {
			inf, err := Project[*corev1.Pod](p, func(p *corev1.Pod) (string, error) { leave(p); return p.Name, nil },
				Options[*corev1.Pod]{})
			require.NoError(t, err)
			p.Create(pod("bad"))
			run(t, inf)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, 2, inf.Len())
			require.ErrorIs(t, inf.Invalid(named("bad")), lifecycle.ErrExited)
		})
	})
}

// A method of the client that ends its goroutine is an error like any other.
func TestTheReflectorOutlivesAClientThatExits(t *testing.T) {
	for _, plain := range []bool{true, false} {
		bubble(t, Options[*corev1.Pod]{DisableWatchList: plain},
			func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList,
					error) {
					runtime.Goexit()
					return nil, nil
				}
				p.onWatch = func(context.Context, metav1.ListOptions) (watch.Interface,
					error) {
					runtime.Goexit()
					return nil, nil
				}
				run(t, inf)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, Failed, inf.Health().State)
				require.ErrorIs(t, inf.Health().LastError, lifecycle.ErrExited)
				_, _, err := inf.Live(t.Context(), named("a"))
				require.ErrorIs(t, err, lifecycle.ErrExited)
				healed(t, p, inf, told)
			})
	}
}
