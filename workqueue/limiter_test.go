package workqueue

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientgo "k8s.io/client-go/util/workqueue"
)

const ms = time.Millisecond

// fastSlow delays the first attempts failures of a key by fast, and all further ones by slow.
func fastSlow[K comparable](fast, slow time.Duration, attempts int) RateLimiter[K] {
	return newPerKey[K](int64(max(fast, slow)), func(_ K, failures int) time.Duration {
		if failures <= attempts {
			return fast
		}
		return slow
	})
}

func TestLimiterDelays(t *testing.T) {
	for name, test := range map[string]struct {
		limiter RateLimiter[string]
		delays  []time.Duration
	}{
		"Exponential": {Exponential[string](5*ms, time.Second, 0),
			[]time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, time.Second,
				time.Second}},
		"slow at last": {fastSlow[string](5*ms, 10*time.Second, 3),
			[]time.Duration{5 * ms, 5 * ms, 5 * ms, 10 * time.Second, 10 * time.Second}},
		"MaxOf": {MaxOf(fastSlow[string](7*ms, 30*ms, 3), Exponential[string](5*ms, time.Second, 0)),
			[]time.Duration{7 * ms, 10 * ms, 20 * ms, 40 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time after Forget
				require.Zero(t, test.limiter.NumRequeues("a"))
				for i, want := range test.delays {
					require.Equal(t, want, test.limiter.When("a"), "failure %d", i+1)
					require.Equal(t, i+1, test.limiter.NumRequeues("a"))
				}
				require.Equal(t, test.delays[0], test.limiter.When("b"), "another key has a count of its own")
				require.Equal(t, 2, failing(test.limiter))
				test.limiter.Forget("a")
				test.limiter.Forget("b")
				test.limiter.Forget("never failed")
			}
			require.Zero(t, failing(test.limiter))
		})
	}
}

// TestLimitersAgreeWithClientGo asks each of our limiters and its counterpart the same.
func TestLimitersAgreeWithClientGo(t *testing.T) {
	for name, pair := range map[string]func() (ours, theirs RateLimiter[string]){
		"Exponential": func() (ours, theirs RateLimiter[string]) {
			return Exponential[string](5*ms, 1000*time.Second, 0),
				clientgo.NewTypedItemExponentialFailureRateLimiter[string](5*ms, 1000*time.Second)
		},
		"Bucket in MaxOf": func() (ours, theirs RateLimiter[string]) {
			return MaxOf(Exponential[string](5*ms, 1000*time.Second, 0), Bucket[string](10, 100)),
				clientgo.DefaultTypedControllerRateLimiter[string]()
		},
		"each in the other": func() (ours, theirs RateLimiter[string]) {
			return MaxOf(clientgo.NewTypedItemFastSlowRateLimiter[string](5*ms, time.Second, 3),
					Exponential[string](5*ms, time.Minute, 0)),
				clientgo.NewTypedMaxOfRateLimiter(fastSlow[string](5*ms, time.Second, 3),
					clientgo.NewTypedItemExponentialFailureRateLimiter[string](5*ms, time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := pair()
				for i := range 300 {
					key := fmt.Sprint(i % 3)
					require.InDelta(t, theirs.When(key), ours.When(key), float64(time.Microsecond), "call %d", i)
					require.Equal(t, theirs.NumRequeues(key), ours.NumRequeues(key))
					if i%50 == 49 {
						ours.Forget(key)
						theirs.Forget(key)
						time.Sleep(time.Second)
					}
				}
			})
		})
	}
}

// inBounds is I12: the nth delay of an exponential limiter is min(base*2^(n-1), most), give or take the jitter.
func inBounds(base, most time.Duration, jitter float64, n int, d time.Duration) error {
	exact := math.Min(float64(base)*math.Pow(2, float64(n-1)), float64(most))
	if low, high := exact*(1-jitter), exact*(1+jitter); float64(d) < low-1 || float64(d) > high+1 {
		return fmt.Errorf("delay %d of base %s, most %s and jitter %v is %s, not within %v and %v", n, base, most,
			jitter, d,
			time.Duration(low), time.Duration(high))
	}
	return nil
}

