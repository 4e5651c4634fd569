package workqueue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTakeHearsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		ctx, cancel := timeout(t, time.Second)
		defer cancel()
		began := time.Now()
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		q.Add("a")
		_, err = q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "with a context that has ended nothing is claimed")
		require.Equal(t, 1, q.Len())
		require.NoError(t, q.check())
	})
}

// TestNobodySleepsThroughAnAdd: the worker that is woken for a key gives up at that very moment, and others wait.
func TestNobodySleepsThroughAnAdd(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(Options[int]{})
			ctx, cancel := context.WithCancel(t.Context())
			var workers sync.WaitGroup
			served := make(chan int, 1)
			for range 2 {
				workers.Go(func() {
					for c, err := q.Take(ctx); err == nil; c, err = q.Take(ctx) {
						served <- c.Key()
						c.Done()
					}
				})
			}
			synctest.Wait()
			workers.Go(func() { // the last in the list of those that wait
				for k, down := q.Get(); !down; k, down = q.Get() {
					served <- k
					q.Done(k)
				}
			})
			synctest.Wait()
			q.Add(1)
			cancel()
			synctest.Wait()
			require.Len(t, served, 1, "before the shutdown, which wakes everybody")
			require.NoError(t, q.check())
			q.ShutDown()
			workers.Wait()
		})
	}
}

// TestAWorkerForEachKey: keys that are added in one moment are handed out in one moment, to workers that wait,
// whichever of those that waited with them have given up.
func TestAWorkerForEachKey(t *testing.T) {
	for quits := range 4 { // the first, the second, the third, or none
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(Options[int]{})
			var cancels []context.CancelFunc
			wait := func() {
				ctx, cancel := context.WithCancel(t.Context())
				cancels = append(cancels, cancel)
				go q.Take(ctx)
				synctest.Wait()
			}
			for range 3 {
				wait()
			}
			if quits < 3 {
				cancels[quits]()
				synctest.Wait()
				require.NoError(t, q.check())
				wait()
				require.NoError(t, q.check())
			}
			for key := range 3 {
				q.Add(key)
				require.NoError(t, q.check())
			}
			synctest.Wait()
			require.Equal(t, 3, q.Stats().Active)
			require.Zero(t, q.core.waiters.waking)
			require.NoError(t, q.check())
			for _, cancel := range cancels {
				cancel()
			}
		})
	}
}

func TestOutcomesAndFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		fail := func(times int) Claim[string] {
			for range times {
				take1(t, q, "a").Retry()
			}
			return take1(t, q, "a")
		}
		require.Equal(t, 20*ms, fail(2).Retry(), "the third failure in a row")
		require.Equal(t, 3, q.NumRequeues("a"))
		take1(t, q, "a").RetryAfter(time.Hour)
		require.Equal(t, 4, q.NumRequeues("a"), "a failure with a delay of its own")
		take1(t, q, "a").Rest(0)
		require.Equal(t, 4, q.NumRequeues("a"), "no verdict")
		require.Equal(t, 1, q.Stats().Failing, "also of a key that is not in the queue")
		require.Zero(t, q.core.entries.n)
		take1(t, q, "a").Done()
		require.Zero(t, q.NumRequeues("a"))
		fail(2).DoneAfter(time.Hour)
		require.Zero(t, q.NumRequeues("a"))
		fail(0).Retry()
		q.Forget("a")
		require.Zero(t, q.NumRequeues("a"))
		require.Equal(t, 1, q.Stats().Delayed, "Forget moves nothing")
	})
}

// TestOutcomeAfterShutdown: what an outcome asks for is left undone, or a drain would never end.
func TestOutcomeAfterShutdown(t *testing.T) {
	for name, end := range map[string]func(Claim[string]){
		"DoneAfter at once": func(c Claim[string]) { c.DoneAfter(0) },
		"DoneAfter":         func(c Claim[string]) { c.DoneAfter(time.Second) },
		"Retry":             func(c Claim[string]) { c.Retry() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(Options[string]{})
				c := take1(t, q, "a")
				q.ShutDown()
				end(c)
				time.Sleep(time.Hour)
				undone, err := q.Drain(t.Context())
				require.NoError(t, err)
				require.Equal(t, []string{"a"}, undone)
				require.NoError(t, q.check())
			})
		})
	}
}

// TestUnendedClaim: a claim that nobody ends keeps its key away from everybody, and nothing else.
func TestUnendedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		take1(t, q, "stuck")
		for range 10 {
			q.Add("stuck")
			time.Sleep(time.Minute)
			take1(t, q, "other").Done()
		}
		require.Zero(t, q.Len())
		items := q.Snapshot()
		require.Len(t, items, 1)
		require.Equal(t, 10*time.Minute, time.Since(items[0].Since))
	})
}

// TestShutDownReleasesDrains: several may wait, each for what it was told to wait for.
func TestShutDownReleasesDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		c := take1(t, q, "a")
		var drains sync.WaitGroup
		start := time.Now()
		var released [2]time.Duration
		for i := range released {
			drains.Go(func() {
				q.ShutDownWithDrain()
				released[i] = time.Since(start)
			})
		}
		var drained time.Duration
		drains.Go(func() {
			_, err := q.Drain(t.Context())
			require.NoError(t, err)
			drained = time.Since(start)
		})
		time.Sleep(time.Second)
		q.ShutDown()
		time.Sleep(time.Second)
		c.Done()
		drains.Wait()
		require.Equal(t, [2]time.Duration{time.Second, time.Second}, released, "by ShutDown")
		require.Equal(t, 2*time.Second, drained, "Drain has a context for that")
	})
}

// TestDrainOfAnIdleQueue: that ctx has ended is no error if there is nothing to wait for.
func TestDrainOfAnIdleQueue(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // of two channels that are ready a select takes either
		q := newQueue(Options[string]{})
		q.AddAfter("delayed", time.Hour)
		undone, err := q.Drain(ended)
		require.NoError(t, err)
		require.Equal(t, []string{"delayed"}, undone)
	}
}

// TestNothingRingsAfterTheShutdown, not even what was due when it came.
func TestNothingRingsAfterTheShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		q.AddAfter("a", time.Second)
		q.ShutDown()
		time.Sleep(time.Minute)
		q.core.ring() // as a timer does that fired before it was stopped, and had to wait for the lock
		require.Zero(t, q.Len())
		require.Equal(t, 1, q.Stats().Delayed)
		require.NoError(t, q.check())
	})
}

// curious is a context of the user's, which looks at the queue.
type curious struct {
	context.Context
	look func()
}

func (c curious) Err() error { c.look(); return c.Context.Err() }

// TestNothingOfTheUsersUnderTheLock: a context may call the queue, and one that panics leaves no lock behind.
func TestNothingOfTheUsersUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		looks := 0
		look := func() {
			require.True(t, q.core.mu.TryLock(), "the lock is held")
			q.core.mu.Unlock()
			looks++
		}
		q.Add("a")
		c, err := q.Take(curious{t.Context(), look})
		require.NoError(t, err)
		c.Done()
		ctx, cancel := timeout(t, time.Second)
		defer cancel()
		time.AfterFunc(ms, func() { q.Add("b") })
		c, err = q.Take(curious{ctx, look})
		require.NoError(t, err)
		c.Done()
		_, err = q.Take(curious{ctx, look})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Positive(t, looks)
		var none context.Context
		require.Panics(t, func() { q.Take(none) })
		require.Zero(t, q.Len(), "no lock was left behind")
	})
}
