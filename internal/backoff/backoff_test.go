package backoff

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func tooMany(seconds int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Details: &metav1.StatusDetails{RetryAfterSeconds: seconds},
	}}
}

func TestAfterHonoursTheServerUpToABound(t *testing.T) {
	b := Backoff{Base: time.Second, Cap: 30 * time.Second}
	for _, c := range []struct {
		seconds int32
		asked   time.Duration
	}{{0, 0}, {-5, 0}, {7, 7 * time.Second}, {300, MaxRetryAfter}, {math.MaxInt32, MaxRetryAfter}} {
		d := b.After(fmt.Errorf("list: %w", tooMany(c.seconds)))
		require.Greater(t, d.Min, c.asked)
		require.LessOrEqual(t, d.Min, c.asked+b.Base)
		require.GreaterOrEqual(t, d.Max, d.Min)
		require.LessOrEqual(t, d.Max, c.asked+b.Cap)
	}
	require.Equal(t, 5, b.Failures())
	require.LessOrEqual(t, b.After(errors.New("connection refused")).Min, b.Base)
	b.Reset()
	require.Zero(t, b.Failures())
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "0": 0, "-3": 0, "7": 7 * time.Second, "9223372037": MaxRetryAfter,
		"99999999999999999999": MaxRetryAfter, "-99999999999999999999": 0,
		now.Add(time.Minute).Format(http.TimeFormat):      time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat):     0,
		now.AddDate(100, 0, 0).Format(http.TimeFormat):    MaxRetryAfter,
		time.Unix(1<<40, 0).UTC().Format(http.TimeFormat): 0, // a year of five digits is no date of HTTP
		"Fri, 31 Dec 9999 23:59:59 GMT":                   MaxRetryAfter,
	} {
		require.Equal(t, want, ParseRetryAfter(value, now), "%q", value)
	}
}

func TestWaitIsCutShortOnlyAfterItsMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Delay{Min: time.Minute, Max: time.Hour}
		start := time.Now()
		_, woken := Wait[error](t.Context(), d, nil)
		require.False(t, woken)
		require.Equal(t, d.Max, time.Since(start))

		wake := make(chan string, 1)
		wake <- "asked before"
		start = time.Now()
		token, woken := Wait(t.Context(), d, wake)
		require.True(t, woken)
		require.Equal(t, "asked before", token)
		require.Equal(t, d.Min, time.Since(start))

		time.AfterFunc(2*time.Minute, func() { wake <- "asked meanwhile" })
		start = time.Now()
		token, woken = Wait(t.Context(), d, wake)
		require.True(t, woken)
		require.Equal(t, "asked meanwhile", token)
		require.Equal(t, 2*time.Minute, time.Since(start))

		for _, limit := range []time.Duration{time.Second, 2 * time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			start = time.Now()
			_, woken = Wait(ctx, d, wake)
			require.False(t, woken)
			require.Equal(t, limit, time.Since(start))
			cancel()
		}
	})
}