func FuzzExponential(f *testing.F) {
	f.Add(int64(5*ms), int64(1000*time.Second), 0.0, 1)
	f.Add(int64(1), int64(math.MaxInt64/4), 1.0, 2000)
	f.Add(int64(7), int64(1<<40), 0.3, 64)
	f.Fuzz(func(t *testing.T, base, most int64, jitter float64, n int) {
		if base <= 0 || most < base || most > math.MaxInt64/4 || !(jitter >= 0 && jitter <= 1) || n < 1 || n > 5000 {
			return // no limiter takes that
		}
		l := Exponential[int](time.Duration(base), time.Duration(most), jitter)
		for i := 1; i <= n; i++ {
			require.NoError(t, inBounds(time.Duration(base), time.Duration(most), jitter, i, l.When(0)))
		}
	})
}

func TestExponentialJitter(t *testing.T) {
	l := Exponential[int](100*ms, time.Second, 0.5)
	least, most := time.Hour, time.Duration(0)
	for key := range 1000 {
		d := l.When(key)
		require.NoError(t, inBounds(100*ms, time.Second, 0.5, 1, d))
		least, most = min(least, d), max(most, d)
	}
	require.Less(t, least, 60*ms, "the jitter is spread over its range")
	require.Greater(t, most, 140*ms)
	require.Error(t, inBounds(100*ms, time.Second, 0.5, 1, 49*ms), "what a limiter with a bug would say")
	require.Error(t, inBounds(100*ms, time.Second, 0.5, 2, 301*ms))
	huge := Exponential[int](1, math.MaxInt64, 1)
	for range 200 {
		require.GreaterOrEqual(t, huge.When(0), time.Duration(0), "nothing overflows")
	}
}

func TestAfter(t *testing.T) {
	require.Equal(t, int64(15), later(10, 5))
	require.Equal(t, int64(10), later(10, -50), "no time is before now")
	require.Equal(t, int64(never), later(10, math.MaxInt64))
}

func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Bucket[string](10, 3)
		var got []time.Duration
		for range 5 {
			got = append(got, b.When("a"))
		}
		require.Equal(t, []time.Duration{0, 0, 0, 100 * ms, 200 * ms}, got)
		b.Forget("a")
		require.Zero(t, b.NumRequeues("a"))
		time.Sleep(time.Hour)
		require.Zero(t, b.When("b"), "it fills up again")
		require.Zero(t, b.When("b"))
		require.Zero(t, b.When("b"))
		require.Equal(t, 100*ms, b.When("b"), "but not over its burst")
	})
	slow := newBucket(1e-300, math.MaxInt)
	for range 3 {
		require.GreaterOrEqual(t, slow.reserve(1), time.Duration(0), "nothing overflows")
	}
	require.Equal(t, int64(1), newBucket(math.Inf(1), 1).interval)
}

func TestConstructorsRefuseNonsense(t *testing.T) {
	for name, test := range map[string]struct {
		complaint string
		build     func()
	}{
		"no base":           {"base", func() { Exponential[int](0, time.Second, 0) }},
		"cap below base":    {"most", func() { Exponential[int](time.Second, ms, 0) }},
		"jitter":            {"jitter", func() { Exponential[int](ms, time.Second, 1.1) }},
		"jitter NaN":        {"jitter", func() { Exponential[int](ms, time.Second, math.NaN()) }},
		"rate":              {"Bucket", func() { Bucket[int](0, 1) }},
		"burst":             {"Bucket", func() { Bucket[int](1, 0) }},
		"most of a nil":     {"MaxOf needs limiters, and number 1 is nil", func() { MaxOf(Bucket[int](1, 1), nil) }},
		"a limiter of none": {"MaxOf", func() { MaxOf[int]() }},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { require.Contains(t, fmt.Sprint(recover()), test.complaint) }()
			test.build()
		})
	}
}

