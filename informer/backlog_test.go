package informer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// behindTheStore runs fn while the store does not look at what comes in, because an inline handler keeps it busy with what comes of the pod "busy".
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

// B9, kubernetes/kubernetes#115620: an object's ADDED waits for the store; its DELETED is lost in a gap; the list that follows does not hold it, and
// neither does the store. It must not be left over.
func TestAListForgetsWhatCameAndWentBeforeTheStoreLooked(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
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

// B9, kubernetes/kubernetes#83810: an object's DELETED waits for the store; the list that follows holds a new object of that name. It must not be taken for
// the one that is gone, nor go with it.
func TestAListBringsBackWhatTheStoreHasYetToDelete(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
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
