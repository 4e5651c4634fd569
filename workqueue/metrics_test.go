package workqueue

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// recorder remembers what it was told.
type recorder struct {
	mu             sync.Mutex
	waited, worked []measured
	limit          int
}

type measured struct {
	Priority Priority
	time.Duration
}

func (r *recorder) Waited(p Priority, d time.Duration) { r.note(&r.waited, p, d) }
func (r *recorder) Worked(p Priority, d time.Duration) { r.note(&r.worked, p, d) }

func (r *recorder) note(to *[]measured, p Priority, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(*to) < r.limit {
		*to = append(*to, measured{p, d})
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{limit: 10}
		q := newQueue(Options[string]{Metrics: r})
		q.Add("a")
		q.Add("a")
		time.Sleep(time.Second)
		c := take(t, q)
		time.Sleep(2 * time.Second)
		q.AddWith("a", AddOptions{Priority: 7})
		time.Sleep(3 * time.Second)
		c.Done()
		k, _ := q.Get()
		time.Sleep(4 * time.Second)
		q.Done(k)
		q.AddAfter("a", time.Minute)
		time.Sleep(time.Minute + time.Second)
		c = take(t, q)
		c.Retry()
		require.Equal(t, []measured{{0, time.Second}, {7, 3 * time.Second}, {0, time.Second}}, r.waited,
			"from the add, also if a worker had the key then; a delay is not a wait")
		require.Equal(t, []measured{{0, 5 * time.Second}, {7, 4 * time.Second}, {0, 0}}, r.worked)
		s := q.Stats()
		require.Equal(t, uint64(3), s.Adds)
		require.Equal(t, uint64(2), s.Retries)
	})
}

func TestAKeyThatRestsIsNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{})
		q.Add("a")
		take(t, q).Rest(time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, q.Stats().Retries)
		take(t, q).DoneAfter(time.Second)
		require.Equal(t, uint64(1), q.Stats().Retries)
	})
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{RateLimiter: fastSlow[string](0, 0, 0), Metrics: &recorder{}})
		require.Zero(t, q.Stats())
		q.Add("first")
		q.Add("second")
		one := take(t, q)
		time.Sleep(time.Second)
		two := take(t, q)
		time.Sleep(time.Second)
		q.AddRateLimited("x")
		q.AddRateLimited("y")
		q.AddAfter("z", time.Hour)
		q.AddAfter("first", time.Hour)
		take(t, q).Done() // x
		time.Sleep(time.Millisecond)
		require.Equal(t, Stats{
			Ready: 1, Active: 2, Delayed: 2, Failing: 1, // x succeeded
			OldestReady:   time.Millisecond,
			UnfinishedSum: 3*time.Second + 2*time.Millisecond, LongestActive: 2*time.Second + time.Millisecond,
			Adds: 4, Retries: 4,
		}, q.Stats())
		one.Done()
		two.Done()
		two.Done()
		q.AddWith("low", AddOptions{Priority: -5})
		time.Sleep(time.Millisecond)
		s := q.Stats()
		require.Equal(t, uint64(1), s.Strays)
		require.Equal(t, 2*time.Millisecond, s.OldestReady)
	})
}

// TestCoarseTimes is about a queue whose times nobody is told: it reads the clock ten times a second.
func TestCoarseTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[int]{})
		for i := range 100 {
			q.Add(i)
			q.core.lock()
			exact := q.core.now()
			q.core.mu.Unlock()
			off := exact - q.core.entries.get(i, q.core.entries.hash(i)).turn.since
			require.True(t, off >= 0 && off <= int64(granularity), "it is off by %s", time.Duration(off))
			require.NoError(t, q.check())
			time.Sleep(time.Duration(i) * 7 * ms)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, q.core.armed, "the timer rests when nothing happens")
	})
}

// TestTimesAfterTheShutdown: the timer, which reads the clock anew for times that are only shown, rests then.
func TestTimesAfterTheShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[int]{})
		q.Add(1)
		q.Add(2)
		q.ShutDown()
		for range 2 {
			time.Sleep(time.Hour)
			c := take(t, q)
			require.Zero(t, q.Stats().LongestActive, "it was handed out just now")
			c.Done()
		}
	})
}

func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{
			RateLimiter: fastSlow[string](0, 0, 0), Group: func(k string) string { return k[:1] }, Name: "pods",
		})
		require.Equal(t, "pods", q.Name())
		require.Empty(t, q.Snapshot())
		start := time.Now()
		q.Add("a1")
		c := take(t, q)
		q.AddWith("a1", AddOptions{After: time.Minute, Priority: 3})
		q.Add("a1")
		q.AddRateLimited("b1")
		q.AddRateLimited("b2")
		take(t, q)
		q.AddWith("c1", AddOptions{Priority: 2})
		q.AddWith("d1", AddOptions{Priority: 2, After: time.Hour})
		require.ElementsMatch(t, []Item[string]{
			{Key: "a1", State: Active, Since: start, Again: true, Next: start.Add(time.Minute), Group: "a"},
			{Key: "b1", State: Active, Since: start, Failures: 1, Group: "b"},
			{Key: "b2", State: Ready, Since: start, Failures: 1, Group: "b"},
			{Key: "c1", State: Ready, Since: start, Priority: 2, Group: "c"},
			{Key: "d1", State: Delayed, Next: start.Add(time.Hour), Priority: 2, Group: "d"},
		}, q.Snapshot())
		c.Done()
		require.NoError(t, q.check())
	})
}