// TestCountsExpire: a key that has been idle for an hour longer than it had to wait begins anew.
func TestCountsExpire(t *testing.T) {
	for name, test := range map[string]struct {
		limiter func() RateLimiter[string]
		most    time.Duration
	}{
		"Exponential": {func() RateLimiter[string] { return Exponential[string](5*ms, 1000*time.Second, 0) },
			1000 * time.Second},
		"slow at last": {func() RateLimiter[string] { return fastSlow[string](5*ms, 3*time.Hour, 3) },
			3 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := MaxOf(test.limiter())
				first := l.When("a")
				for range 29 {
					l.When("a")
				}
				l.When("b")
				time.Sleep(test.most + time.Hour)
				require.Equal(t, 30, l.NumRequeues("a"))
				require.Equal(t, 2, failing(l))
				time.Sleep(time.Nanosecond)
				require.Zero(t, l.NumRequeues("a"))
				require.Equal(t, first, l.When("a"))
				require.Equal(t, 1, l.NumRequeues("a"))
				require.Equal(t, 1, failing(l))
				time.Sleep(100 * time.Hour)
				require.Zero(t, failing(l))
				l.Forget("a")
				require.Equal(t, first, l.When("a"))
				require.Equal(t, 1, failing(l))
			})
		})
	}
}

// TestCountsGoWithoutAFurtherFailure: the memory of failures is freed although nobody calls the limiter any more.
func TestCountsGoWithoutAFurtherFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 10_000
		p := Exponential[int](time.Millisecond, time.Second, 0).(*perKey[int])
		held := func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.counts)
		}
		p.When(-1)
		time.Sleep(30 * time.Minute)
		for key := range keys {
			p.When(key)
		}
		time.Sleep(30*time.Minute + time.Second)
		require.Equal(t, keys+1, held(), "an hour after the longest delay they still count")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, keys, held())
		time.Sleep(30*time.Minute - 1)
		synctest.Wait()
		require.Equal(t, keys, held())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Zero(t, held())
		require.False(t, p.set, "the timer rests")
		require.Zero(t, p.size.Load())

		p.When(1)
		time.Sleep(time.Minute)
		p.When(2)
		time.Sleep(time.Second)
		p.When(3)
		p.When(1) // the oldest one is another one now
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 3, held())
		time.Sleep(time.Second + 1)
		synctest.Wait()
		require.Equal(t, 2, held(), "sweeps are a minute apart")
		require.Zero(t, p.NumRequeues(3), "although what has expired does not count")
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		require.Zero(t, held())

		never := Exponential[int](math.MaxInt64, math.MaxInt64, 0).(*perKey[int])
		never.When(1)
		require.False(t, never.set, "a count that never expires needs no timer")
	})
}

// TestALimiterDecidesByOneTime: what fail says of a key, and whether it stays, follow from the one time it is given.
func TestALimiterDecidesByOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no timer fires meanwhile
		p := Exponential[string](time.Second, time.Second, 0).(*perKey[string])
		p.keep = 100
		for _, step := range []struct {
			now      int64
			failures int
		}{{1, 1}, {50, 2}, {150, 3}, {251, 1}, {352, 1}, {452, 2}} {
			require.Equal(t, step.failures, p.fail("a", step.now), "at %d", step.now)
			require.Equal(t, step.now, p.counts["a"].last)
			require.False(t, p.expired(p.counts["a"], step.now+100))
			require.True(t, p.expired(p.counts["a"], step.now+101))
		}
	})
}

// TestManyCountsExpireInSteps: the lock is not held while a great number of counts goes.
func TestManyCountsExpireInSteps(t *testing.T) {
	p := Exponential[int](time.Second, time.Second, 0).(*perKey[int])
	for key := range 3500 {
		p.When(key)
	}
	for _, left := range []int{2500, 1500, 500} {
		require.False(t, p.dropSome(math.MaxInt64))
		require.Len(t, p.counts, left)
	}
	require.True(t, p.dropSome(math.MaxInt64))
	require.Empty(t, p.counts)
	for key := range 3500 {
		p.When(key)
	}
	p.keep = -1
	require.Zero(t, failing(RateLimiter[int](p)), "all of them, in the end")
}

// TestADelayedCountStands: no count expires before the delay that it led to is over.
func TestADelayedCountStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, base := range []time.Duration{5 * ms, time.Hour} {
			l := Exponential[string](base, max(base, 1000*time.Second), 0)
			for n := range 120 {
				d := l.When("a")
				require.LessOrEqual(t, d, max(base, 1000*time.Second))
				time.Sleep(d)
				l.When("b")
				require.Equal(t, n+1, l.NumRequeues("a"), "after its delay of %v", d)
			}
		}
	})
}
