package backoff

import (
	"context"
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
