package informer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

// What doc.go says about tests.
func TestWorksWithTheFakeClientset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset(pod("a"))
		pods := clientset.CoreV1().Pods(metav1.NamespaceAll)
		inf, err := New[*corev1.Pod](pods, Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		require.Equal(t, []string{"a"}, names(inf), "%s", inf.Health())

		_, err = clientset.CoreV1().Pods("default").Create(t.Context(), pod("b"), metav1.CreateOptions{})
		require.NoError(t, err)
		changed := pod("a")
		changed.Spec.NodeName = "node-1"
		_, err = clientset.CoreV1().Pods("default").Update(t.Context(), changed, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, names(inf), "%s", inf.Health())
		a, _ := inf.Get(Key{Namespace: "default", Name: "a"})
		require.Equal(t, "node-1", a.Spec.NodeName)
		require.NoError(t, clientset.CoreV1().Pods("default").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		synctest.Wait()
		require.Equal(t, []string{"b"}, names(inf), "%s", inf.Health())
		require.Equal(t, 1, inf.Health().Lists)
	})
}

// A test often begins with nothing. Then the list has no object to show that there are no versions, and the first event
// does.
func TestWorksWithAFakeClientsetThatHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset()
		pods := clientset.CoreV1().Pods(metav1.NamespaceAll)
		inf, err := New[*corev1.Pod](pods, Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		var told []string // a history knows objects by their version
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) { told = append(told, fmt.Sprint(e.Type, " ", e.Key.Name)) },
			HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		require.NoError(t, inf.WaitForSync(t.Context()))
		synctest.Wait() // a fake tells its watches of nothing that was before them

		for _, name := range []string{"a", "b"} {
			_, err = clientset.CoreV1().Pods("default").Create(t.Context(), pod(name), metav1.CreateOptions{})
			require.NoError(t, err)
			synctest.Wait()
			require.Contains(t, told, "Added "+name, "%s", inf.Health())
			require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		}
		require.NoError(t, clientset.CoreV1().Pods("default").Delete(t.Context(), "b", metav1.DeleteOptions{}))
		synctest.Wait()
		require.Equal(t, []string{"Added a", "Added b", "Deleted b"}, told)
		time.Sleep(4 * time.Minute) // no watch is silent for too long yet
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		require.Equal(t, 1, inf.Health().Lists)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"a"}, names(inf))
	})
}

// A server that lists nothing and then breaks the protocol once looks like a fake clientset. Its versions count all the
// same, as soon as there are some; and what has no name either is taken for nothing but a break.
func TestOneEventWithoutAVersionDoesNotStopTheOthers(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			p.Delete("default", "a")
			p.Delete("default", "b")
			run(t, inf)
			synctest.Wait()
			p.Inject(watch.Event{Type: watch.Added, Object: pod("x")})
			synctest.Wait()
			require.Equal(t, Live, inf.Health().State)
			created := p.Create(pod("c"))
			synctest.Wait()
			require.NoError(t, inf.WaitForResourceVersion(t.Context(), metav1.NamespaceAll, created.ResourceVersion))
			require.Equal(t, created.ResourceVersion, inf.ResourceVersion(metav1.NamespaceAll))
			require.Equal(t, 1, inf.Health().Lists)
		})
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			p.Delete("default", "a")
			p.Delete("default", "b")
			run(t, inf)
			synctest.Wait()
			p.Inject(watch.Event{Type: watch.Added, Object: &corev1.Pod{}})
			synctest.Wait()
			require.ErrorIs(t, inf.Health().LastError, wire.ErrViolation)
			healed(t, p, inf, told)
		})
}

