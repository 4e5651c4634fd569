package lifecycle

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNextStaysWithinItsLimitAndNeverOverflows(t *testing.T) {
	b := Backoff{Base: 50 * time.Millisecond, Cap: 30 * time.Second}
	limit := b.Base
	for n := range 200 {
		d := b.Next()
		require.Positive(t, d, "failure %d", n)
		require.LessOrEqual(t, d, limit, "failure %d", n)
		limit = min(2*limit, b.Cap)
	}
	b.Reset()
	require.LessOrEqual(t, b.Next(), b.Base)
}

func TestNextUsesTheWholeRange(t *testing.T) {
	b := Backoff{Base: time.Second, Cap: time.Second}
	var low, high bool
	for range 1000 {
		d := b.Next()
		low = low || d < 100*time.Millisecond
		high = high || d > 900*time.Millisecond
	}
	require.True(t, low && high, "1,000 delays leave a tenth of the range unused")
}

func TestADelayBetweenCostlyTriesIsNoLessThanHalfOfItsLimit(t *testing.T) {
	b := Backoff{Base: 2 * time.Second, Cap: 30 * time.Second, Costly: true}
	for n, limit := range []time.Duration{2, 4, 8, 16, 30, 30, 30} {
		for range 100 {
			b.failures = n
			d := b.Next()
			require.Greater(t, d, limit*time.Second/2)
			require.LessOrEqual(t, d, limit*time.Second)
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.True(t, Sleep(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, Sleep(ctx, time.Hour))
		require.Equal(t, time.Minute+time.Second, time.Since(start))
		require.False(t, Sleep(ctx, 0), "an ended context is reported without a wait, too")
	})
}

func TestAfterHonoursTheServer(t *testing.T) {
	b := Backoff{Base: time.Second, Cap: 30 * time.Second}
	for _, asked := range []time.Duration{0, 0, 7 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		d := b.After(asked)
		require.Greater(t, d.Min, asked)
		require.LessOrEqual(t, d.Min, asked+b.Base)
		require.GreaterOrEqual(t, d.Max, d.Min)
		require.LessOrEqual(t, d.Max, asked+b.Cap)
	}
	require.Equal(t, 5, b.failures)
	require.LessOrEqual(t, b.After(0).Min, b.Base)
	b.Reset()
	require.Zero(t, b.failures)
}

func TestDoubled(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		n    int
		want time.Duration
	}{{3, 0, 3}, {3, 1, 6}, {3, 5, 96}, {3, 6, 100}, {3, 62, 100}, {3, 1 << 40, 100}, {200, 0, 100}, {0, 80, 0}} {
		require.Equal(t, c.want, Doubled(c.d, c.n, 100), "%d * 2^%d", c.d, c.n)
	}
	require.Equal(t, time.Duration(1<<62), Doubled(1, 62, math.MaxInt64))
	require.Equal(t, time.Duration(math.MaxInt64), Doubled(1, 63, math.MaxInt64))
}

func TestAPauseIsCutShortOnlyAfterItsMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Delay{Min: time.Minute, Max: time.Hour}
		start := time.Now()
		_, woken := Pause[error](t.Context(), d, nil)
		require.False(t, woken)
		require.Equal(t, d.Max, time.Since(start))

		wake := make(chan string, 1)
		wake <- "asked before"
		start = time.Now()
		token, woken := Pause(t.Context(), d, wake)
		require.True(t, woken)
		require.Equal(t, "asked before", token)
		require.Equal(t, d.Min, time.Since(start))

		time.AfterFunc(2*time.Minute, func() { wake <- "asked meanwhile" })
		start = time.Now()
		token, woken = Pause(t.Context(), d, wake)
		require.True(t, woken)
		require.Equal(t, "asked meanwhile", token)
		require.Equal(t, 2*time.Minute, time.Since(start))

		for _, limit := range []time.Duration{time.Second, 2 * time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			start = time.Now()
			_, woken = Pause(ctx, d, wake)
			require.False(t, woken)
			require.Equal(t, limit, time.Since(start))
			cancel()
		}
	})
}
