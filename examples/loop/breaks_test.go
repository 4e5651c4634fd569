package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// The tests of this file go with the README. Each does the same to two programs: to a step, which it breaks, and to all
// later steps, which withstand it. Read what a program did with
//
//	go test -v -run TestAMissedEvent ./examples/loop

const last = 7

// TestEachStepWorks if nothing goes wrong.
func TestEachStepWorks(t *testing.T) {
	inWorld(t, 1, last, func(w *world) {
		w.start(w.connection())
		w.create("web", 2)
		pods, _ := w.after(time.Minute)
		require.Equal(w, 2, pods)
		w.deleteAPod()
		pods, most := w.after(time.Minute)
		require.Equal(w, 2, pods, "another one has replaced it")
		if w.step >= 5 {
			require.Equal(w, 2, most) // the steps before may have had a third one for a moment
		}
	})
}

// TestFromTheStoreOnTheNumberMayChange: step 1 would need more cases for this. In step 2 it is the same subtraction.
func TestFromTheStoreOnTheNumberMayChange(t *testing.T) {
	inWorld(t, 2, last, func(w *world) {
		w.start(w.connection())
		w.create("web", 2)
		w.after(time.Minute)
		w.patch(`{"data":{"pods":"5"}}`)
		pods, _ := w.after(time.Minute)
		require.Equal(w, 5, pods)
		w.patch(`{"data":{"pods":"1"}}`)
		pods, _ = w.after(time.Minute)
		require.Equal(w, 1, pods)
		for _, mistake := range []string{"lots", "-1", ""} {
			w.patch(fmt.Sprintf(`{"data":{"pods":%q}}`, mistake))
			pods, _ = w.after(time.Minute)
			require.Equal(w, 1, pods, "nobody knows what is meant, so nothing changes")
		}
		require.NoError(w, w.user.configMaps.Delete(w.Context(), "web", metav1.DeleteOptions{}))
		pods, _ = w.after(10 * time.Minute)
		require.Zero(w, pods)
	})
}

// TestAMissedEvent has a pod deleted while the watches are broken.
func TestAMissedEvent(t *testing.T) {
	scene := func(w *world) (pods int) {
		connection := w.connection()
		w.start(connection)
		w.create("web", 2)
		w.after(time.Minute)
		connection.CutWatches()
		synctest.Wait()
		w.deleteAPod() // a second before the program watches again
		pods, _ = w.after(time.Hour)
		return pods
	}
	inWorld(t, 1, 1, func(w *world) {
		require.Equal(w, 1, scene(w))
		w.Log("BROKEN: the pod was deleted while no watch was open, so there was no event. An hour later it is " +
			"still missing: the program does not look, it only listens.")
	})
	inWorld(t, 2, last, func(w *world) { require.Equal(w, 2, scene(w)) })
}

// TestARestart ends the process and starts it anew. The list of pods comes later than that of ConfigMaps. Nothing else
// happens.
func TestARestart(t *testing.T) {
	scene := func(w *world) (pods, most int) {
		stop := w.start(w.connection())
		w.create("web", 2)
		w.after(time.Minute)
		stop()
		connection := w.connection()
		connection.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Verb == "list" && r.Resource.Resource == "pods" {
				return reconciletest.Delay(5*time.Second, 0)
			}
			return nil
		})
		w.start(connection)
		return w.after(time.Hour)
	}
	inWorld(t, 1, 1, func(w *world) {
		pods, _ := scene(w)
		require.Equal(w, 4, pods)
		w.Log("BROKEN: for the new process all that it lists is new. It does not know that the process before it has " +
			"created the pods, and creates them again.")
	})
	inWorld(t, 2, last, func(w *world) {
		pods, most := scene(w)
		require.Equal(w, 2, pods)
		if w.step >= 5 {
			require.Equal(w, 2, most)
		}
	})
}

// TestASlowRequest has one request that takes very long. It is not about web.
func TestASlowRequest(t *testing.T) {
	scene := func(w *world) (pods int) {
		connection := w.connection()
		connection.Inject(creations(reconciletest.Delay(24*time.Hour, 0)))
		w.start(connection)
		w.create("slow", 1)
		w.after(time.Minute)
		connection.Inject(nil)
		w.create("web", 2)
		pods, _ = w.after(time.Hour)
		return pods
	}
	inWorld(t, 2, 2, func(w *world) {
		require.Equal(w, 0, scene(w))
		w.Log("BROKEN: web has no pods after an hour. The only goroutine waits for the answer about slow.")
	})
	inWorld(t, 3, last, func(w *world) { require.Equal(w, 2, scene(w)) })
}

