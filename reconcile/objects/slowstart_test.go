package objects_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// clock notes in which second each call began. A call takes a second.
type clock struct {
	mu    sync.Mutex
	began time.Time
	calls map[int][]int
}

func newClock() *clock { return &clock{began: time.Now(), calls: map[int][]int{}} }

func (c *clock) call(i int) error {
	second := int(time.Since(c.began).Seconds())
	c.mu.Lock()
	c.calls[second] = append(c.calls[second], i)
	slices.Sort(c.calls[second])
	c.mu.Unlock()
	time.Sleep(time.Second)
	return nil
}

func TestBatchesDouble(t *testing.T) {
	for n, want := range map[int]map[int][]int{
		0: {},
		1: {0: {0}},
		2: {0: {0}, 1: {1}},
		9: {0: {0}, 1: {1, 2}, 2: {3, 4, 5, 6}, 3: {7, 8}},
	} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClock()
				made, err := objects.SlowStart(t.Context(), n, c.call)
				require.NoError(t, err)
				require.Equal(t, n, made)
				require.Equal(t, want, c.calls)
			})
		})
	}
}

func TestNoBatchAfterOneThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, failure := newClock(), errors.New("quota")
		made, err := objects.SlowStart(t.Context(), 100, func(i int) error {
			_ = c.call(i)
			switch i {
			case 4:
				time.Sleep(time.Second) // the first by number fails last
				return failure
			case 6:
				return errors.New("another")
			}
			return nil
		})
		require.Equal(t, failure, err, "the error of the call with the lowest number, as it is")
		require.Equal(t, 5, made)
		require.Equal(t, map[int][]int{0: {0}, 1: {1, 2}, 2: {3, 4, 5, 6}}, c.calls)
	})
}

func TestNoBatchWhenTheContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("the lease is lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		c := newClock()
		time.AfterFunc(1500*time.Millisecond, func() { cancel(stopped) })
		made, err := objects.SlowStart(ctx, 100, c.call)
		require.ErrorIs(t, err, stopped)
		require.EqualError(t, err, "stopped after 3 of 100 calls: the lease is lost")
		require.Equal(t, 3, made)
		require.Equal(t, map[int][]int{0: {0}, 1: {1, 2}}, c.calls)
	})
}

func TestAPanicOfACallIsAnError(t *testing.T) {
	cause := errors.New("ouch")
	made, err := objects.SlowStart(t.Context(), 7, func(i int) error {
		if i == 1 {
			panic(cause)
		}
		return nil
	})
	require.ErrorIs(t, err, cause)
	require.Equal(t, 2, made)
}

func TestACallThatEndsItsGoroutineHasFailed(t *testing.T) {
	made, err := objects.SlowStart(t.Context(), 7, func(i int) error {
		if i == 1 {
			runtime.Goexit()
		}
		return nil
	})
	require.ErrorContains(t, err, "runtime.Goexit")
	require.Equal(t, 2, made)
}

func TestSlowStartRefusesMistakes(t *testing.T) {
	_, err := objects.SlowStart(t.Context(), 1, nil)
	require.ErrorContains(t, err, "function is nil")
	_, err = objects.SlowStart(t.Context(), -1, func(int) error { t.Error("called"); return nil })
	require.ErrorContains(t, err, "-1")
}
