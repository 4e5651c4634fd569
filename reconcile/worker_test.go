package reconcile_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile"
)

func TestAStuckCallKeepsItsKeyButNotItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		release := make(chan struct{})
		var running atomic.Int32
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s", key.Name)
			if strings.HasPrefix(key.Name, "stuck") {
				running.Add(1)
				<-release
				running.Add(-1)
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{Workers: 1, Timeout: time.Minute})
		reconcile.For(c, newMaps(t, newMapAPI()))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		name := func(name string) { c.Enqueue(reconcile.Key{Name: name}) }
		synctest.Wait()

		name("stuck-1")
		name("healthy")
		require.Equal(t, []string{"stuck-1"}, taken(log))
		time.Sleep(time.Minute + reconcile.StuckAfter - 1)
		require.Empty(t, taken(log))
		time.Sleep(time.Nanosecond)
		require.Equal(t, []string{"healthy"}, taken(log), "another worker has taken the place")
		require.Equal(t, 1, c.Stuck())
		name("stuck-1")
		time.Sleep(time.Hour)
		require.Empty(t, taken(log), "nobody else works on the key")
		require.NoError(t, c.Alive())

		name("stuck-2")
		time.Sleep(time.Hour)
		name("healthy")
		require.Equal(t, []string{"stuck-2"}, taken(log), "the one worker is replaced once, not for ever")
		require.ErrorContains(t, c.Alive(),
			"controller test: 2 calls of Reconcile are stuck, and 1 of 1 workers are missing")

		close(release)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, c.Stuck())
		require.NoError(t, c.Alive())
		require.Equal(t, []string{"healthy", "stuck-1"}, taken(log), "what waited for the key and for a worker")
	})
}

// TestACallIsStuckAtItsOwnTime lets a call begin while the alarm is set for an earlier one, right after others and
// after a long rest.
func TestACallIsStuckAtItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			if key.Name == "stuck" {
				<-release
			}
			time.Sleep(40 * time.Second)
			return reconcile.Result{}, nil
		}, reconcile.Options{Timeout: time.Minute})
		reconcile.For(c, newMaps(t, newMapAPI()))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		slow := func() {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				c.Enqueue(reconcile.Key{Name: name})
			}
			for range 5 * 40 {
				synctest.Wait()
				require.Zero(t, c.Stuck())
				time.Sleep(time.Second)
			}
		}
		slow()
		time.Sleep(time.Hour)
		slow()
		for range 2 {
			c.Enqueue(reconcile.Key{Name: "slow"})
			c.Enqueue(reconcile.Key{Name: "stuck"})
			time.Sleep(40*time.Second + time.Minute + reconcile.StuckAfter - 1)
			synctest.Wait()
			require.Zero(t, c.Stuck())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.Equal(t, 1, c.Stuck())
			release <- struct{}{}
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Zero(t, c.Stuck())
		}
	})
}

// TestAStuckCallIsCountedOnce, and logged once, even if two of the timer's functions find it: the first may be held up
// until the timer, which a later call has set again, fires for that one.
func TestAStuckCallIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, line string) { log.note("%s", line) }, funcr.Options{}))
		var checkStuck func()
		replacements := 0
		var c *reconcile.Controller
		c = newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
			time.Sleep(time.Hour)
			require.Equal(t, 1, c.Stuck())
			lines := taken(log)
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], "Reconcile does not return")
			require.Contains(t, lines[0], `"otherWorkers"=1 "stuckCalls"=1`)
			checkStuck()
			require.Equal(t, 1, c.Stuck())
			require.Empty(t, taken(log))
			return reconcile.Result{}, nil
		}, reconcile.Options{Timeout: time.Minute})
		c.Enqueue(parent)
		claim, err := c.Queue().Take(t.Context())
		require.NoError(t, err)
		handle, check := c.Worker(ctx, func() { replacements++ })
		checkStuck = check
		handle(claim)
		lines := taken(log)
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "has returned after all")
		require.Equal(t, 1, replacements)
		require.Zero(t, c.Stuck())
		require.NoError(t, c.Alive())
	})
}

func TestAControllerIsNeverLeftWithoutWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		releases := map[string]chan struct{}{"first": make(chan struct{}), "second": make(chan struct{}),
			"third": make(chan struct{})}
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s", key.Name)
			if release, ok := releases[key.Name]; ok {
				<-release
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{Workers: 1, Timeout: time.Minute})
		reconcile.For(c, newMaps(t, newMapAPI()))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		for _, name := range []string{"first", "second"} {
			c.Enqueue(reconcile.Key{Name: name})
			time.Sleep(time.Hour)
		}
		require.Error(t, c.Alive(), "both are stuck, and one place is empty")
		close(releases["first"])
		c.Enqueue(reconcile.Key{Name: "healthy"})
		require.Equal(t, []string{"first", "healthy", "second"}, taken(log), "who returned first has taken it")
		require.NoError(t, c.Alive())
		c.Enqueue(reconcile.Key{Name: "third"})
		time.Sleep(time.Hour)
		require.Equal(t, []string{"third"}, taken(log))
		require.Error(t, c.Alive(), "whose worker has been stuck before is found stuck again")
		close(releases["third"])
		synctest.Wait()
		require.NoError(t, c.Alive())
		close(releases["second"])
		c.Enqueue(reconcile.Key{Name: "healthy"})
		require.Equal(t, []string{"healthy"}, taken(log))
	})
}