// TestTwoWorkersOnAKey changes web while a worker creates the pods of web. A request takes half a second to the server,
// and the answer takes half a second back.
func TestTwoWorkersOnAKey(t *testing.T) {
	scene := func(w *world) (pods, most int) {
		connection := w.connection()
		connection.Inject(creations(reconciletest.Delay(time.Second/2, time.Second/2)))
		w.start(connection)
		w.after(time.Minute)
		w.create("web", 2)
		w.after(time.Second / 10)
		w.touch()
		return w.after(time.Hour)
	}
	inWorld(t, 3, 3, func(w *world) {
		_, most := scene(w)
		require.Greater(w, most, 2)
		w.Logf("BROKEN: there were %d pods. The change gave the key to a second worker, who saw no pods either.", most)
	})
	inWorld(t, 4, last, func(w *world) {
		pods, most := scene(w)
		require.Equal(w, 2, pods)
		require.Equal(w, 2, most)
	})
}

// TestALateCache has events of pods that come ten seconds late.
func TestALateCache(t *testing.T) {
	scene := func(w *world) (pods, most int) {
		connection := w.connection()
		connection.DelayWatches("pods", 10*time.Second)
		w.start(connection)
		w.after(time.Minute)
		w.create("web", 2)
		w.after(time.Second)
		w.touch()
		return w.after(time.Hour)
	}
	inWorld(t, 4, 4, func(w *world) {
		_, most := scene(w)
		require.Greater(w, most, 2)
		w.Logf("BROKEN: there were %d pods. When web changed, the cache did not have the pods yet that the program "+
			"itself had created a second before.", most)
	})
	inWorld(t, 5, last, func(w *world) {
		pods, most := scene(w)
		require.Equal(w, 2, pods)
		require.Equal(w, 2, most)
	})
}

// TestARefusedRequest has one request refused, once.
func TestARefusedRequest(t *testing.T) {
	scene := func(w *world) (pods int) {
		connection := w.connection()
		connection.Inject(firstCreation(reconciletest.Refuse(apierrors.NewInternalError(errors.New("try later")))))
		w.start(connection)
		w.create("web", 2)
		pods, _ = w.after(time.Hour)
		return pods
	}
	inWorld(t, 5, 5, func(w *world) {
		require.Equal(w, 0, scene(w))
		w.Log("BROKEN: the server has refused one request, an hour ago. Nothing has changed since, so nothing added " +
			"the key again.")
	})
	inWorld(t, 6, last, func(w *world) { require.Equal(w, 2, scene(w)) })
}

// TestALostAnswer has the connection break after the server has created a pod, and before it could say so. Events of
// pods come ten seconds late.
func TestALostAnswer(t *testing.T) {
	scene := func(w *world) (pods, most int) {
		connection := w.connection()
		connection.Inject(firstCreation(reconciletest.LoseAnswer))
		connection.DelayWatches("pods", 10*time.Second)
		w.start(connection)
		w.after(time.Minute)
		w.create("web", 1)
		w.after(5 * time.Second)
		w.touch()
		return w.after(time.Hour)
	}
	inWorld(t, 5, 5, func(w *world) {
		_, most := scene(w)
		require.Greater(w, most, 1)
		w.Logf("BROKEN: there were %d pods. The program took the lost answer for a refusal. It knew no version to "+
			"wait for, and the cache did not have the pod yet.", most)
	})
	inWorld(t, 6, last, func(w *world) {
		pods, most := scene(w)
		require.Equal(w, 1, pods)
		require.Equal(w, 1, most)
	})
}

// TestTwoProcesses runs the same program twice, as one does so that work goes on when a machine breaks.
func TestTwoProcesses(t *testing.T) {
	scene := func(w *world) (pods, most int) {
		for range 2 {
			connection := w.connection()
			connection.Inject(creations(reconciletest.Delay(time.Second/2, time.Second/2)))
			w.start(connection)
		}
		w.after(time.Minute)
		w.create("web", 2)
		return w.after(time.Hour)
	}
	inWorld(t, 6, 6, func(w *world) {
		_, most := scene(w)
		require.Greater(w, most, 2)
		w.Logf("BROKEN: there were %d pods. Each process waits for its own writes, and knows nothing of the other's.",
			most)
	})
	inWorld(t, 7, last, func(w *world) {
		pods, most := scene(w)
		require.Equal(w, 2, pods)
		require.Equal(w, 2, most)
	})
}

