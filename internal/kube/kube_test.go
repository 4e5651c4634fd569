package kube

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsNil(t *testing.T) {
	var pointer *int
	var function func()
	for _, v := range []any{nil, pointer, function} {
		require.True(t, IsNil(v), "%T", v)
	}
	for _, v := range []any{0, "", new(int), func() {}, struct{}{}} {
		require.False(t, IsNil(v), "%T", v)
	}
}

func TestBrief(t *testing.T) {
	require.Equal(t, strings.Repeat("x", 256), Brief(strings.Repeat("x", 256)))
	require.Equal(t, strings.Repeat("x", 256)+"...", Brief(strings.Repeat("x", 1000)))
	require.Equal(t, "é", Brief("é"))
	cut := Brief("x" + strings.Repeat("é", 200))
	require.True(t, utf8.ValidString(cut))
	require.Less(t, len(cut), 260)
}

func tooMany(seconds int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Details: &metav1.StatusDetails{RetryAfterSeconds: seconds},
	}}
}

func TestRetryAfterIsBounded(t *testing.T) {
	for seconds, asked := range map[int32]time.Duration{
		0: 0, -5: 0, 7: 7 * time.Second, 300: MaxRetryAfter, 301: MaxRetryAfter, math.MaxInt32: MaxRetryAfter,
	} {
		require.Equal(t, asked, RetryAfter(fmt.Errorf("list: %w", tooMany(seconds))), "%d seconds", seconds)
	}
	require.Zero(t, RetryAfter(errors.New("connection refused")))
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
