package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestPausesOfSlicesThatMove are counted by the replica that they come to.
func TestPausesOfSlicesThatMove(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a, b := g.start("a"), g.start("b")
		time.Sleep(20 * time.Second)
		require.Zero(t, a.Stats().Pauses, "nobody had them before")

		c := g.start("c")
		time.Sleep(20 * time.Second)
		joined := c.Stats()
		require.Equal(t, uint64(21), joined.Pauses.Count)
		require.GreaterOrEqual(t, joined.Pauses.Longest, 500*time.Millisecond, "the work that goes on takes a second")
		require.Less(t, joined.Pauses.Longest, 1200*time.Millisecond)
		require.LessOrEqual(t, joined.Pauses.Sum, 21*joined.Pauses.Longest)

		_, leave, err := c.Enter(quiet, keyOf(c.Stats().Slices[0], 64))
		require.NoError(t, err)
		c.cancel()
		time.Sleep(5 * time.Second)
		leave()
		require.NoError(t, g.stop(c))
		time.Sleep(5 * time.Second)
		pauses := a.Stats().Pauses
		require.NotZero(t, pauses.Count)
		longest := max(pauses.Longest, b.Stats().Pauses.Longest)
		require.Greater(t, longest, 3500*time.Millisecond, "no work began in that slice while one run went on")
		require.Less(t, longest, 6*time.Second)

		g.kill(b)
		time.Sleep(20 * time.Second)
		pauses = a.Stats().Pauses
		require.Greater(t, pauses.Longest, 14*time.Second, "since the last renewal")
		require.Less(t, pauses.Longest, 18*time.Second)
	})
}

// TestThePauseOfALeaveThatNobodyIsPreparedFor begins when the owner ends its work, and not when it gives the slice
// away.
func TestThePauseOfALeaveThatNobodyIsPreparedFor(t *testing.T) {
	var unprepared atomic.Bool
	change := func(o *Options) {
		o.Prepare = func(context.Context, []int) error {
			if unprepared.Load() {
				return errors.New("not now")
			}
			return nil
		}
	}
	inGroup(t, change, func(g *testGroup) {
		a, b := g.start("a"), g.start("b")
		time.Sleep(20 * time.Second)
		unprepared.Store(true)
		slice := b.Stats().Slices[0]
		key := keyOf(slice, 64)
		_, leave, err := b.Enter(quiet, key)
		require.NoError(t, err)
		b.cancel()
		time.Sleep(14 * time.Second)
		require.True(t, b.Owns(key), "its work goes on while another one may prepare")
		require.Len(t, a.Stats().Slices, 32)
		time.Sleep(2 * time.Second)
		require.False(t, b.Owns(key), "for LeaseDuration")
		require.Len(t, a.Stats().Slices, 63)
		time.Sleep(4 * time.Second)
		leave()
		require.NoError(t, g.stop(b))
		time.Sleep(time.Second)
		require.Len(t, a.Stats().Slices, 64)
		require.Greater(t, a.Stats().Pauses.Longest, 4500*time.Millisecond)
		require.Less(t, a.Stats().Pauses.Longest, 6*time.Second)
	})
}

// TestANewTableIsAPause of all slices, although owners, their numbers and epochs are those of the table before.
func TestANewTableIsAPause(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.start("a")
		time.Sleep(20 * time.Second)
		all := reconciletest.List[*coordinationv1.Lease](g.server, "leases.coordination.k8s.io", "default")
		for _, lease := range all {
			if lease.Name == "shards" {
				byHand(g, lease, nil)
			}
		}
		deleted := time.Now()
		time.Sleep(40 * time.Second)
		stats := a.Stats()
		require.Len(t, stats.Slices, 64)
		require.Equal(t, uint64(64), stats.Pauses.Count)
		require.Greater(t, stats.Pauses.Longest, 14*time.Second)
		_, _, since := a.Leader(keyOf(0, 64))
		require.True(t, since.After(deleted))
	})
}

// TestStatsTellTheTenure of a replica, and that it was lost.
func TestStatsTellTheTenure(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.start("a")
		time.Sleep(20 * time.Second)
		stats := a.Stats()
		require.Equal(t, 64, stats.All)
		require.Len(t, stats.Slices, 64)
		require.Equal(t, uint64(1), stats.Tenures)
		require.Greater(t, stats.Remaining, 7*time.Second)
		require.LessOrEqual(t, stats.Remaining, 10*time.Second)
		require.Zero(t, stats.RenewalFailures)

		a.cut(true)
		time.Sleep(12 * time.Second)
		stats = a.Stats()
		require.Zero(t, stats.Remaining)
		require.Equal(t, uint64(1), stats.Losses)
		require.NotZero(t, stats.RenewalFailures)
		require.Empty(t, stats.Orphans)
		time.Sleep(15 * time.Second)
		require.Len(t, a.Stats().Orphans, 64)
		a.cut(false)
		time.Sleep(20 * time.Second)
		require.Empty(t, a.Stats().Orphans)
		require.Equal(t, uint64(2), a.Stats().Tenures)
	})
}

// TestAHotSliceIsSeen by what its work takes.
func TestAHotSliceIsSeen(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.alone("a")
		run := make(chan error)
		ctx, stop := context.WithCancel(quiet)
		go func() {
			run <- a.Run(ctx, func(ctx context.Context) error {
				a.Inherit(ctx, func(context.Context, []string, bool) {}, func([]int) {})
				return nil
			})
		}()
		time.Sleep(20 * time.Second)
		work := func(slice int, took time.Duration) {
			key := types.NamespacedName{Name: "0"}
			for i := 1; a.Slice(key) != slice; i++ {
				key.Name = fmt.Sprint(i)
			}
			_, leave, err := a.Enter(quiet, key)
			require.NoError(t, err)
			time.Sleep(took)
			leave()
		}
		work(1, time.Second)
		work(3, 2*time.Second)
		work(1, 3*time.Second)
		require.Equal(t, []Load{{1, 2, 4 * time.Second}, {3, 1, 2 * time.Second}}, a.Stats().Loads)
		stop()
		require.NoError(t, <-run)
		require.Len(t, a.Stats().Loads, 2, "they are of this process, and stay")
	})
}
