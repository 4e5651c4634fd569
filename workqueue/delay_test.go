package workqueue

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimersAreExact is I10: with a worker at hand, a run begins at the very time that was asked for.
func TestTimersAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[time.Duration]{})
		start := time.Now()
		var late []time.Duration
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				c, err := q.Take(t.Context())
				if err != nil {
					return
				}
				late = append(late, time.Since(start)-c.Key())
				c.Done()
			}
		}()
		n := 0
		for i := range 5000 { // in an order that sets the timer both back and forth
			d := time.Duration(i*7919%5000) * 13 * time.Millisecond
			q.AddAfter(d, d)
			n++
		}
		time.Sleep(5000 * 13 * time.Millisecond)
		synctest.Wait()
		require.Len(t, late, n)
		for _, d := range late {
			require.Zero(t, d)
		}
		q.ShutDown()
		<-stopped
	})
}

// TestManyAlarms sets and cancels alarms at random, and checks the heap and the index as it goes.
func TestManyAlarms(t *testing.T) {
	q := newQueue(Options[int]{})
	defer q.ShutDown()
	r := rand.New(rand.NewPCG(1, 0))
	for i := range many(20_000) {
		key, delay := r.IntN(1000), time.Hour+time.Duration(r.IntN(1e9))
		switch r.IntN(4) {
		case 0:
			q.Cancel(key)
		case 1: // an alarm of the other kind
			q.Add(key)
			take(t, q).RetryAfter(delay)
		default:
			q.AddAfter(key, delay)
		}
		if i%20 == 0 {
			require.NoError(t, q.check())
		}
	}
	for key := range 1000 {
		q.Cancel(key)
		require.NoError(t, q.check())
	}
	require.Zero(t, q.core.entries.n)
}

// TestManyDueAtOnce rings more alarms than ring handles at a time.
func TestManyDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[int]{})
		for i := range 3500 {
			q.AddAfter(i, time.Second)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 3500, q.Len())
		require.NoError(t, q.check())
		require.Less(t, cap(q.core.alarms), 3500, "the heap gives its memory back")
	})
}

func TestAddDuringDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		q.AddAfter("a", time.Minute)
		q.Add("a")
		take(t, q).Done()
		time.Sleep(time.Minute)
		synctest.Wait()
		take(t, q).Done() // the delay stands
		q.AddAfter("a", time.Minute)
		c := take1(t, q, "b")
		q.AddAfter("b", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, q.Len(), "it rings while a worker has the key,")
		c.Done()
		require.Equal(t, 1, q.Len(), "and the key runs again after that")
		q.AddAfter("c", 0)
		q.AddAfter("d", -time.Hour)
		require.Equal(t, 3, q.Len(), "no delay is no delay")
		q.AddAfter("e", math.MaxInt64)
		require.NoError(t, q.check())
	})
}

// take1 adds key and takes it.
func take1(t *testing.T, q *Queue[string], key string) Claim[string] {
	t.Helper()
	q.Add(key)
	c := take(t, q)
	require.Equal(t, key, c.Key())
	return c
}

// TestOutcomeReplacesOutcome is about the two kinds of delay that a key can have: what the outcome of its latest run
// left, which the next run replaces, and what others asked for, which stands.
func TestOutcomeReplacesOutcome(t *testing.T) {
	type runs []time.Duration // when the key runs, counted from the end of its second run, at minute 1
	for name, test := range map[string]struct {
		end    func(Claim[string])
		alone  runs
		others runs // if somebody else asked for minute 31
	}{
		"Done":  {Claim[string].Done, nil, runs{30 * time.Minute}},
		"later": {func(c Claim[string]) { c.DoneAfter(time.Hour) }, runs{time.Hour}, runs{30 * time.Minute}},
		"sooner": {func(c Claim[string]) { c.DoneAfter(time.Second) }, runs{time.Second},
			runs{time.Second, 30 * time.Minute}},
		"at once": {func(c Claim[string]) { c.DoneAfter(0) }, runs{0}, runs{0, 30 * time.Minute}},
		"Retry":   {func(c Claim[string]) { c.Retry() }, runs{5 * ms}, runs{5 * ms, 30 * time.Minute}},
		"RetryAfter": {func(c Claim[string]) { c.RetryAfter(2 * time.Hour) }, runs{2 * time.Hour},
			runs{30 * time.Minute}},
		"Rest":             {func(c Claim[string]) { c.Rest(0) }, nil, runs{30 * time.Minute}},
		"Rest for a while": {func(c Claim[string]) { c.Rest(time.Hour) }, runs{time.Hour}, runs{30 * time.Minute}},
	} {
		for others, want := range map[bool]runs{false: test.alone, true: test.others} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueue(Options[string]{})
					take1(t, q, "a").DoneAfter(10 * time.Minute) // an earlier run, of which nothing may be left
					if others {
						q.AddAfter("a", 31*time.Minute)
					}
					time.Sleep(time.Minute)
					test.end(take1(t, q, "a"))
					require.NoError(t, q.check())
					ctx, cancel := timeout(t, 100*time.Hour)
					defer cancel()
					began, got := time.Now(), runs(nil)
					for c, err := q.Take(ctx); err == nil; c, err = q.Take(ctx) {
						got = append(got, time.Since(began))
						c.Rest(0)
					}
					require.Equal(t, want, got)
				})
			})
		}
	}
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{Group: func(k string) string { return k }})
		require.False(t, q.Cancel("never seen"))
		q.AddAfter("a", time.Minute)
		require.True(t, q.Cancel("a"))
		require.False(t, q.Cancel("a"))
		require.Zero(t, q.core.entries.n)

		take1(t, q, "b").DoneAfter(time.Minute)
		q.AddAfter("b", 2*time.Minute)
		require.True(t, q.Cancel("b"), "both delays")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, q.Len())

		q.Add("c")
		q.AddAfter("c", time.Minute)
		require.True(t, q.Cancel("c"))
		require.Equal(t, 1, q.Len(), "what is ready stays")
		c := take(t, q)
		q.AddAfter("c", time.Minute)
		require.True(t, q.Cancel("c"))
		q.Add("c")
		require.False(t, q.Cancel("c"))
		c.Done()
		require.Equal(t, 1, q.Len(), "an add during the run stays")

		q.AddAfter("d", time.Minute) // to put off what has been asked for, cancel and ask again
		q.Cancel("d")
		q.AddAfter("d", time.Hour)
		take(t, q).Done()
		time.Sleep(time.Hour - 1)
		synctest.Wait()
		require.Zero(t, q.Len())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, "d", take(t, q).Key())
		require.NoError(t, q.check())
	})
}
