package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// backTo waits until the controller has no more goroutines than before.
func (w *world) backTo(before int) {
	w.t.Helper()
	var now int
	var dump string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if now, dump = w.goroutines(); now <= before {
			break
		}
	}
	require.LessOrEqual(w.t, now, before, dump)
	require.Greater(w.t, now, 5, "the profile was not understood")
	w.t.Logf("goroutines: %d before, %d after", before, now)
}

// The API server is away for half a minute. What happened just before and just after is made good.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	cluster := testcluster.New(t, withoutBuiltIn)
	w := newWorld(t, cluster)
	w.control()
	w.create("web", 10)
	w.create("db", 5)
	w.settled("web", 10)
	w.settled("db", 5)
	before, _ := w.goroutines()

	for _, pod := range w.pods("web")[:3] {
		w.delete(pod.Name)
	}
	require.NoError(t, cluster.Kill(t.Context(), testcluster.APIServer))
	time.Sleep(30 * time.Second)
	require.NoError(t, cluster.Restart(t.Context(), testcluster.APIServer))
	restarted := time.Now()
	w.settled("web", 10)
	for _, pod := range w.pods("db")[:2] {
		w.delete(pod.Name)
	}
	w.scale("web", 20)
	w.settled("web", 20)
	w.settled("db", 5)
	t.Logf("all is well %v after the API server came back", time.Since(restarted))
	w.backTo(before)
}

// The API server is frozen: it answers no request and closes no connection.
func TestAPIServerFrozen(t *testing.T) {
	t.Parallel()
	cluster := testcluster.New(t, withoutBuiltIn)
	w := newWorld(t, cluster)
	w.control()
	w.create("web", 10)
	w.settled("web", 10)
	before, _ := w.goroutines()

	pause := 10 * time.Second
	if soak {
		pause = 90 * time.Second // longer than any idle time-out
	}
	w.scale("web", 60) // it freezes in the middle of this, most likely
	require.NoError(t, cluster.Stop(t.Context(), testcluster.APIServer))
	time.Sleep(pause)
	require.NoError(t, cluster.Continue(t.Context(), testcluster.APIServer))
	w.settled("web", 60)
	w.backTo(before)
}

// Every watch is cut each second, while pods are deleted and ReplicaSets are scaled.
func TestWatchesAreCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	cutter := &testbed.Cutter{}
	w.control(cutter.Wrap)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		w.create(name, 5)
	}
	for _, name := range names {
		w.settled(name, 5)
	}
	before, _ := w.goroutines()

	length := time.Minute
	if soak {
		length = 5 * time.Minute
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	cut := time.NewTicker(time.Second)
	defer cut.Stop()
	act := time.NewTicker(150 * time.Millisecond)
	defer act.Stop()
	end := time.After(length)
	operations := 0
	for running := true; running; {
		select {
		case <-end:
			running = false
		case <-cut.C:
			cutter.Cut()
		case <-act.C:
			operations++
			name := names[random.IntN(len(names))]
			if random.IntN(3) == 0 {
				w.scale(name, random.Int32N(15))
				continue
			}
			if pods := w.pods(name); len(pods) > 0 {
				err := w.client.CoreV1().Pods(w.namespace).Delete(t.Context(), pods[random.IntN(len(pods))].Name,
					metav1.DeleteOptions{})
				require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
			}
		}
	}
	for _, name := range names {
		w.scale(name, 7)
	}
	for _, name := range names {
		w.settled(name, 7)
	}
	require.Greater(t, cutter.Cuts(), 10, "watches have to be there to be cut")
	t.Logf("%d watches cut, %d operations", cutter.Cuts(), operations)
	w.backTo(before)
}

// The caches lag behind: nevertheless no pod is made twice.
func TestWatchesAreLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	w.control(testbed.BeLate(200 * time.Millisecond))
	w.create("web", 30)
	w.settled("web", 30)
	for _, pod := range w.pods("web")[:10] {
		w.delete(pod.Name)
	}
	w.settled("web", 30)
	w.scale("web", 12)
	w.settled("web", 12)
}

// The proof that the test above could fail: without TrackWrites a late watch makes too many pods, and the overseer
// notices.
func TestWatchesAreLateForABrokenController(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	stop := w.controlWith(testbed.BeLate(200 * time.Millisecond))
	w.create("web", 30)
	noted := w.overseer.forgive()
	for began := time.Now(); len(noted) == 0 && time.Since(began) < 2*time.Minute; noted = w.overseer.forgive() {
		time.Sleep(time.Second)
		w.scale("web", 10+rand.Int32N(21)) // a busy controller may have been too slow to see what is late
	}
	require.NotEmpty(t, noted)
	t.Log(noted[0])
	stop()
	w.overseer.allow("web", 1000)
	w.overseer.forgive()
}

// Three answers are lost on their way, and the pods exist. A run that does not know what it has done is not followed by
// another before a new list has told, so not even these three are made twice.
func TestCreatesWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shared(t))
	lossy := &lossy{left: 3}
	w.controlWith(lossy.wrap, reconcile.TrackWrites)
	w.create("web", 20)
	w.settled("web", 20)
	require.Zero(t, lossy.left, "they were not lost")
}

// Many at once: 100 pods, and 3,000 in the long variant.
func TestManyReplicaSets(t *testing.T) {
	t.Parallel()
	sets, pods := 10, int32(10)
	if soak {
		sets, pods = 100, 30
	}
	w := newWorld(t, shared(t))
	w.control()
	names := make([]string, sets)
	began := time.Now()
	for i := range names {
		names[i] = "many-" + string(rune('a'+i/26)) + string(rune('a'+i%26))
		w.create(names[i], pods)
	}
	for _, name := range names {
		w.settled(name, pods)
	}
	t.Logf("%d ReplicaSets of %d pods up in %v", sets, pods, time.Since(began))

	began = time.Now()
	require.NoError(t, w.client.CoreV1().Pods(w.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{}))
	for _, name := range names {
		w.settled(name, pods)
	}
	t.Logf("all replaced after %v", time.Since(began))

	began = time.Now()
	for _, name := range names {
		w.scale(name, 0)
	}
	for _, name := range names {
		w.settled(name, 0)
	}
	t.Logf("all gone after %v", time.Since(began))
	list, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, namesOfActive(list.Items))
}

func namesOfActive(pods []corev1.Pod) (names []string) {
	for i := range pods {
		if active(&pods[i]) {
			names = append(names, pods[i].Name)
		}
	}
	return names
}
