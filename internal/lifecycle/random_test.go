package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// drawn returns what a bubble draws, as many goroutines do in whatever order.
func drawn(t *testing.T, after time.Duration) (all [3]float64) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(after)
		done := make(chan struct{})
		for i, purpose := range []string{"a", "b", "ab"} {
			go func() {
				all[i] = Random(purpose)
				done <- struct{}{}
			}()
		}
		for range all {
			<-done
		}
	})
	return all
}

func TestRandomIsTheSameInEachBubble(t *testing.T) {
	for range 100 {
		require.Equal(t, drawn(t, time.Second), drawn(t, time.Second))
	}
	require.NotEqual(t, drawn(t, 0), drawn(t, 1), "a nanosecond is another seed")
	synctest.Test(t, func(t *testing.T) {
		require.NotEqual(t, Random("a", "b"), Random("ab"), "the parts of a purpose are told apart")
	})
}

// TestRandomIsUniform is about real time and about purposes at one instant.
func TestRandomIsUniform(t *testing.T) {
	check := func(draw func(i int) float64) {
		t.Helper()
		const n = 100_000
		var tenths [10]int
		for i := range n {
			tenths[int(10*draw(i))]++
		}
		for _, count := range tenths {
			require.InDelta(t, n/10, count, n/100, "%v", tenths)
		}
	}
	check(func(int) float64 { return Random("a") })
	synctest.Test(t, func(t *testing.T) {
		check(func(i int) float64 { return Random(time.Duration(i).String()) })
		check(func(int) float64 {
			time.Sleep(time.Millisecond)
			return Random("a")
		})
	})
}
