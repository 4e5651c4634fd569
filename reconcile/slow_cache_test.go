package reconcile_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// delays are how late a watch may be.
var delays = []time.Duration{0, time.Millisecond, 50 * time.Millisecond, 3 * time.Second, 15 * time.Second, time.Minute}

// TestASlowWatchMakesNoPodTooMany delays what the watches bring, of one resource and of the other, by everything from
// nothing to more than the time after which the server is asked. The pods are in every case as many as without a delay,
// and no run begins on a cache older than the writes of the last.
func TestASlowWatchMakesNoPodTooMany(t *testing.T) {
	for _, pods := range delays {
		for _, sets := range delays {
			t.Run(fmt.Sprintf("pods %s, sets %s", pods, sets), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					p := w.start(options{workers: 2, prepare: func(p *process) {
						p.link.DelayWatches("pods", pods)
						p.link.DelayWatches("replicasets", sets)
					}})
					w.story()
					require.Equal(t, storyTally, w.tally())
					p.requireKept()
					require.NoError(t, p.stop())
				})
			})
		}
	}
}

// TestWithoutTrackWritesASlowWatchMakesPodsTooMany shows that the test above would see it.
func TestWithoutTrackWritesASlowWatchMakesPodsTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(options{untracked: true, prepare: func(p *process) { p.link.DelayWatches("pods", time.Second) }})
		w.want("a", 3)
		w.want("b", 3)
		time.Sleep(500 * time.Millisecond)
		w.want("a", 4) // names the key again, before the pods are seen
		w.settle("a")
		w.settle("b")
		require.Greater(t, w.tally().made, 7)
		p.mu.Lock()
		defer p.mu.Unlock()
		require.NotEmpty(t, p.wrongs)
	})
}

// TestAWatchThatNeverBringsAnythingHangsNothing stops the watch of one resource for good while the controller writes.
// There is never a pod too many, nobody waits for ever, other keys are served, and the process can be stopped
// meanwhile.
func TestAWatchThatNeverBringsAnythingHangsNothing(t *testing.T) {
	for _, resource := range []string{"pods", "replicasets"} {
		for _, healed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, healed %t", resource, healed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					p := w.start(options{workers: 1})
					w.want("a", 3)
					w.want("b", 1)
					w.settle("a")
					w.settle("b")
					p.link.DelayWatches(resource, reconciletest.Never)
					w.want("a", 5)
					w.want("b", 2)
					time.Sleep(5 * time.Minute)
					got := w.tally()
					require.LessOrEqual(t, got.made, 7)
					require.LessOrEqual(t, got.peak, 7)
					p.requireKept()
					if healed {
						p.link.DelayWatches(resource, 0)
						w.settle("a")
						w.settle("b")
						require.Equal(t, tally{made: 7, gone: 0, peak: 7}, w.tally())
						p.requireKept()
					}
					began := time.Now()
					require.NoError(t, p.stop())
					require.LessOrEqual(t, time.Since(began), time.Second)
				})
			})
		}
	}
}

// TestACacheThatIsBehindIsMendedByAList stops the watch of the pods after the first write and lets the server be asked:
// since a list gets through, the controller goes on, without the watch and without a pod too many.
func TestACacheThatIsBehindIsMendedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(options{})
		w.want("a", 1)
		w.settle("a")
		p.link.DelayWatches("pods", reconciletest.Never)
		w.want("a", 3)
		// nothing names the key, and what it wrote is not seen: it is looked at all the same
		time.Sleep(15 * time.Second)
		require.True(t, w.settled("a"), "%+v", w.tally())
		require.Equal(t, tally{made: 3, peak: 3}, w.tally())
		p.requireKept()
	})
}

// TestExpiredHistoryAtEveryWrite forgets the history and ends all watches at each write in turn, so that the caches
// have to list anew in the middle of everything.
func TestExpiredHistoryAtEveryWrite(t *testing.T) {
	for n := 1; n <= storyWrites(t); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				hook, _ := numbered(n, reconciletest.Do(func() {
					w.server.Compact()
					// Not those of the test itself.
				}))
				p := w.start(options{prepare: func(p *process) {
					p.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
						f := hook(r)
						if f != nil {
							time.AfterFunc(time.Millisecond, p.link.CutWatches)
						}
						return f
					})
				}})
				w.story()
				require.Equal(t, storyTally, w.tally())
				p.requireKept()
			})
		})
	}
}

// TestARestoredServerAtEveryWrite takes the server back to a backup at each write in turn: pods and versions that the
// controller knows have never been. Nobody waits for them, and once the caches have listed the controller does its work
// as on any other day.
func TestARestoredServerAtEveryWrite(t *testing.T) {
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				p := w.start(options{})
				w.want("a", 1)
				w.settle("a")
				backup := w.server.Version()
				hook, _ := numbered(n, reconciletest.Do(func() {
					w.server.Restore(backup)
					p.mu.Lock()
					defer p.mu.Unlock()
					clear(p.writes) // there is nothing of them to be seen
				}))
				p.link.Inject(hook)
				w.want("a", 4)
				time.Sleep(30 * time.Second)
				require.Zero(t, p.controller.Stats().Parked)
				// Of what had been seen nothing is waited for that could tell of the restore, and a watch from the
				// future says nothing.
				p.sets.Relist(metav1.NamespaceAll, nil)
				p.pods.Relist(metav1.NamespaceAll, nil)
				synctest.Wait()
				w.want("a", 4)
				w.settle("a")
				require.Zero(t, p.controller.Stats().Parked)
			})
		})
	}
}

// TestWhatARestoreHasUndoneIsDoneAgain restores the server from before writes that the cache has not seen. The cache
// learns of the restore by a list, in which nothing is new to it that concerns the key: it is reconciled again only
// because its writes are no longer waited for.
func TestWhatARestoreHasUndoneIsDoneAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(options{})
		w.want("a", 1)
		w.settle("a")
		p.link.DelayWatches("replicasets", 5*time.Second)
		w.want("a", 4)
		backup := w.server.Version()
		_, err := w.admin.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		p.link.DelayWatches("pods", reconciletest.Never)
		time.Sleep(6 * time.Second)
		require.Equal(t, 5, w.tally().made)
		w.server.Restore(backup)
		p.mu.Lock()
		clear(p.writes) // there is nothing of them to be seen
		p.mu.Unlock()
		p.pods.Relist(metav1.NamespaceAll, nil)
		time.Sleep(time.Second)
		pods, err := w.admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, pods.Items, 4)
		p.requireKept()
	})
}

// TestNoRunBeginsWhenTheServerHasAnsweredTooLate ends the context of Run while the server is being asked what became of
// a write. The answer would let the key run, and it is too late.
func TestNoRunBeginsWhenTheServerHasAnsweredTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(options{})
		w.want("a", 1)
		w.settle("a")
		p.link.DelayWatches("pods", reconciletest.Never)
		w.want("a", 2)
		time.Sleep(time.Second)
		require.NoError(t, w.admin.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{}))
		asked := make(chan struct{}, 1)
		p.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Writes() {
				return nil
			}
			select {
			case asked <- struct{}{}:
			default:
			}
			return reconciletest.Delay(3*time.Second, 0)
		})
		<-asked
		p.mu.Lock()
		runs := p.runs
		p.mu.Unlock()
		require.NoError(t, p.stop())
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Equal(t, runs, p.runs, "a run began although the Manager had been told to stop")
	})
}