// The objects that a fake clientset begins with may have versions, which it never changes.
func TestAStateMayKeepItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pod("a"), pod("b")
		a.ResourceVersion, b.ResourceVersion = "5", "3"
		clientset := fake.NewClientset(a, b)
		pods := clientset.CoreV1().Pods(metav1.NamespaceAll)
		inf, err := New[*corev1.Pod](pods, Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		told := &history{rounds: rounds{}}
		_, err = inf.AddHandler(told.handle, HandlerOptions{})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		told.lines()
		update := func(o *corev1.Pod, node string) {
			o = o.DeepCopy()
			o.Spec.NodeName = node
			_, err := clientset.CoreV1().Pods("default").Update(t.Context(), o, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		for _, node := range []string{"one", "two"} {
			update(a, node)
			synctest.Wait()
			held, _ := inf.Get(KeyOf(a))
			require.Equal(t, "5", held.ResourceVersion)
			require.Equal(t, node, held.Spec.NodeName)
			require.Equal(t, []string{"Updated a"}, told.lines())
			update(a, node)
			synctest.Wait()
			require.Empty(t, told.lines(), "nothing has changed")
		}
		require.Equal(t, 1, inf.Health().Lists)
		update(b, "one") // an event of version 3 after one of version 5: that takes a list
		time.Sleep(time.Minute)
		synctest.Wait()
		held, _ := inf.Get(KeyOf(b))
		require.Equal(t, "one", held.Spec.NodeName)
		require.Equal(t, []string{"Updated b"}, told.lines())
		require.Equal(t, Live, inf.Health().State)
	})
}

// A list takes the word of the versions: it would cost too much to compare all objects each time.
func TestAListDoesNotCompareWhatHasTheSameVersion(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		told.lines()
		changed := p.Objects()[0].DeepCopy()
		changed.Spec.NodeName = "one"
		p.Inject(watch.Event{Type: watch.Modified, Object: changed})
		p.Inject(watch.Event{Type: watch.Modified, Object: p.Objects()[1]})
		synctest.Wait()
		require.Equal(t, []string{"Updated a"}, told.lines(), "the other is the same")
		inf.Relist(metav1.NamespaceAll, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, told.lines())
		told.violations = nil // a version that is used twice is one
		healed(t, p, inf, told)
	})
}

// Where nothing has a version a watch cannot be resumed: what was missed is found by a list.
func TestWithoutVersionsTheEndOfAWatchMeansAList(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			inf.writer.listeners = nil // it knows objects by their version
			p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				list, err := p.podAPI.List(ctx, opts)
				for i := range list.Items {
					list.Items[i].ResourceVersion = ""
				}
				return list, err
			}
			p.onWatch = silence
			run(t, inf)
			synced(t, inf)
			p.Delete("default", "a")
			time.Sleep(20 * time.Minute) // the watchdog ends the watch
			synctest.Wait()
			require.Equal(t, []string{"b"}, names(inf))
		})
}

// Tests set versions by hand, in any order, or leave them out. A fake is not a server that lags: what it creates is
// there.
func TestAFakeMaySetVersionsByHand(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, _ *informerOfPods, _ *history) {
		for range 10 {
			p.Bookmark() // the version of the list is above all that follow
		}
		inf, err := New[*corev1.Pod](frank{p, true}, Options[*corev1.Pod]{})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		p.Inject(watch.Event{Type: watch.Added, Object: podAt("lower", "7")})
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "lower"}, names(inf), "%s", inf.Health())
		p.Inject(watch.Event{Type: watch.Added, Object: podAt("unversioned", "")})
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "lower", "unversioned"}, names(inf), "%s", inf.Health())
		require.Equal(t, Live, inf.Health().State)
		require.Equal(t, 1, inf.Health().Lists)
	})
}

// From a server the same is a state that is over, and the cache does not take it.
func TestAServerMayNotSetVersionsByHand(t *testing.T) {
	for name, o := range map[string]*corev1.Pod{"lower": podAt("lower", "7"), "unversioned": podAt("unversioned", "")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					for range 10 {
						p.Bookmark()
					}
					run(t, inf)
					synctest.Wait()
					p.Inject(watch.Event{Type: watch.Added, Object: o})
					synctest.Wait()
					require.Equal(t, []string{"a", "b"}, names(inf))
					require.ErrorIs(t, inf.Health().LastError, wire.ErrViolation)
					healed(t, p, inf, told)
				})
		})
	}
}
