package informer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// behindTheStore runs fn while the store does not look at what comes in, because an inline handler keeps it busy with
// what comes of the pod "busy".
func behindTheStore(t *testing.T, p *proxy, inf *informerOfPods, fn func()) {
	t.Helper()
	free := make(chan struct{})
	_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
		if e.Key.Name == "busy" {
			<-free
		}
	}, HandlerOptions{Inline: true})
	require.NoError(t, err)
	p.Create(pod("busy"))
	synctest.Wait()
	fn()
	close(free)
	time.Sleep(time.Second)
	synctest.Wait()
}

// relist takes the watch away and lets the informer list.
func relist(t *testing.T, p *proxy) {
	t.Helper()
	p.requests()
	p.Compact()
	p.Cut()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Contains(t, p.verbs(), "LIST")
}

// kubernetes/kubernetes#115620: an object's ADDED waits for the store; its DELETED is lost in a gap; the list that
// follows does not hold it, and neither does the store. It must not be left over.
func TestAListForgetsWhatCameAndWentBeforeTheStoreLooked(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			synctest.Wait()
			told.lines()
			behindTheStore(t, p, inf, func() {
				p.Create(pod("brief"))
				synctest.Wait()
				p.set(func() { p.onWatch = refuse(errBusy) })
				p.Cut()
				synctest.Wait()
				p.Delete("default", "brief")
				p.set(func() { p.onWatch = nil })
				relist(t, p)
			})
			require.Equal(t, []string{"a", "b", "busy"}, names(inf))
			require.NoError(t, told.folded(p.Objects()))
			healed(t, p, inf, told)
		})
}

// kubernetes/kubernetes#83810: an object's DELETED waits for the store; the list that follows holds a new object of
// that name. It must not be taken for the one that is gone, nor go with it.
func TestAListBringsBackWhatTheStoreHasYetToDelete(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			synctest.Wait()
			told.lines()
			behindTheStore(t, p, inf, func() {
				p.Delete("default", "a")
				synctest.Wait()
				p.set(func() { p.onWatch = refuse(errBusy) })
				p.Cut()
				synctest.Wait()
				p.Create(pod("a"))
				p.set(func() { p.onWatch = nil })
				relist(t, p)
			})
			require.Equal(t, []string{"Added busy", "Deleted a", "Added a"}, told.lines())
			require.Equal(t, []string{"a", "b", "busy"}, names(inf))
			healed(t, p, inf, told)
		})
}

// What a watch repeats of an object whose newer state waits for the store is old, though the store does not know that
// yet.
func TestWhatIsRepeatedDoesNotPassWhatWaits(t *testing.T) {
	for name, waiting := range map[string]int{"in one go": 0, "on its way to the store": 2 * chunk} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					run(t, inf)
					synctest.Wait()
					first := p.Objects()
					turn := make(chan struct{})
					_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
						if e.Key.Name == "busy" {
							<-turn
						}
					}, HandlerOptions{Inline: true})
					require.NoError(t, err)
					p.Create(pod("busy"))
					synctest.Wait()
					if waiting > 0 {
						p.Update("default", "busy", func(*corev1.Pod) {})
					}
					for i := range waiting {
						p.Create(pod(fmt.Sprint("pod-", i)))
					}
					p.Delete("default", "a")
					p.Update("default", "b", func(o *corev1.Pod) { o.Spec.NodeName = "one" })
					synctest.Wait()
					if waiting > 0 {
						turn <- struct{}{} // the next batch has begun
						synctest.Wait()
					}
					for _, o := range first {
						p.Inject(watch.Event{Type: watch.Modified, Object: o})
					}
					synctest.Wait()
					close(turn)
					time.Sleep(time.Minute)
					synctest.Wait()
					_, exists := inf.Get(named("a"))
					require.False(t, exists, "it has been deleted")
					b, _ := inf.Get(named("b"))
					require.Equal(t, "one", b.Spec.NodeName)
					require.NoError(t, told.folded(p.Objects()))
					healed(t, p, inf, told)
				})
		})
	}
}
