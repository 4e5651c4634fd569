package workqueue

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The faults that queues of this kind are known for, one test each.

func TestFaultD1AddedTenThousandTimesWhileActive(t *testing.T) {
	q := newQueue(Options[string]{})
	q.Add("a")
	c := take(t, q)
	for range 10_000 {
		q.Add("a")
	}
	require.Zero(t, q.Len())
	c.Done()
	require.Equal(t, 1, q.Len(), "exactly one more run")
	take(t, q).Done()
	require.Zero(t, q.Len())
	require.Zero(t, q.core.entries.n)
}

// heap returns the bytes that f leaves allocated, and what it returned, which has to stay alive for that.
func heap(f func() any) (bytes int64, result any) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	result = f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc), result
}

func TestFaultD2MillionKeysInABurst(t *testing.T) {
	million := many(1_000_000)
	each := func(bytes int64) int64 { return bytes / int64(million) }
	keys := manyKeys(million)
	burst, q := heap(func() any {
		q := newQueue(Options[name]{})
		for _, k := range keys {
			q.Add(k)
		}
		return q
	})
	delayed, later := heap(func() any {
		q := newQueue(Options[name]{})
		for i, k := range keys {
			q.AddAfter(k, time.Hour+time.Duration(i*7919%million)*time.Microsecond)
		}
		return q
	})
	t.Logf("%d keys of 32 bytes: %d bytes a key ready, %d bytes a key delayed", million, each(burst), each(delayed))
	require.LessOrEqual(t, each(burst), int64(170))
	require.LessOrEqual(t, each(delayed), int64(110))
	s := q.(*Queue[name]).Stats()
	require.Equal(t, million, s.Ready)
	require.Positive(t, s.OldestReady)

	// The memory is given back when the keys are gone.
	left, _ := heap(func() any {
		for range million {
			k, _ := q.(*Queue[name]).Get()
			q.(*Queue[name]).Done(k)
		}
		for _, k := range keys {
			later.(*Queue[name]).Cancel(k)
		}
		return nil
	})
	require.LessOrEqual(t, burst+delayed+left, int64(1<<20), "of %d bytes", burst+delayed)
	require.NoError(t, q.(*Queue[name]).check())
	require.NoError(t, later.(*Queue[name]).check())
	runtime.KeepAlive(keys)
}

func TestFaultD3StrayDone(t *testing.T) {
	q := newQueue(Options[string]{})
	q.Done("never seen")
	q.Add("a")
	q.Done("a")
	one := take(t, q)
	q.Add("a")
	q.Done("a") // Get did not hand it out
	require.Zero(t, q.Len(), "or a second worker could have it now")
	again := one
	one.Done()
	two := take(t, q)
	again.Done() // a copy
	one.DoneAfter(0)
	one.Retry()
	one.RetryAfter(0)
	one.Rest(0)
	require.Equal(t, 1, q.Stats().Active, "the second claim is untouched")
	require.Zero(t, q.NumRequeues("a"))
	two.Done()
	require.Equal(t, uint64(8), q.Stats().Strays)
	Claim[string]{}.Done()
	require.NoError(t, q.check())

	// Of Get and Done, which know each other by the key alone, as much as can be: Done ends a Get once.
	q.Add("a")
	k, _ := q.Get()
	q.Done(k)
	q.Add("a")
	q.Done(k)
	require.Equal(t, 1, q.Len(), "still once")
}

func TestFaultD4WorkerPanics(t *testing.T) {
	q := newQueue(Options[string]{})
	work := func() (err any) {
		c := take(t, q)
		defer func() {
			if err = recover(); err != nil {
				c.Retry() // what a library does for its user: the claim ends, however the work does
			}
		}()
		panic("no such pod")
	}
	synctest.Test(t, func(t *testing.T) {
		q = newQueue(Options[string]{})
		q.Add("a")
		require.Equal(t, "no such pod", work())
		time.Sleep(5 * ms)
		synctest.Wait()
		require.Equal(t, "a", take(t, q).Key())
	})
}

func TestFaultD5EarlierDeadlineWins(t *testing.T) {
	for _, delays := range [][]time.Duration{{time.Minute, 10 * time.Minute}, {10 * time.Minute, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(Options[string]{})
			for _, d := range delays {
				q.AddAfter("a", d)
			}
			time.Sleep(time.Minute - 1)
			synctest.Wait()
			require.Zero(t, q.Len())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			take(t, q).Done()
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Zero(t, q.Len(), "it rings once")
		})
	}
}

func TestFaultD6HotKeyDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		for range 10_000 {
			q.AddRateLimited("hot")
		}
		q.AddRateLimited("fresh")
		q.Add("plain")
		require.Equal(t, "plain", take(t, q).Key())
		time.Sleep(5 * ms)
		synctest.Wait()
		require.Equal(t, "hot", take(t, q).Key())
		require.Equal(t, "fresh", take(t, q).Key(), "after its own back-off, not after 16 minutes")
	})
}

func TestFaultD7ForgetNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[int]{})
		defer q.ShutDown()
		limiter := q.opts.RateLimiter.(*perKey[int])
		const each = 100
		most := 0
		for hour := range 50 { // keys that fail once and are given up without a word, new ones every hour
			for i := range each {
				q.AddRateLimited(hour*each + i)
			}
			time.Sleep(time.Hour)
			for q.Len() > 0 {
				k, _ := q.Get()
				q.Done(k)
			}
			most = max(most, q.Stats().Failing)
		}
		require.LessOrEqual(t, most, 3*each, "counts expire an hour after their last delay")
		require.Len(t, limiter.counts, q.Stats().Failing)

		q.Add(-1) // success forgets without being told to
		take(t, q).Retry()
		time.Sleep(time.Second)
		synctest.Wait()
		c := take(t, q)
		require.Equal(t, 1, q.NumRequeues(-1))
		c.Done()
		require.Zero(t, q.NumRequeues(-1))
		require.Zero(t, q.core.entries.n, "nothing is left of any key")
	})
}