// TestAnotherProcessTakesOver when the leader is gone without a word.
func TestAnotherProcessTakesOver(t *testing.T) {
	inWorld(t, 7, last, func(w *world) {
		first := w.connection()
		w.start(first)
		w.after(time.Minute)
		w.start(w.connection())
		first.Close() // as when the machine loses its power
		w.create("web", 2)
		pods, _ := w.after(leaseDuration - retryPeriod)
		require.Zero(w, pods, "the other process cannot know yet that the leader is gone")
		pods, most := w.after(time.Minute)
		require.Equal(w, 2, pods)
		require.Equal(w, 2, most)
	})
}

// TestTheLeaderStopsInTime cuts the leader off from the Lease, and from nothing else, after a renewal whose answer has
// taken six seconds.
func TestTheLeaderStopsInTime(t *testing.T) {
	inWorld(t, 7, last, func(w *world) {
		first := w.connection()
		w.start(first)
		w.create("web", 2)
		w.after(time.Minute)
		w.start(w.connection())
		w.after(time.Minute)
		leases := func(fault reconciletest.Fault) func(reconciletest.Request) reconciletest.Fault {
			return func(r reconciletest.Request) reconciletest.Fault {
				if r.Resource.Resource == "leases" && r.Verb == "update" {
					return fault
				}
				return nil
			}
		}
		first.Inject(leases(reconciletest.Delay(0, 6*time.Second)))
		w.after(3 * time.Second) // it has sent a renewal since
		first.Inject(leases(reconciletest.Reset))
		w.after(10 * time.Second)
		w.deleteAPod()
		pods, _ := w.after(time.Second)
		require.Equal(w, 1, pods, "the old leader has stopped, and there is no new one yet")
		pods, most := w.after(time.Minute)
		require.Equal(w, 2, pods)
		require.Equal(w, 2, most)
	})
}

// TestASlowLookTakesNoLease has requests of another process that take 16 s to the server, longer than a Lease has to
// stand unchanged. Each of them brings what the leader has just written.
func TestASlowLookTakesNoLease(t *testing.T) {
	inWorld(t, 7, last, func(w *world) {
		w.start(w.connection())
		w.create("web", 2)
		w.after(time.Minute)
		holder := func() string {
			lease, err := w.user.leases.Get(w.Context(), label, metav1.GetOptions{})
			require.NoError(w, err)
			return *lease.Spec.HolderIdentity
		}
		leader, other := holder(), w.connection()
		other.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Resource.Resource == "leases" && r.Verb == "get" {
				return reconciletest.Delay(16*time.Second, 0)
			}
			return nil
		})
		w.start(other)
		for range 100 {
			w.after(time.Second)
			require.Equal(w, leader, holder())
		}
	})
}

// TestTheOldLeaderStillWrites has a request of the leader that takes a minute to the server. Meanwhile the leader is
// cut off, and another process leads.
func TestTheOldLeaderStillWrites(t *testing.T) {
	inWorld(t, 7, last, func(w *world) {
		old := w.connection()
		w.start(old)
		w.after(time.Minute)
		w.start(w.connection())
		var cut atomic.Bool
		old.Inject(func(r reconciletest.Request) reconciletest.Fault {
			switch {
			case cut.Load():
				return reconciletest.Reset
			case r.Verb == "create":
				cut.Store(true)
				return func(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
					time.Sleep(time.Minute) // it has been sent: that the leader gives up does not bring it back
					return serve()
				}
			}
			return nil
		})
		w.create("web", 2)
		pods, most := w.after(50 * time.Second)
		require.Equal(w, 2, pods, "the new leader has created them")
		require.Equal(w, 2, most)
		pods, most = w.after(time.Minute)
		require.Equal(w, 3, most)
		w.Log("BROKEN: there were 3 pods. The old leader's request was under way when it lost the Lease.")
		require.Equal(w, 2, pods)
		w.Log("MENDED: the new leader saw the third pod, and deleted one: it compares, whatever has happened.")
	})
}
