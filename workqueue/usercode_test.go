package workqueue

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unlocked is everything that a queue has from its user. In each call it checks that the lock is free.
type unlocked struct {
	t     *testing.T
	lock  *sync.Mutex
	calls int
}

func (u *unlocked) call() {
	u.calls++
	if !u.lock.TryLock() {
		u.t.Error("user code is called with the lock held")
		return
	}
	u.lock.Unlock()
}

func (u *unlocked) When(string) time.Duration      { u.call(); return 0 }
func (u *unlocked) Forget(string)                  { u.call() }
func (u *unlocked) NumRequeues(string) int         { u.call(); return 7 }
func (u *unlocked) Waited(Priority, time.Duration) { u.call() }
func (u *unlocked) Worked(Priority, time.Duration) { u.call() }
func (u *unlocked) group(string) string            { u.call(); return "g" }

func TestUserCodeIsCalledWithoutTheLock(t *testing.T) {
	u := &unlocked{t: t}
	q := newQueue(Options[string]{RateLimiter: u, Metrics: u, Group: u.group})
	u.lock = &q.core.mu
	for _, end := range []func(Claim[string]){
		Claim[string].Done, func(c Claim[string]) { c.DoneAfter(0) }, func(c Claim[string]) { c.Retry() },
		func(c Claim[string]) { c.RetryAfter(0) }, func(c Claim[string]) { c.Rest(0) },
	} {
		q.AddRateLimited("a")
		end(take(t, q))
	}
	q.Add("a")
	k, _ := q.Get()
	q.Done(k)
	q.Add("a")
	q.Forget("a")
	require.Equal(t, 7, q.NumRequeues("a"))
	require.Equal(t, 7, q.Snapshot()[0].Failures)
	_, _, found := q.Lookup("a")
	require.True(t, found)
	require.Equal(t, 32, u.calls)
}

// named is a key with a String method, which a limiter with jitter calls.
type named struct{ of *unlocked }

func (n named) String() string {
	n.of.call()
	return "a"
}

func TestALimiterFormatsAKeyWithoutItsLock(t *testing.T) {
	limiter := Exponential[named](time.Second, time.Hour, 0.5).(*perKey[named])
	u := &unlocked{t: t, lock: &limiter.mu}
	limiter.When(named{u})
	require.Equal(t, 1, u.calls)
}

// TestKeysThatAreNotEqualToThemselves: nobody could name such a key again, so Add refuses it, whatever type it hides
// in.
func TestKeysThatAreNotEqualToThemselves(t *testing.T) {
	type pair struct{ x, y float64 }
	nan := math.NaN()
	refuses := func(do func()) {
		t.Helper()
		require.PanicsWithValue(t, "workqueue: a key that is not equal to itself; does it contain a NaN?", do)
	}
	floats, pairs := newQueue(Options[float64]{}), newQueue(Options[pair]{})
	anything := newQueue(Options[any]{RateLimiter: fastSlow[any](0, 0, 0)})
	refuses(func() { floats.Add(nan) })
	refuses(func() { floats.AddAfter(nan, time.Hour) })
	refuses(func() { pairs.AddRateLimited(pair{1, nan}) })
	for _, key := range []any{nan, pair{nan, 1}, complex(0, nan), [2]any{1, nan}} {
		refuses(func() { anything.AddWith(key, AddOptions{RateLimited: true}) })
	}
	require.Panics(t, func() { anything.Add([]int{1}) }, "as one that cannot be compared")
	for _, q := range []interface {
		Stats() Stats
		check() error
	}{floats, pairs, anything} {
		require.Zero(t, q.Stats())
		require.NoError(t, q.check())
	}
	floats.Done(nan)
	require.False(t, floats.Cancel(nan))
	require.Equal(t, uint64(1), floats.Stats().Strays)

	floats.Add(math.Copysign(0, -1)) // equal to 0
	key, _ := floats.Get()
	floats.Add(0)
	require.Zero(t, floats.Len())
	floats.Done(0)
	require.Equal(t, 1, floats.Len())
	require.Zero(t, key)

	limiter := Exponential[float64](time.Second, time.Hour, 0)
	for range 3 {
		require.Equal(t, time.Second, limiter.When(nan), "it is never the second failure of any key")
	}
	require.Zero(t, failing(limiter))
	require.Zero(t, limiter.NumRequeues(nan))
	limiter.Forget(nan)
}