func TestFaultD8Drain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		for _, k := range []string{"running", "dirty", "ready"} {
			q.Add(k)
		}
		running, dirty := take(t, q), take(t, q)
		q.Add("dirty")
		q.AddAfter("delayed", time.Second)
		var work sync.WaitGroup
		work.Go(func() {
			time.Sleep(time.Minute)
			running.DoneAfter(time.Second)
			dirty.Done()
			for {
				c, err := q.Take(t.Context())
				if err != nil {
					require.ErrorIs(t, err, ErrShutDown)
					return
				}
				time.Sleep(time.Minute)
				c.DoneAfter(0) // wants to go on for ever
			}
		})
		began := time.Now()
		undone, err := q.Drain(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3*time.Minute, time.Since(began), "it waits for what is queued and for what is running")
		require.ElementsMatch(t, []string{"running", "dirty", "ready", "delayed"}, undone)
		work.Wait()
		q.Add("late")
		q.AddAfter("late", 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, q.Len(), "nothing comes after the shutdown")
	})
}

func TestFaultD8DrainWithDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		q.Add("stuck")
		take(t, q)
		q.Add("ready")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		undone, err := q.Drain(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ElementsMatch(t, []string{"stuck", "ready"}, undone)
	})
}

func TestFaultD9LowPriorityDoesNotStarve(t *testing.T) {
	q := newQueue(Options[string]{})
	q.AddWith("low", AddOptions{Priority: -100})
	for i := range 100 {
		q.AddWith(fmt.Sprint("high", i), AddOptions{Priority: 100})
		q.AddWith(fmt.Sprint("higher", i), AddOptions{Priority: 100})
		c := take(t, q)
		if c.Key() == "low" {
			require.Equal(t, 10, i, "passed over MaxOvertaken times")
			return
		}
		c.Done()
	}
	t.Error("starved")
}

func TestFaultD10ShutdownWhileHandingOut(t *testing.T) {
	for range 200 {
		q := newQueue(Options[int]{})
		var workers sync.WaitGroup
		done := make([]int, 4)
		for w := range done {
			workers.Go(func() {
				for {
					k, down := q.Get()
					if down {
						return
					}
					done[w]++
					q.Done(k)
				}
			})
		}
		for i := range 100 {
			q.Add(i)
		}
		workers.Go(q.ShutDown)
		workers.Go(q.ShutDownWithDrain)
		workers.Go(q.ShutDown)
		workers.Wait()
		require.Equal(t, 100, done[0]+done[1]+done[2]+done[3], "all that was added before the shutdown")
	}
}

// TestAMapShrinksWhenAnEighthIsLeft, so that a few keys that stay do not keep the memory of those that went.
func TestAMapShrinksWhenAnEighthIsLeft(t *testing.T) {
	limiter := Exponential[int](time.Hour, time.Hour, 0).(*perKey[int])
	const keys = 8 * roomy
	for k := range keys {
		limiter.When(k)
	}
	address := func() uintptr { return reflect.ValueOf(limiter.counts).Pointer() }
	first := address()
	for k := range keys - roomy - 1 {
		limiter.Forget(k)
	}
	require.Equal(t, first, address(), "more than an eighth is left")
	limiter.Forget(keys - 1)
	second := address()
	require.NotEqual(t, first, second)
	require.Equal(t, roomy, failing(RateLimiter[int](limiter)))
	require.Equal(t, 1, limiter.NumRequeues(keys-2))
	limiter.Forget(keys - 2)
	require.Equal(t, second, address(), "it is copied once, not with each key that goes")
}

// TestAMapThatWasLargeIsReplaced, since it would keep the size that it once had. One that was small is kept: it is soon
// in use again.
func TestAMapThatWasLargeIsReplaced(t *testing.T) {
	replaced := func(keys int) (counts, expired, groups, flows bool) {
		limiter := Exponential[int](time.Hour, time.Hour, 0).(*perKey[int])
		q := newQueue(Options[int]{RateLimiter: limiter, Group: strconv.Itoa})
		address := func(m any) uintptr { return reflect.ValueOf(m).Pointer() }

		before := address(limiter.counts)
		for k := range keys {
			q.AddRateLimited(k)
		}
		for k := range keys {
			q.Forget(k)
			q.Cancel(k)
		}
		counts = address(limiter.counts) != before

		before = address(limiter.counts)
		for k := range keys {
			limiter.When(k)
		}
		limiter.keep = -1
		require.Zero(t, limiter.failing())
		expired = address(limiter.counts) != before

		before = address(q.core.groups)
		q.Add(0)
		flowsBefore := address(q.core.ready.classes[0].flows)
		for k := range keys {
			q.Add(k)
		}
		for range keys {
			c, err := q.Take(t.Context())
			require.NoError(t, err)
			c.Done()
		}
		groups = address(q.core.groups) != before
		flows = q.core.ready.spareClass == nil || address(q.core.ready.spareClass.flows) != flowsBefore
		require.NoError(t, q.check())
		return
	}
	for _, keys := range []int{1, roomy, roomy + 1, 5 * roomy} {
		counts, expired, groups, flows := replaced(keys)
		want := keys > roomy
		require.Equal(t, []bool{want, want, want, want}, []bool{counts, expired, groups, flows},
			"%d keys: counts, expired counts, groups, flows", keys)
	}
}
