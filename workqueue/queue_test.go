package workqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientgo "k8s.io/client-go/util/workqueue"
)

// A queue fits wherever client-go's does, and the limiters of either fit the other.
var (
	_ clientgo.TypedRateLimitingInterface[string] = (*Queue[string])(nil)
	_ clientgo.TypedRateLimiter[string]           = RateLimiter[string](nil)
	_ RateLimiter[string]                         = clientgo.TypedRateLimiter[string](nil)
)

// newQueue is New for options that are valid.
func newQueue[K comparable](o Options[K]) *Queue[K] {
	q, err := New(o)
	if err != nil {
		panic(err)
	}
	return q
}

func TestOptionsAreValidated(t *testing.T) {
	q, err := New(Options[int]{MaxOvertaken: -1})
	require.Nil(t, q)
	require.ErrorContains(t, err, "Options.MaxOvertaken is -1")
}

// take claims the next key, which has to be there.
func take[K comparable](t *testing.T, q *Queue[K]) Claim[K] {
	t.Helper()
	s := q.Stats()
	require.Positive(t, s.Ready, "nothing to take")
	c, err := q.Take(context.Background())
	require.NoError(t, err)
	require.NoError(t, q.check())
	return c
}

func TestClaimLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Options[string]{Name: "pods"})
		q.Add("a")
		q.Add("a")
		require.Equal(t, 1, q.Len())
		c := take(t, q)
		require.Equal(t, "a", c.Key())
		q.Add("a")
		require.Zero(t, q.Len(), "a worker holds it")
		c.Done()
		c.Done()
		require.Equal(t, 1, q.Len())
		c = take(t, q)
		c.DoneAfter(time.Minute)
		require.NoError(t, q.check())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, q.Len())
		c = take(t, q)
		require.Equal(t, 5*time.Millisecond, c.Retry())
		require.Zero(t, c.Retry(), "a claim ends once")
		require.Equal(t, 1, q.NumRequeues("a"))
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		take(t, q).Done()
		require.Zero(t, q.NumRequeues("a"))
		require.Equal(t, uint64(2), q.Stats().Strays)
		require.NoError(t, q.check())
		require.Zero(t, q.core.entries.n)
		q.ShutDown()
		_, err := q.Take(t.Context())
		require.ErrorIs(t, err, ErrShutDown)
	})
}

func timeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// many is n, or a tenth of it if the race detector slows everything down.
func many(n int) int {
	if raceDetector {
		return n / 10
	}
	return n
}
