package workqueue

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// In a synctest bubble time stands still while anything runs, so two readings of the clock in one critical section are
// the same there, and what falls between them is never seen. The tests of this file run in real time.

// atOnce retries without a delay.
func atOnce[K comparable]() RateLimiter[K] { return fastSlow[K](0, 0, 0) }

// spin works for up to d.
func spin(r *rand.Rand, d time.Duration) {
	for until := time.Now().Add(rand.N(d)); time.Now().Before(until); {
		_ = r.Uint64()
	}
}

// TestNothingIsLostInRealTime lets one worker that works about as long as keys take to come, so that it looks for work
// again and again in the very moment in which there is some, serve one batch of keys after the other. Nothing else
// happens in a queue when a batch has been added: a worker that sleeps through a key, or a timer that was not set for
// one, shows as a batch that does not end. No key may be early, no duration negative, and the invariants hold at any
// moment.
func TestNothingIsLostInRealTime(t *testing.T) {
	const keys = 30
	type adder = func(q *Queue[int], r *rand.Rand, key int) time.Duration // when it may run, from now
	addAll := func(add adder) func(*Queue[int], *rand.Rand, []time.Time) {
		return func(q *Queue[int], r *rand.Rand, from []time.Time) {
			for key := range keys {
				now := time.Now()
				from[key] = now.Add(add(q, r, key))
				spin(r, 20*time.Microsecond)
			}
		}
	}
	plain := func(q *Queue[int], _ *rand.Rand, key int) time.Duration {
		q.Add(key)
		return 0
	}
	later := func(q *Queue[int], r *rand.Rand, key int) time.Duration {
		d := time.Duration(r.IntN(40_000))
		q.AddAfter(key, d)
		return d
	}
	mixed := func(q *Queue[int], r *rand.Rand, key int) time.Duration {
		q.AddWith(key, AddOptions{Priority: Priority(r.IntN(3)), After: time.Duration(r.IntN(2) * r.IntN(20_000))})
		return 0 // raised by nothing, but a later add may want it sooner
	}
	with := func(o Options[int]) func(Metrics) Options[int] {
		return func(m Metrics) Options[int] {
			o.Metrics = m
			return o
		}
	}
	without := func(Metrics) Options[int] { return Options[int]{} }
	third := func(k int) string { return string(rune('a' + k%3)) }
	backOff := MaxOf(Exponential[int](10*time.Microsecond, time.Millisecond, 0.5), Bucket[int](100_000, 1))
	for name, test := range map[string]struct {
		options func(m Metrics) Options[int]
		add     adder
		give    time.Duration // how long a worker waits for a key, before it looks again; 0: for ever
		retries int
	}{
		"plain":                  {without, plain, 0, 0},
		"metrics":                {with(Options[int]{}), plain, 0, 0},
		"delays":                 {with(Options[int]{}), later, 0, 0},
		"delays without metrics": {without, later, 0, 0},
		"contexts that end":      {with(Options[int]{}), later, 30 * time.Microsecond, 0},
		"priorities and groups":  {with(Options[int]{Group: third, RateLimiter: atOnce[int]()}), mixed, 0, 1},
		"failures":               {with(Options[int]{RateLimiter: backOff}), plain, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			rounds := 0
			for began := time.Now(); time.Since(began) < 250*ms && !t.Failed(); rounds++ {
				batch(t, uint64(rounds), keys, test.retries, test.give, test.options, addAll(test.add))
			}
			t.Log(rounds, "batches")
		})
	}
}

// batch makes a queue, adds keys to it, and waits until each has had 1+retries runs.
func batch(t *testing.T, seed uint64, keys, retries int, give time.Duration, options func(Metrics) Options[int],
	add func(*Queue[int], *rand.Rand, []time.Time),
) {
	durations := &plausible{began: time.Now()}
	q := newQueue(options(durations))
	var left atomic.Int64
	left.Store(int64(keys * (1 + retries)))
	served := make(chan struct{})
	at := make([]time.Time, keys) // when the last run of each key began
	var worker, watcher sync.WaitGroup
	worker.Go(func() {
		r := rand.New(rand.NewPCG(seed, 1))
		runs := make([]int, keys)
		for {
			ctx, cancel := context.Background(), context.CancelFunc(func() {})
			if give > 0 {
				ctx, cancel = context.WithTimeout(ctx, give)
			}
			c, err := q.Take(ctx)
			cancel()
			switch {
			case err == context.DeadlineExceeded:
				continue
			case err != nil:
				return
			}
			at[c.Key()] = time.Now()
			spin(r, 20*time.Microsecond)
			if runs[c.Key()]++; runs[c.Key()] <= retries {
				c.Retry()
			} else {
				c.Done()
			}
			if left.Add(-1) == 0 {
				close(served)
			}
		}
	})
	watcher.Go(func() {
		for {
			select {
			case <-served:
				return
			default:
			}
			if err := q.check(); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	from := make([]time.Time, keys)
	add(q, rand.New(rand.NewPCG(seed, 0)), from)
	select {
	case <-served:
	case <-time.After(time.Minute): // a busy machine takes its time; what is lost never comes
		t.Errorf("batch %d: %d runs are missing: %+v", seed, left.Load(), q.Stats())
		close(served)
	}
	q.ShutDown()
	worker.Wait()
	watcher.Wait()
	require.NoError(t, q.check())
	for key := range keys {
		require.False(t, at[key].Before(from[key]), "key %d ran %v too early", key, from[key].Sub(at[key]))
	}
	require.Empty(t, durations.wrong)
}

// plausible are metrics that note what cannot be.
type plausible struct {
	began time.Time
	mu    sync.Mutex
	wrong []time.Duration
}

func (p *plausible) Waited(_ Priority, d time.Duration) { p.note(d) }
func (p *plausible) Worked(_ Priority, d time.Duration) { p.note(d) }

func (p *plausible) note(d time.Duration) {
	if d < 0 || d > time.Since(p.began) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wrong = append(p.wrong, d)
	}
}

// TestOneTimeUnderOneHoldOfTheLock: the clock goes on, and the queue's time does so from one hold to the next.
func TestOneTimeUnderOneHoldOfTheLock(t *testing.T) {
	q := newQueue(Options[int]{})
	last := int64(0)
	for range 100 {
		q.core.lock()
		now := q.core.now()
		require.Greater(t, now, last)
		for began := time.Now(); time.Since(began) < time.Microsecond; {
		}
		require.Equal(t, now, q.core.now())
		q.core.setAlarm(q.core.enter(1, q.core.entries.hash(1), ""), ofAdd, time.Hour, 0)
		require.Equal(t, now, q.core.now())
		q.core.clearAlarm(q.core.entries.get(1, q.core.entries.hash(1)), ofAdd)
		q.core.release(q.core.entries.get(1, q.core.entries.hash(1)))
		q.core.mu.Unlock()
		last = now
	}
	q.ShutDown()
}
