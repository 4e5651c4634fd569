package workqueue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// atOnce retries without a delay, so that nothing but Options.Rate holds a key up.
func atOnce[K comparable]() RateLimiter[K] { return FastSlow[K](0, 0, 0) }

// allAside moves the ready keys of q that owe a token aside; it finds no other, and no token.
func allAside[K comparable](t *testing.T, q *Queue[K]) {
	t.Helper()
	ctx, cancel := timeout(t, 1)
	defer cancel()
	_, err := q.Take(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, q.Len())
}

// TestRateWithPriority: a token does not put a key before those of a higher priority.
func TestRateWithPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options[string]{Rate: 100, RateLimiter: atOnce[string](), MaxOvertaken: 3})
		for i := range 1000 {
			q.AddWith(fmt.Sprint("low", i), AddOptions{Priority: -10, RateLimited: true})
		}
		take(t, q).Done()
		allAside(t, q)
		for i := range 100 {
			q.AddWith(fmt.Sprint("high", i), AddOptions{Priority: 10})
		}
		var got []string
		for range 12 {
			time.Sleep(20 * ms) // a token is always there
			c := take(t, q)
			got = append(got, c.Key())
			c.Done()
		}
		require.Equal(t, []string{
			"high0", "high1", "high2", "low1", "high3", "high4", "high5", "low2", "high6", "high7", "high8", "low3",
		}, got, "passed over MaxOvertaken times, as any other")
		q.AddWith("higher", AddOptions{Priority: 20, RateLimited: true})
		time.Sleep(20 * ms)
		require.Equal(t, "higher", take(t, q).Key(), "one that owes a token is served by its priority, too")
	})
}

// TestRateWithGroup: while tokens are there, a group with keys aside and keys in the line has two turns in a round.
func TestRateWithGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options[string]{Rate: 100, RateLimiter: atOnce[string](), Group: func(k string) string { return k[:5] }})
		for i := range 1000 {
			q.AddRateLimited(fmt.Sprint("noisy", i))
		}
		take(t, q).Done()
		allAside(t, q)
		for i := range 100 {
			q.Add(fmt.Sprint("noisy plain", i))
		}
		for i := range 5 {
			q.Add(fmt.Sprint("quiet", i))
		}
		var got []string
		for range 12 {
			time.Sleep(20 * ms)
			c := take(t, q)
			got = append(got, c.Key())
			c.Done()
		}
		require.Equal(t, []string{
			"noisy1", "noisy plain0", "noisy2", "quiet0", "noisy3", "noisy plain1", "noisy4", "quiet1",
			"noisy5", "noisy plain2", "noisy6", "quiet2",
		}, got)
	})
}

// TestRateKeepsTheOrder: a key that is added rate-limited does not overtake one that waits for a token.
func TestRateKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options[int]{Rate: 1, Burst: 2, RateLimiter: atOnce[int]()})
		for i := range 5 {
			q.AddRateLimited(i)
		}
		take(t, q).Done()
		take(t, q).Done()
		allAside(t, q)
		time.Sleep(time.Minute)
		for i := 5; i < 8; i++ {
			q.AddRateLimited(i)
		}
		for want := 2; want < 8; want++ {
			require.Equal(t, want, take(t, q).Key())
			time.Sleep(time.Second)
		}
	})
}

// TestChargedKeyDoesNotUseUpATurn: neither a group's turn nor a priority's age is spent on a key that steps aside.
func TestChargedKeyDoesNotUseUpATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options[string]{Rate: 0.001, RateLimiter: atOnce[string](), MaxOvertaken: 3, Group: func(k string) string { return k[:1] }})
		q.AddRateLimited("x takes the token")
		take(t, q).Done()
		for i := range 10 {
			q.AddRateLimited(fmt.Sprint("a", i))
		}
		q.Add("a plain")
		q.Add("b plain")
		q.AddWith("low", AddOptions{Priority: -1})
		for _, want := range []string{"a plain", "b plain", "low"} {
			require.Equal(t, want, take(t, q).Key())
		}
	})
}

// TestManyAsideInTurns: the lock is not held while a great number of keys steps aside.
func TestManyAsideInTurns(t *testing.T) {
	q := New(Options[int]{Rate: 0.001, RateLimiter: atOnce[int]()})
	defer q.ShutDown()
	for i := range 3501 {
		q.AddRateLimited(i)
	}
	q.Add(-1)
	take(t, q).Done()
	holds := 0
	q.mu.Lock()
	for {
		before := q.aside.n
		turn, all := q.pick()
		require.LessOrEqual(t, q.aside.n-before, 1000)
		if holds++; all {
			require.Equal(t, -1, turn.entry.key)
			break
		}
	}
	require.Equal(t, 4, holds)
	q.ready.push(turnOf(q, -1)) // as pick found it
	q.mu.Unlock()
	require.Equal(t, -1, take(t, q).Key())
	require.Equal(t, 3500, q.Stats().Throttled)
}

func turnOf[K comparable](q *Queue[K], key K) *turn[K] {
	return q.entries.get(key, q.entries.hash(key)).turn
}

// TestShutDownWithRate: nobody owes a token after a shutdown, and what is ready is handed out.
func TestShutDownWithRate(t *testing.T) {
	q := New(Options[int]{Rate: 0.001, RateLimiter: atOnce[int]()})
	for i := range 5 {
		q.AddRateLimited(i)
	}
	take(t, q).Done()
	require.Equal(t, 4, q.Len())
	q.ShutDown()
	for i := 1; i < 5; i++ {
		require.Equal(t, i, take(t, q).Key())
	}
	_, err := q.Take(t.Context())
	require.ErrorIs(t, err, ErrShutDown)
}

// TestTokenTimes: keys that owe a token are handed out at the very time at which it comes, whatever the workers do.
func TestTokenTimes(t *testing.T) {
	for _, o := range []Options[int]{
		{Rate: 40, RateLimiter: atOnce[int]()},
		{Rate: 40, RateLimiter: atOnce[int](), Metrics: &recorder{}}, // the times are exact then, and nothing else sets the timer
	} {
		for _, workers := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				q := New(o)
				start := time.Now()
				var mu sync.Mutex
				var at []time.Duration
				var pool sync.WaitGroup
				for range workers {
					pool.Go(func() {
						for c, err := q.Take(t.Context()); err == nil; c, err = q.Take(t.Context()) {
							mu.Lock()
							at = append(at, time.Since(start))
							mu.Unlock()
							c.Done()
						}
					})
				}
				synctest.Wait()
				var want []time.Duration
				for i := range 20 {
					q.AddRateLimited(i)
					want = append(want, time.Duration(i)*25*ms)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				require.Equal(t, want, at, "%d workers", workers)
				q.ShutDown()
				pool.Wait()
			})
		}
	}
}
