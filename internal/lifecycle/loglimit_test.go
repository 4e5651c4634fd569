package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLogLimitLetsAFewLinesAMinuteThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l LogLimit
		lines := func(n int) (written, dropped int) {
			for range n {
				if before, ok := l.Allow(3); ok {
					written++
					dropped += before
				}
			}
			return written, dropped
		}
		expect := func(n, written, dropped int) {
			t.Helper()
			w, d := lines(n)
			require.Equal(t, []int{written, dropped}, []int{w, d})
		}
		expect(10, 3, 0)
		time.Sleep(time.Minute - 1)
		expect(2, 0, 0)
		time.Sleep(time.Nanosecond)
		expect(2, 2, 9)
		expect(2, 1, 0)
	})
}
